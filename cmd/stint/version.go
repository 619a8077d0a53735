package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by a release build with -ldflags "-X main.version=v1.2.3".
var version string

// versionName returns the version: of the release, of the module, or the commit.
func versionName() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "print the version",
		Example: "  stint version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if asJSON {
				return printJSON(a.stdout, map[string]string{"version": versionName(), "go": runtime.Version(), "platform": platform})
			}
			_, err := fmt.Fprintf(a.stdout, "stint %s (%s, %s)\n", versionName(), runtime.Version(), platform)
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

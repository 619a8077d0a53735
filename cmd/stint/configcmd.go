package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator/notify"
)

func (a *app) configCommand() *cobra.Command {
	var origins bool
	var dir string
	show := &cobra.Command{
		Use:   "show [OPTIONS]",
		Short: "print every setting, and where it came from",
		Long: `Print every setting as it holds in a workspace, as TOML that can be used as
config.toml. A flag wins over STINT_KEY in the environment, that over a
[workspace."/path"] section, that over the file, that over the default. A password
is shown as ***.`,
		Example: `  stint config show --origin
  stint config show > config.example.toml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.base()
			if err != nil {
				return err
			}
			where, err := workspace(dir, cfg.WorkspaceRoot)
			if err != nil {
				return err
			}
			cfg = cfg.forWorkspace(where)
			if a.json {
				list := cfg.shown()
				for i := range cfg.Notify {
					for _, k := range shownBlock(cfg.Notify[i]) {
						k.Key = fmt.Sprintf("notify.%d.%s", i, k.Key)
						list = append(list, k)
					}
				}
				for _, name := range slices.Sorted(maps.Keys(cfg.QueueMax)) {
					list = append(list, shownKey{"queue." + name + ".max", cfg.QueueMax[name], "file"})
				}
				return printEach(a.stdout, list)
			}
			var b strings.Builder
			for _, k := range cfg.shown() {
				line := k.Key + " = " + tomlText(k.Value)
				if origins {
					line = pad(line, 36) + "  # " + k.Origin
				}
				b.WriteString(line + "\n")
			}
			for _, name := range slices.Sorted(maps.Keys(cfg.QueueMax)) {
				fmt.Fprintf(&b, "[queue.%s]\nmax = %d\n", tomlText(name), cfg.QueueMax[name])
			}
			for i := range cfg.Notify {
				b.WriteString("[[notify]]\n")
				for _, k := range shownBlock(cfg.Notify[i]) {
					b.WriteString(k.Key + " = " + tomlText(k.Value) + "\n")
				}
			}
			if origins {
				a.hint("stint: the file is %s\n", cfg.file)
			}
			return printText(a.stdout, b.String())
		},
	}
	show.Flags().BoolVar(&origins, "origin", false, "say where each value came from")
	show.Flags().StringVarP(&dir, "directory", "C", "", "the workspace's `directory`")
	a.withJSON(show)
	return group(&cobra.Command{Use: "config", Short: "show and change the configuration", Example: "  stint config show --origin\n  stint config set max_workers 2\n  stint config edit"},
		show, a.configPathCommand(), a.noRun(a.configSetCommand()), a.noRun(a.configEditCommand()))
}

// A shownKey is one line of `config show --json`.
type shownKey struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// shown returns every setting as it may be seen by anybody.
func (c *Config) shown() []shownKey {
	var list []shownKey
	for _, k := range keys {
		value := k.get(c)
		if text, isText := value.(string); isText && k.redact != nil {
			value = k.redact(text)
		}
		list = append(list, shownKey{k.inFile(), value, c.origins[k.name].where})
	}
	return list
}

// shownBlock returns the settings of a [[notify]] block, as they may be seen by anybody.
func shownBlock(b notify.Block) (list []shownKey) {
	b.Webhook, b.Ntfy, b.TelegramURL = notify.Redact(b.Webhook), notify.Redact(b.Ntfy), notify.Redact(b.TelegramURL)
	names, fields := blockFields(&b)
	for _, name := range names {
		if v := fields[name]; !v.IsZero() {
			list = append(list, shownKey{name, v.Interface(), "file"})
		}
	}
	return list
}

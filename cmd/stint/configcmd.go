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
				list = append(list, cfg.blocks()...)
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
			block := ""
			for _, k := range cfg.blocks() {
				i := strings.LastIndex(k.Key, ".")
				if k.Key[:i] != block {
					block = k.Key[:i]
					b.WriteString("[[" + strings.TrimRight(block, ".0123456789") + "]]\n")
				}
				b.WriteString(k.Key[i+1:] + " = " + tomlText(k.Value) + "\n")
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
		show, a.configPathCommand(), noRun((*app).configSetCommand)(a), noRun((*app).configEditCommand)(a))
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

// blocks returns the settings of those sections that may have several blocks, such as notify.0.on.
func (c *Config) blocks() (list []shownKey) {
	add := func(section string, i int, b any) {
		names, fields := blockFields(b)
		for _, name := range names {
			if v := fields[name]; !v.IsZero() {
				list = append(list, shownKey{fmt.Sprintf("%s.%d.%s", section, i, name), v.Interface(), "file"})
			}
		}
	}
	for i, b := range c.Notify {
		b.Webhook, b.Ntfy, b.TelegramURL = notify.Redact(b.Webhook), notify.Redact(b.Ntfy), notify.Redact(b.TelegramURL)
		add("notify", i, &b)
	}
	for i := range c.Governed {
		add("governed", i, &c.Governed[i])
	}
	return list
}

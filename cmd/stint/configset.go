package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"stint/ledger/durable"
)

func (a *app) configPathCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "path",
		Short:   "print the path of the configuration file, which need not exist",
		Example: "  stint config path",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, _, err := configFile(a.configOption)
			if err != nil {
				return err
			}
			return printText(a.stdout, file)
		},
	}
}

func (a *app) configSetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "set KEY VALUE",
		Short:   "set a key in the configuration file",
		Long:    "Set a key in the configuration file. What else stands there, comments too, stays as it is.\nA list has commas between its members.",
		Example: "  stint config set max_workers 2\n  stint config set agent claude\n  stint config set postgres.pool_size 4",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			i := slices.IndexFunc(keys, func(k key) bool { return k.inFile() == args[0] })
			if i < 0 {
				try := "stint config show"
				if near := nearestKey(args[0]); near != "" {
					try = "stint config set " + near + " " + args[1]
				}
				return usage(try, "there is no key %q", clip(args[0], 40))
			}
			k := &keys[i]
			var scratch Config
			err := k.set(&scratch, args[1])
			if err != nil {
				return usage("stint help configuration", "%s: %v", args[0], err)
			}
			if k.typed != nil {
				if err := k.typed(args[1]); err != nil {
					return err
				}
			}
			file, text, err := a.configText()
			if err != nil {
				return err
			}
			changed, err := setKey(file, text, k, tomlValue(k.get(&scratch)))
			if err == nil {
				err = a.putConfig(c.Context(), file, changed)
			}
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for i := range keys {
				if len(args) == 0 {
					names = append(names, keys[i].inFile()+"\t"+keys[i].help)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func (a *app) configEditCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "edit",
		Short:   "edit the configuration file; it is checked before it counts",
		Example: "  stint config edit",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, text, err := a.configText()
			if err != nil {
				return err
			}
			tmp := filepath.Join(os.TempDir(), "stint-"+filepath.Base(durable.TempName(file))+".toml")
			if err := durable.PutFile(tmp, text); err != nil {
				return err
			}
			defer func() { _ = os.Remove(tmp) }() // in the temporary directory
			for {
				if err := openEditor(tmp, os.Stdout); err != nil {
					return editorError("nothing was changed", err)
				}
				now, err := durable.ReadFile(durable.OS, tmp)
				switch {
				case err != nil:
					return err
				case bytes.Equal(now, text):
					a.hint("stint: unchanged\n")
					return nil
				}
				if _, err = readConfig(file, now); err == nil {
					return a.putConfig(c.Context(), file, now)
				}
				message, _ := explain(err)
				a.hint("stint: %s\n", escapeText(message))
				if answer, _ := a.ask(c.Context(), "edit again (e), or discard (d)?", "ed"); answer != 'e' {
					return usage("stint config edit", "nothing was changed")
				}
			}
		},
	}
}

// configText returns the path of the configuration file, behind any link, and what it has.
func (a *app) configText() (file string, text []byte, err error) {
	if file, _, err = configFile(a.configOption); err != nil {
		return "", nil, err
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	text, err = readNamed(file, maxSpecFile)
	if errors.Is(err, fs.ErrNotExist) {
		return file, []byte("# Configuration of stint; all keys: stint help configuration\n"), nil
	}
	return file, text, err
}

// readConfig reads a configuration from a text alone.
func readConfig(file string, text []byte) (*Config, error) {
	none := func(string) (string, bool) { return "", false }
	return loadConfig(configSource{file: file, text: text, lookup: none})
}

// putConfig replaces the configuration file.
func (a *app) putConfig(ctx context.Context, file string, text []byte) error {
	if _, err := readConfig(file, text); err != nil {
		return err
	}
	mode := fs.FileMode(durable.FileMode)
	if fi, err := os.Stat(file); err == nil {
		mode = fi.Mode().Perm()
	}
	err := durable.MkdirAll(durable.OS, filepath.Dir(file))
	if err == nil {
		err = durable.ReplaceFile(durable.OS, file, text)
	}
	if err == nil {
		err = os.Chmod(file, mode)
	}
	if err != nil {
		return &cliError{code: exitFailure, message: "cannot write the configuration", err: err}
	}
	a.settings = nil
	if h, err := a.health(ctx); err == nil && a.notice() != nil && a.isStale(a.notice()) {
		a.hint("stint: the master (pid %d) %s: %s\n", h.PID, a.staleText(&h), restart(&h))
	}
	return nil
}

// setKey returns a text of the file in which a key has that value, written as TOML, and all
// else is as it was. It tries the places where the line can stand: the one that is right is the
// one with which the file, read strictly, has this setting and no other change.
func setKey(file string, text []byte, k *key, value string) ([]byte, error) {
	was, err := readConfig(file, text)
	if err != nil {
		return nil, err
	}
	_, short := cutSection(k.inFile())
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n")+"\n", "\n")
	lines = lines[:len(lines)-1] // behind the last line break is nothing
	line := short + " = " + value + "\n"
	others := func(c *Config) []string {
		list := slices.DeleteFunc(slices.Clone(c.inFile), func(s string) bool { return strings.HasPrefix(s, fmt.Sprintf("%q %q ", "", k.inFile())) })
		slices.Sort(list)
		return list
	}
	refused := usage("stint config edit", "%s stands in the file in a way that only a person can change", k.inFile())
	tried := false
	fits := func(from, to int, with string) (now []byte, ok bool) {
		now = []byte(strings.Join(lines[:from], "") + with + strings.Join(lines[to:], ""))
		c, err := readConfig(file, now)
		if err != nil && !tried { // at the likeliest place
			refused = err
		}
		tried = true
		return now, err == nil && tomlValue(k.get(c)) == value && c.origins[k.name].layer == layerFile && slices.Equal(others(c), others(was))
	}
	if o := was.origins[k.name]; o.layer == layerFile {
		at := 0
		if _, err := fmt.Sscanf(strings.TrimPrefix(o.where, filepath.Base(file)+":"), "%d", &at); err != nil || at < 1 || at > len(lines) {
			return nil, refused
		}
		for to := at; to <= len(lines); to++ { // a list may have several lines
			if now, ok := fits(at-1, to, short+" = "+value+commentOf(lines[at-1])+"\n"); ok {
				return now, nil
			}
		}
		return nil, refused
	}
	for i, l := range lines {
		isHead := strings.HasPrefix(strings.TrimSpace(l), "[")
		switch {
		case k.section == "" && isHead:
			for i > 0 && strings.HasPrefix(lines[i-1], "#") { // what is said of the section
				i--
			}
			if now, ok := fits(i, i, line+"\n"); ok {
				return now, nil
			}
		case isHead:
			if now, ok := fits(i+1, i+1, line); ok {
				return now, nil
			}
		}
	}
	if k.section != "" {
		line = "\n[" + k.section + "]\n" + line
	}
	if now, ok := fits(len(lines), len(lines), line); ok {
		return now, nil
	}
	return nil, refused
}

// commentOf returns the comment at the end of a line of TOML, with the blanks before it.
func commentOf(line string) string {
	line = strings.TrimRight(line, "\r\n")
	for i, r := range line {
		var any map[string]any
		if r == '#' && toml.Unmarshal([]byte(line[:i]), &any) == nil {
			return line[len(strings.TrimRight(line[:i], " \t")):]
		}
	}
	return ""
}

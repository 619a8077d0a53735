package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"stint/ledger/durable"
	"stint/ledger/lock"
	"stint/state"
)

func (a *app) configCommand() *cobra.Command {
	var origins bool
	var dir string
	show := command("show [OPTIONS]", "print every key, and where its value came from", cobra.NoArgs, func(*cobra.Command, []string) error {
		_, cfg, err := a.inWorkspace(dir)
		if err != nil {
			return err
		}
		list, text := cfg.shown(), ""
		if a.json {
			return printEach(a.stdout, list)
		}
		for _, k := range list {
			line := k.Key + " = " + tomlText(k.Value)
			if origins {
				line = pad(line, 36) + "  # " + k.Origin
			}
			text += line + "\n"
		}
		return printText(a.stdout, text)
	})
	show.Flags().BoolVar(&origins, "origin", false, "say where each value came from")
	directoryFlag(show, &dir)
	a.withJSON(show)
	path := command("path", "print the path of the configuration file, which need not exist", cobra.NoArgs, func(*cobra.Command, []string) error {
		file, _, err := configFile(a.configOption)
		if err != nil {
			return err
		}
		return printText(a.stdout, file)
	})
	return group(command("config", "show and change the configuration", nil, nil),
		show, path, a.noRun(a.configSetCommand()), a.noRun(a.configEditCommand()))
}

// A shownKey is one line of `config show --json`.
type shownKey struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// shown returns every setting as it may be seen by anybody.
func (c *Config) shown() []shownKey {
	return mapped(keys, func(k *key) shownKey {
		value := k.get(c)
		if text, _ := value.(string); text != "" && k.redact != nil {
			value = k.redact(text)
		}
		return shownKey{k.inFile(), value, c.origins[k.name].where}
	})
}

func (a *app) configSetCommand() *cobra.Command {
	return command("set KEY VALUE", "set a key in the configuration file", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		k, value := keyInFile(args[0]), args[1]
		if k == nil {
			try := "stint config show, or for what stands in a block: stint config edit"
			if near := nearestKey(args[0]); near != "" {
				try = "stint config set " + near + " " + state.ShellQuote(value)
			}
			return usage(try, "there is no key %q", clip(args[0], 40))
		}
		scratch := Config{origins: map[string]origin{}}
		if err := scratch.put(k, origin{text: value}); err != nil {
			return usage("stint config set --help", "%s: %v", args[0], err)
		}
		if err := k.typed(value); err != nil {
			return err
		}
		if dir, err := a.state(); err == nil {
			if unlock, err := lock.Take(c.Context(), filepath.Join(dir, "config.lock"), 10*time.Second); err == nil { // without a state directory there is none
				defer func() { _ = unlock() }()
			}
		}
		file, text, err := a.configText()
		if err == nil {
			text, err = setKey(file, text, k, tomlText(k.get(&scratch)))
		}
		if err == nil {
			err = a.putConfig(c.Context(), file, text)
		}
		return err
	})
}

func (a *app) configEditCommand() *cobra.Command {
	return command("edit", "edit the configuration file; it is checked before it counts", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		file, text, err := a.configText()
		if err != nil {
			return err
		}
		e, err := a.newEditing(os.TempDir(), ".toml", text)
		if err != nil {
			return err
		}
		e.command = "stint config edit"
		return e.run(c.Context(), func(ctx context.Context, now []byte) (again bool, err error) {
			if bytes.Equal(now, text) {
				return false, e.unchanged()
			}
			if _, err = readConfig(file, now); err == nil {
				return false, errors.Join(a.putConfig(ctx, file, now), e.drop())
			}
			message, _ := explain(err)
			a.hint("stint: %s\n", escapeText(message))
			if answer, _ := a.ask(ctx, "edit again (e), or discard (d)?", "ed"); answer == 'e' {
				return true, nil
			}
			return false, errors.Join(usage("stint config edit", "nothing was changed"), e.drop())
		})
	})
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
		return file, []byte("# Configuration of stint; all keys: stint config show\n"), nil
	}
	return file, text, err
}

// readConfig reads a configuration from a text alone.
func readConfig(file string, text []byte) (*Config, error) {
	none := func(string) (string, bool) { return "", false }
	return loadConfig(configSource{file: file, text: text, lookup: none})
}

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
		a.hint("stint: the master (pid %d) %s: %s\n", h.PID, a.staleText(&h), restart(h.Background))
	}
	return nil
}

// setKey returns a text of the file in which a key has that value, written as TOML. What comes out has to be a file with this
// setting and no other change; where it is not, as with a value of several lines, a person has to edit the file.
func setKey(file string, text []byte, k *key, value string) ([]byte, error) {
	c, err := readConfig(file, text)
	if err != nil {
		return nil, err
	}
	values := c.values
	if k.section != "" {
		if c.values[k.section] == nil {
			c.values[k.section] = map[string]any{}
		}
		values = c.values[k.section].(map[string]any)
	}
	var now map[string]any
	text = setLines(text, k.section, map[string]string{k.short(): value})
	if toml.Unmarshal([]byte(k.short()+" = "+value), &values) != nil || toml.Unmarshal(text, &now) != nil || !reflect.DeepEqual(now, c.values) {
		return nil, usage("stint config edit", "%s has a value of several lines in the file; edit that yourself", k.inFile())
	}
	return text, nil
}

// setLines sets keys to values, written as TOML, in a section, "" for the top level. It changes the line of a
// key, or adds one, and the section, if there is none. What else stands there, comments too, stays as it is.
func setLines(text []byte, section string, values map[string]string) []byte {
	lines, heads := tomlLines(text), headsOf(text)
	from := 0
	if section != "" {
		if from = slices.Index(heads, section) + 1; from == 0 {
			lines, heads = append(lines, "", "["+section+"]"), append(heads, "", section)
			from = len(lines)
		}
	}
	to, at := len(lines), from
	if next := slices.IndexFunc(heads[from:], func(name string) bool { return name != "" }); next >= 0 {
		to = from + next
	} else if section == "" {
		at = to // below the comment with which a file begins
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		line := key + " = " + values[key]
		isKey := func(l string) bool { k, _, ok := strings.Cut(l, "="); return ok && strings.TrimSpace(k) == key }
		if i := slices.IndexFunc(lines[from:to], isKey); i >= 0 {
			lines[from+i] = line + commentOf(lines[from+i])
			continue
		}
		lines = slices.Insert(lines, at, line)
		at, to = at+1, to+1
	}
	return joinLines(lines)
}

// withoutSection returns TOML without the section or block that begins at a line, and those below it.
func withoutSection(text []byte, at int) []byte {
	lines, heads := tomlLines(text), headsOf(text)
	if at < 0 {
		return text
	}
	to := at + 1
	for to < len(lines) && (heads[to] == "" || strings.HasPrefix(heads[to], heads[at]+".")) {
		to++
	}
	for to > at+1 && (strings.TrimSpace(lines[to-1]) == "" || strings.HasPrefix(strings.TrimSpace(lines[to-1]), "#")) {
		to--
	}
	return joinLines(slices.Delete(lines, at, to))
}

func tomlLines(text []byte) []string {
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func joinLines(lines []string) []byte {
	return []byte(strings.TrimLeft(strings.Join(lines, "\n"), "\n") + "\n")
}

// headsOf returns for each line of TOML the name of the section or block that begins there; "" if none does: a line
// such as [x] can also stand in a text or a list of several lines, and what is above it cannot be read alone then.
func headsOf(text []byte) (heads []string) {
	lines, above := tomlLines(text), 0
	for i, line := range lines {
		var any map[string]any
		name := ""
		if strings.HasPrefix(strings.TrimSpace(line), "[") && toml.Unmarshal([]byte(strings.Join(lines[above:i], "\n")), &any) == nil {
			if meta, err := toml.Decode(line, &any); err == nil {
				name, above = meta.Keys()[0].String(), i
			}
		}
		heads = append(heads, name)
	}
	return heads
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

// tomlText writes a value as TOML, on one line: as the member of a list it gets no section of its own.
func tomlText(v any) string {
	var b bytes.Buffer
	_ = toml.NewEncoder(&b).Encode(map[string]any{"v": []any{[]any{v}}}) // of texts, lists and maps of these, and numbers it can write all
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), "v = [["), "]]")
	return strings.ToValidUTF8(text, "\uFFFD")
}

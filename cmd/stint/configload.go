package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"stint/coordinator/fleet"
	"stint/coordinator/notify"
	"stint/coordinator/task"
	"stint/memory"
	"stint/state"
	"stint/state/jobs"
)

// A configSource is where the layers of a configuration come from.
type configSource struct {
	file     string                      // path of config.toml
	text     []byte                      // what the file has, or is to have; nil: it is read
	required bool                        // it was named by the user: it must exist
	lookup   func(string) (string, bool) // environment
	flags    map[string]string           // options that were given, by key
}

// A section is one [workspace."/path"].
type section struct {
	path   string
	values map[*key]origin
	config *Config // with these over the file
}

// loadConfig reads all layers. Tasks of a workspace see [Config.forWorkspace].
func loadConfig(src configSource) (*Config, error) {
	c := &Config{file: src.file, values: map[string]any{}, origins: make(map[string]origin, len(keys))}
	for i := range keys {
		if err := c.put(&keys[i], origin{keys[i].def, layerDefault, "default"}); err != nil {
			return nil, fmt.Errorf("default of %s: %w", keys[i].name, err)
		}
	}
	if err := c.loadFile(src); err != nil {
		return nil, badConfig(src.file, err)
	}
	for i := range keys {
		k := &keys[i]
		if text, ok := src.lookup(k.env()); ok {
			if err := c.put(k, origin{text, layerEnv, k.env()}); err != nil {
				return nil, usage("unset "+k.env(), "%s: %v", k.env(), err)
			}
		}
		if text, ok := src.flags[k.name]; ok {
			if err := c.put(k, origin{text, layerFlag, "--" + k.flag()}); err != nil {
				return nil, usage("stint serve --help", "--%s: %v", k.flag(), err)
			}
			if err := k.typed(text); err != nil {
				return nil, err
			}
		}
	}
	// The URL and the file that has it overrule each other as the layers do.
	switch url, file := c.origins["postgres_url"].layer, c.origins["postgres_url_file"].layer; {
	case url > file && c.PostgresURL != "":
		c.PostgresURLFile = ""
	case file > url && c.PostgresURLFile != "":
		c.PostgresURL = ""
	}
	if err := c.check(); err != nil {
		return nil, badConfig(src.file, err)
	}
	if data, err := xdg("XDG_DATA_HOME", ".local/share"); err == nil {
		c.Trees.Dir = task.WithoutLinks(strings.TrimSuffix(cmp.Or(c.WorktreeDir, filepath.Join(data, "stint", "worktrees")), "/"))
	}
	c.Schedules = append(c.Schedules, c.usualSchedules()...)
	for i := range c.sections { // once, for the files that they name
		s, under := &c.sections[i], *c
		under.origins = maps.Clone(c.origins)
		for k, o := range s.values {
			_ = under.put(k, o) // it was checked when the file was read
		}
		s.config = &under
	}
	return c, nil
}

// badConfig returns an error of the configuration with the path of its file.
func badConfig(file string, err error) error {
	message := err.Error()
	if rest, found := strings.CutPrefix(message, filepath.Base(file)+":"); found {
		message = file + ":" + rest
	}
	return &cliError{code: exitUsage, message: message, try: "stint config edit"}
}

// digest is one of the settings of the file, whatever their order, and without its comments.
func (c *Config) digest() string {
	values, _ := json.Marshal(c.values) // of what TOML has
	return fmt.Sprintf("%x", sha256.Sum256(values))[:16]
}

// forClients are the settings that the master does not read.
var forClients = []string{"workspace_root", "auto_start", "agent"}

// masterSettings returns the settings that a master has from its environment or its options, each with a digest of the value.
// What may be secret is left out.
func (c *Config) masterSettings() (list []string) {
	for i := range keys {
		if k := &keys[i]; c.origins[k.name].layer >= layerEnv && k.redact == nil && !slices.Contains(forClients, k.name) {
			list = append(list, fmt.Sprintf("%s=%.4x", k.env(), sha256.Sum256(fmt.Append(nil, k.get(c)))))
		}
	}
	return list
}

// forWorkspace returns the configuration of tasks in dir, with the section of the longest path around it.
func (c *Config) forWorkspace(dir string) *Config {
	if _, origin, ok := c.Trees.Origin(dir); ok {
		dir = origin
	}
	out, longest := c, -1
	for _, s := range c.sections {
		if task.IsWithin(dir, s.path) && len(s.path) > longest {
			out, longest = s.config, len(s.path)
		}
	}
	return out
}

// loadFile reads config.toml. Its errors begin with "config.toml:12: ".
func (c *Config) loadFile(src configSource) error {
	data, err := src.text, error(nil)
	if data == nil {
		data, err = os.ReadFile(src.file)
	}
	if errors.Is(err, fs.ErrNotExist) && !src.required {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the configuration: %w", err)
	}
	f := &fileReader{name: filepath.Base(src.file), text: string(data), config: c, src: src}
	top := f.decode()
	_ = toml.Unmarshal(data, &c.values) // what is wrong was seen above
	f.top(top)
	return f.err
}

// A fileReader decodes one file, strictly. It goes on after a mistake, and knows the first.
type fileReader struct {
	name, text string
	meta       toml.MetaData
	config     *Config
	src        configSource
	err        error // "config.toml:12: what"
}

// wrong notes a mistake.
func (f *fileReader) wrong(line int, format string, args ...any) {
	f.err = cmp.Or(f.err, fmt.Errorf("%s:%d: %w", f.name, line, fmt.Errorf(format, args...)))
}

// decode returns what stands at the top level; nothing if the file is no TOML.
func (f *fileReader) decode() (top map[string]toml.Primitive) {
	var err error
	if f.meta, err = toml.Decode(f.text, &top); err != nil {
		at, _ := errors.AsType[toml.ParseError](err)
		f.wrong(at.Position.Line, "%s", cmp.Or(at.Message, err.Error()))
	}
	return top
}

// top takes what stands at the top level of a configuration.
func (f *fileReader) top(t map[string]toml.Primitive) {
	c, names := f.config, f.inOrder(t)
	if i := slices.Index(names, "server"); i > 0 { // instances name them
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "server")
	}
	for _, name := range names {
		switch p := t[name]; name {
		case "workspace":
			f.workspaces(p)
		case "queue":
			f.queues(p)
		case "notify":
			c.Notify = readBlocks(f, name, p, func(b *notify.Block, _ []notify.Block) (key string, err error) { return b.Check() })
		case "governed":
			c.Governed = readBlocks(f, name, p, f.checkGoverned)
		case "server":
			c.Fleet.Servers = readBlocks(f, name, p, (*fleet.Server).Check)
		case "instance":
			c.Fleet.Instances = readBlocks(f, name, p, func(in *fleet.Instance, before []fleet.Instance) (key string, err error) {
				if _, err := checkRef(in.KeyRef); err != nil {
					return "litellm_key_ref", err
				}
				return in.Check(c.Fleet.Servers, before)
			})
		case "schedule":
			c.Schedules = f.schedules(p, nil)
			f.err = cmp.Or(f.err, noTwins(c.Schedules))
		default:
			if slices.ContainsFunc(keys, func(k key) bool { return k.section == name }) {
				f.values(f.section(p, name, name), name+".", nil)
			} else {
				f.value(p, name, nil)
			}
		}
	}
}

// section returns what stands in a section.
func (f *fileReader) section(p toml.Primitive, name, example string) (values map[string]toml.Primitive) {
	if f.meta.PrimitiveDecode(p, &values) != nil || values == nil {
		f.wrong(f.line(p), "%s is not a section; write [%s], and its settings below that", name, example)
	}
	return values
}

// values takes the settings of a section, with its name and a dot before theirs, or of a workspace.
func (f *fileReader) values(t map[string]toml.Primitive, prefix string, s *section) {
	for _, name := range f.inOrder(t) {
		f.value(t[name], prefix+name, s)
	}
}

// value takes a setting, of the workspace s unless that is nil. It checks name, type and text.
func (f *fileReader) value(p toml.Primitive, name string, s *section) {
	k, line := keyInFile(name), f.line(p)
	if k == nil {
		meant := ""
		if near := nearestKey(name); near != "" {
			meant = "; did you mean " + near + "?"
		}
		f.wrong(line, "unknown key %q%s", name, meant)
		return
	}
	var data any
	err := f.meta.PrimitiveDecode(p, &data)
	text, isRight := k.kind.text(data)
	o := origin{text, layerFile, fmt.Sprintf("%s:%d", f.name, line)}
	switch {
	case s != nil && !k.workspace:
		f.wrong(line, "%s cannot be set for one workspace; move it above the first section", name)
	case err != nil || !isRight:
		f.wrong(line, "%s must be %s", name, k.kind)
	case s == nil:
		err = f.config.put(k, o)
	default:
		o.layer = layerWorkspace
		s.values[k], err = o, k.set(&Config{}, text)
	}
	if err != nil {
		f.wrong(line, "%s: %w", name, err)
	}
}

// workspaces takes the [workspace."/path"] sections.
func (f *fileReader) workspaces(p toml.Primitive) {
	all := f.section(p, "workspace", `workspace."/path"`)
	for _, path := range f.inOrder(all) {
		dir, err := expandHome(path)
		if err == nil && !filepath.IsAbs(dir) {
			err = fmt.Errorf(`%q is not an absolute path; write [workspace."/path"]`, path)
		}
		if err != nil {
			f.wrong(f.line(all[path]), "%w", err)
		}
		s, full := section{path: task.WithoutLinks(dir), values: map[*key]origin{}}, fmt.Sprintf("workspace.%q", path)
		f.values(f.section(all[path], full, full), "", &s)
		f.config.sections = append(f.config.sections, s)
	}
}

// queues takes the [queue.NAME] sections.
func (f *fileReader) queues(p toml.Primitive) {
	f.config.QueueMax = map[string]int{}
	all := f.section(p, "queue", "queue.NAME")
	for _, name := range f.inOrder(all) {
		var queue map[string]any
		_ = f.meta.PrimitiveDecode(all[name], &queue) // without, it has no max
		most, isNumber := queue["max"].(int64)
		if !isNumber || len(queue) != 1 || most < 1 {
			f.wrong(f.blockLine(toml.Key{"queue", name}.String(), 0, "max"), "queue.%s has to have max, at least 1, and nothing else", name)
		}
		f.config.QueueMax[name] = int(most)
	}
}

// blocks returns what stands in each block of a section.
func (f *fileReader) blocks(section string, p toml.Primitive) (list []map[string]toml.Primitive) {
	if f.meta.PrimitiveDecode(p, &list) != nil {
		f.wrong(f.line(p), "%s is not a list of blocks; write [[%s]], and its settings below that", section, section)
	}
	return list
}

// readBlocks reads the blocks of a section. check returns what is wrong with one, whose
// list has those before it, and with which key; "" is the block as a whole.
func readBlocks[T any](f *fileReader, section string, p toml.Primitive, check func(b *T, before []T) (key string, err error)) (list []T) {
	for i, values := range f.blocks(section, p) {
		var b T
		_, fields := blockFields(&b)
		key, err := f.strict(values, fields, nil, section+".")
		if err == nil {
			if key, err = check(&b, list); err != nil && key != "" {
				err = fmt.Errorf("%s.%s: %w", section, key, err)
			}
		}
		if err != nil {
			f.wrong(f.blockLine(section, i, key), "%w", err)
		}
		list = append(list, b)
	}
	return list
}

// strict reads the keys of a section or block to where they go, and others into rest unless that is nil. It returns what is
// wrong with the first that is, and its name, which has that prefix in messages; all others are read nevertheless.
func (f *fileReader) strict(values map[string]toml.Primitive, fields, rest map[string]any, prefix string) (key string, err error) {
	for _, name := range f.inOrder(values) {
		field, wrong := reflect.ValueOf(fields[name]), error(nil)
		switch {
		case !field.IsValid() && rest != nil:
			var value any
			wrong = f.meta.PrimitiveDecode(values[name], &value)
			rest[name] = value
		case !field.IsValid() && f.config != nil && keyInFile(name) != nil:
			wrong = fmt.Errorf("unknown key %q; to set %s for all tasks, move it above the first section", prefix+name, name)
		case !field.IsValid():
			known := slices.Sorted(maps.Keys(fields))
			wrong = fmt.Errorf("unknown key %q; did you mean %s?", prefix+name, prefix+cmp.Or(state.Nearest(name, known), known[0]))
		case f.meta.PrimitiveDecode(values[name], fields[name]) != nil, field.Elem().Kind() == reflect.Map && field.Elem().IsNil(): // the decoder lets a text pass
			want := map[reflect.Kind]string{reflect.Bool: "true", reflect.Int: "8", reflect.Slice: `["done", "failed"]`, reflect.Map: `{ "agents.defaults.model.primary" = "…" }`, reflect.String: `"…", one string`}
			wrong = fmt.Errorf("%s has a value of another type; write %s = %s", prefix+name, name, want[field.Elem().Kind()])
		}
		if err == nil && wrong != nil {
			key, err = name, wrong
		}
	}
	return key, err
}

// checkGoverned returns what is wrong with a [[governed]] block. Its workspace is by default workspace_root. What
// an agent may have made of the workspace makes no configuration wrong: a link in it is refused whenever the file is used.
func (f *fileReader) checkGoverned(g *memory.Governed, before []memory.Governed) (key string, err error) {
	root := f.config.WorkspaceRoot
	if v, ok := f.src.lookup("STINT_WORKSPACE_ROOT"); ok {
		root = v
	}
	g.Workspace = cmp.Or(g.Workspace, root)
	if g.Workspace, err = expandHome(g.Workspace); err != nil || !filepath.IsAbs(g.Workspace) {
		return "workspace", fmt.Errorf("%q is not an absolute path; name one here, or in workspace_root", g.Workspace)
	}
	g.Workspace = task.WithoutLinks(g.Workspace)
	if g.Path, err = checkNote(g.Path); err != nil {
		return "path", err
	}
	if g.Path == "" || strings.ContainsAny(g.Path, ":#\n") || strings.HasPrefix(g.Path, memory.Archive+"/") {
		return "path", fmt.Errorf("%q cannot be governed; write a path such as %s, without : and #, and not in %s", g.Path, memory.DefaultLessons, memory.Archive)
	}
	if g.Gate, err = expandHome(cmp.Or(g.Gate, filepath.Join(filepath.Dir(f.src.file), memory.DefaultGate))); err != nil || !filepath.IsAbs(g.Gate) {
		return "gate", fmt.Errorf("%q is not an absolute path", g.Gate)
	}
	if rel, err := filepath.Rel(g.Workspace, task.WithoutLinks(g.Gate)); err == nil && filepath.IsLocal(rel) {
		return "gate", fmt.Errorf("%s lies in the workspace, where agents write, and it is yours alone", g.Gate)
	}
	if !slices.Contains(jobs.ObjectTypes, g.Kind) {
		return "kind", fmt.Errorf("%q is not one of %s", g.Kind, strings.Join(jobs.ObjectTypes, ", "))
	}
	file := filepath.Join(g.Workspace, g.Path)
	if slices.ContainsFunc(before, func(o memory.Governed) bool { return filepath.Join(o.Workspace, o.Path) == file }) {
		return "path", fmt.Errorf("another [[governed]] block has %s already; take one of them out", file)
	}
	return "", nil
}

// inOrder returns the names of a table in the order of the file, so that the first mistake is reported.
func (f *fileReader) inOrder(t map[string]toml.Primitive) []string {
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(f.line(t[a])-f.line(t[b]), strings.Compare(a, b))
	})
}

// blockLine returns the line of a key of the i-th [[name]] block, or of its head: the decoder does not know it.
func (f *fileReader) blockLine(name string, i int, key string) int {
	lines, heads := tomlLines([]byte(f.text)), headsOf([]byte(f.text))
	var starts []int
	for at, head := range heads {
		if head == name {
			starts = append(starts, at)
		}
	}
	if i >= len(starts) { // they stand in a list on one line
		return 1
	}
	for at := starts[i] + 1; key != "" && at < len(lines) && heads[at] != name; at++ {
		if left, _, ok := strings.Cut(lines[at], "="); ok && strings.TrimSpace(left) == key {
			return at + 1
		}
	}
	return starts[i] + 1
}

// line returns the line of a value: an Unmarshaler's error carries it.
func (f *fileReader) line(p toml.Primitive) int {
	at, _ := errors.AsType[toml.ParseError](f.meta.PrimitiveDecode(p, refuse{})) // without one the line is 0
	return at.Position.Line
}

// refuse is a target that takes nothing.
type refuse struct{}

func (refuse) UnmarshalTOML(any) error { return errors.New("position") }

// kindTypes are what a value of the file may be, of those that are no lists.
var kindTypes = map[kind][]reflect.Kind{kindText: {reflect.String}, kindDuration: {reflect.String}, kindSize: {reflect.String, reflect.Int64}, kindNumber: {reflect.Int64}, kindBool: {reflect.Bool}}

// text returns a value of the file as text if it has the right type.
func (k kind) text(data any) (string, bool) {
	if list, isList := data.([]any); isList {
		isOther := func(e any) bool { _, isText := e.(string); return !isText }
		return tomlText(list), k == kindList && !slices.ContainsFunc(list, isOther)
	}
	return fmt.Sprint(data), slices.Contains(kindTypes[k], reflect.ValueOf(data).Kind())
}

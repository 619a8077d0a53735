package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"stint/coordinator/admission"
	"stint/coordinator/fleet"
	"stint/coordinator/schedule"
	"stint/coordinator/task"
)

// schedulesName is the file in the state directory that has the schedules of `stint cron add`.
const schedulesName = "schedules.toml"

// jobNames are the jobs of the master's own that schedules can run; see [master.jobs].
var jobNames = append([]string{"clean", "compact-tasks", "fsck"}, slices.Sorted(maps.Keys(fleet.Usual))...)

// notScheduled are the fields of a task that mean nothing for a schedule, of which each task is a new one.
var notScheduled = []string{"id", "idempotencyKey", "notBefore", "environment", "await"}

// schedules reads [[schedule]] blocks. The list has one with a mistake as it was before, if that is known.
func (f *fileReader) schedules(p toml.Primitive, before []schedule.Schedule) (list []schedule.Schedule) {
	for i, values := range f.blocks("schedule", p) {
		s, key, err := f.schedule(values)
		s.Origin = fmt.Sprintf("%s:%d", f.name, f.blockLine("schedule", i, ""))
		same := []schedule.Schedule{s}
		if err != nil {
			if _, isGiven := values[key]; !isGiven { // as the task has it
				key = task.WithUnderscores(key)
			}
			f.wrong(f.blockLine("schedule", i, key), "schedule %s: %w", cmp.Or(s.Name, fmt.Sprint(i+1)), err)
			same = slices.DeleteFunc(slices.Clone(before), func(b schedule.Schedule) bool { return b.Name != s.Name })
		}
		list = append(list, same...)
	}
	return list
}

// schedule reads a block. Every key that is not the schedule's own is a field of its task. It returns what is wrong, and with
// which key; "" is the block as a whole.
func (f *fileReader) schedule(values map[string]toml.Primitive) (s schedule.Schedule, key string, err error) {
	own, fields := blockFields(&s)
	spec := map[string]any{}
	if key, err = f.strict(values, fields, spec, ""); err != nil {
		return s, key, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return s, "", err
	}
	specs, err := task.ParseSpecs("", text)
	var bad *task.Error
	if errors.As(err, &bad) {
		if strings.Contains(bad.Message, "(known are ") {
			bad.Message = task.WithUnderscores(bad.Message) + "; those of the schedule itself are " + strings.Join(own, ", ")
		}
		return s, bad.Field, errors.New(bad.Message)
	}
	s.Spec = specs[0]
	key, err = s.Check(jobNames)
	if err == nil && s.Job == "" {
		if err = cmp.Or(task.CheckPrompt(s.Spec.Prompt), admission.CheckFields(&s.Spec)); errors.As(err, &bad) {
			key, err = bad.Field, errors.New(bad.Message)
		}
		if err == nil && s.Spec.Agent != "" && !slices.Contains(agentNames, s.Spec.Agent) {
			key, err = "agent", fmt.Errorf("there is no agent %q; known are %s", s.Spec.Agent, strings.Join(agentNames, ", "))
		}
		if err == nil && s.Spec.Workspace != "" && !filepath.IsAbs(s.Spec.Workspace) {
			key, err = "workspace", fmt.Errorf("workspace is %q; it has to be an absolute path", s.Spec.Workspace)
		}
	}
	for _, name := range notScheduled {
		if value, has := spec[name]; has && err == nil {
			key, err = name, fmt.Errorf("%s = %v has no meaning for a schedule: each firing is a new task", name, value)
		}
	}
	return s, key, err
}

// blockFields returns the keys of a block that is read into a struct, in order, and where their values go.
func blockFields(block any) (names []string, fields map[string]any) {
	fields = map[string]any{}
	for f, v := range reflect.ValueOf(block).Elem().Fields() {
		if name := f.Tag.Get("toml"); name != "" && name != "-" {
			names, fields[name] = append(names, name), v.Addr().Interface()
		}
	}
	return names, fields
}

// newSchedulesFile returns schedules.toml of a state directory, with the schedules of the configuration beside it.
func newSchedulesFile(stateDir string, cfg *Config) *stateFile[schedule.Schedule] {
	f := &stateFile[schedule.Schedule]{path: filepath.Join(stateDir, schedulesName), list: cfg.Schedules}
	f.try = "correct it there; until then what stood there before holds"
	f.parse = func(text []byte) ([]schedule.Schedule, error) { return parseSchedules(text, cfg.Schedules, f.list) }
	return f
}

// parseSchedules reads a text of schedules.toml, and puts the schedules of the configuration before those. The list is
// nil if a mistake concerns them all.
func parseSchedules(text []byte, configured, before []schedule.Schedule) ([]schedule.Schedule, error) {
	r := &fileReader{name: schedulesName, text: string(text)}
	top, list := r.decode(), append([]schedule.Schedule{}, configured...)
	if r.err != nil {
		return nil, r.err
	}
	for _, key := range r.inOrder(top) {
		if key != "schedule" {
			r.wrong(r.line(top[key]), "%q is not known here; write [[schedule]], and below that its settings", key)
			return nil, r.err
		}
		list = append(list, r.schedules(top[key], before)...)
	}
	if twin := noTwins(list); twin != nil { // which of them is meant?
		return nil, twin
	}
	return list, r.err
}

// noTwins refuses two schedules of one name.
func noTwins(list []schedule.Schedule) error {
	for i, s := range list {
		if j := slices.IndexFunc(list[:i], func(other schedule.Schedule) bool { return other.Name == s.Name }); j >= 0 {
			return fmt.Errorf("%s: there is a schedule %s already, at %s", s.Origin, s.Name, list[j].Origin)
		}
	}
	return nil
}

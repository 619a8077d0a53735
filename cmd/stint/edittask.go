package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/tasksfile"
	"stint/state"
)

// taskComment stands above a task that is given to a person to edit.
//
//go:embed help/edit.txt
var taskComment string

// A taskEdit is a task as it is given to a person to edit.
type taskEdit struct {
	*editing
	id     string
	fields []ledger.Pair // as they were shown
}

// editTask lets the user edit one task.
func (a *app) editTask(ctx context.Context, ref string) error {
	dir, err := a.editDir(ctx)
	if err != nil {
		return err
	}
	v, err := ask(ctx, a.callOrOpen, func(c *client.Client) (wire.TaskView, error) { return c.Task(ctx, ref) })
	if err != nil {
		return err
	}
	if v.Archived != "" {
		return usage("stint retry "+v.ID+", which brings it back", "task %s was archived, and cannot be edited there", v.ID)
	}
	r := editable(&v)
	t := &taskEdit{id: v.ID, fields: r.Fields}
	text, err := ledger.AppendSection([]byte(taskComment), r)
	if err != nil {
		return err
	}
	if t.editing, err = a.newEditing(dir, ".md", text); err != nil {
		return err
	}
	t.command += " " + v.ID
	return t.run(ctx, t.take)
}

// editable returns what is shown of a task, without what is unset.
func editable(v *wire.TaskView) *ledger.Record {
	spec, r := admission.SpecOf(&v.Task), &ledger.Record{Kind: ledger.KindTask, ID: v.ID}
	r.Add(state.KeyStatus, string(v.Status)).AddIf(state.KeyIsolation, v.Isolation).AddIf(state.KeyOrder, state.OrNone(int(v.Order))).
		AddIf(state.KeyMaxLimitWait, v.MaxLimitWait).AddIf(state.NativeKey(v.Agent), v.AgentSession)
	for _, key := range slices.Sorted(maps.Keys(v.Extra)) {
		r.AddIf(key, v.Extra[key])
	}
	for _, key := range task.EditableFields { // the prompt is the last one
		r.AddIf(key, task.FieldText(&spec, key))
	}
	return r
}

// take checks what the copy has become and saves what differs; again asks for another edit.
func (t *taskEdit) take(ctx context.Context, text []byte) (again bool, err error) {
	section, findings := t.parse(text)
	var r ledger.Record
	if section != nil {
		r = t.changes(section)
		if len(r.Fields) == 0 {
			return false, t.unchanged()
		}
		st, err := queue.FoldDir(ctx, t.dir)
		if err != nil {
			return false, t.kept(err)
		}
		findings = t.check(r, section, st.CheckNext)
		v, err := ask(ctx, t.app.callOrOpen, func(c *client.Client) (wire.TaskView, error) { return c.Task(ctx, t.id) })
		if err != nil {
			return false, t.kept(err)
		}
		shown, now := ledger.Record{Fields: t.fields}, editable(&v)
		for _, f := range r.Fields {
			was, _ := shown.Get(f.Key)
			if is, _ := now.Get(f.Key); is != was {
				return false, t.kept(fmt.Errorf("somebody else has changed %s of task %s meanwhile", f.Key, t.id))
			}
		}
	}
	if len(findings) > 0 {
		return t.choose(ctx, findings, false)
	}
	return false, t.append(ctx, &r)
}

// parse returns the section of the copy, or what is wrong with it. Lines are those of the copy.
func (t *taskEdit) parse(text []byte) (*ledger.Section, []task.Finding) {
	doc := ledger.Parse(text)
	var list []task.Finding
	wrong := func(line int, message string) { list = append(list, t.finding(line, message)) }
	for _, f := range doc.Findings {
		wrong(f.Line, f.Msg)
	}
	for i := range doc.Sections {
		if s := &doc.Sections[i]; i > 0 || s.Kind != ledger.KindTask || string(s.ID) != t.id || s.Seq != 0 {
			wrong(s.Line, "only task "+t.id+" can be edited here; edit the whole ledger with: stint edit")
		}
	}
	if len(doc.Sections) == 0 && len(list) == 0 {
		wrong(1, "the heading ## Task "+t.id+" is gone")
	}
	if len(list) > 0 {
		return nil, list
	}
	return &doc.Sections[0], nil
}

func (t *taskEdit) finding(line int, message string) task.Finding {
	return task.Finding{File: filepath.Base(t.file), Line: line, Message: message}
}

// changes returns a record of what differs from what was shown.
func (t *taskEdit) changes(s *ledger.Section) ledger.Record {
	r := ledger.Record{Kind: ledger.KindTask, ID: t.id}
	shown := ledger.Record{Fields: t.fields}
	now := s.Record()
	done := map[string]bool{}
	for _, f := range slices.Concat(now.Fields, t.fields) {
		value, _ := now.Get(f.Key) // a key that stands twice counts once, with its last value; one that is gone has none
		if old, _ := shown.Get(f.Key); !done[f.Key] && value != old {
			r.Add(f.Key, value)
		}
		done[f.Key] = true
	}
	return r
}

// check returns the first thing that keeps r, the changes that s has, from being taken over; nil if nothing does.
func (t *taskEdit) check(r ledger.Record, s *ledger.Section, check func(*ledger.Section) error) []task.Finding {
	r.Fields = slices.Clone(r.Fields)
	section, err := ledger.Encode(r.Add(ledger.KeyBy, ledger.ByHand))
	if err == nil {
		section.Seq = 0 // it has no number yet
		err = check(section)
	}
	if err == nil {
		return nil
	}
	line := s.Line
	if wrong, ok := errors.AsType[*state.RecordError](err); ok && s.Get(wrong.Key) != nil {
		line = s.LineOf(s.Get(wrong.Key))
	}
	return []task.Finding{t.finding(line, err.Error())}
}

// append puts the changes behind tasks.md as a section by hand.
func (t *taskEdit) append(ctx context.Context, r *ledger.Record) error {
	// As every change has it; and a section of equal text, in a buffer of old, is another one.
	r.Add(state.KeyUpdatedAt, state.FormatTime(time.Now()))
	for {
		now, err := tasksfile.ReadCopy(ctx, nil, t.dir, ledger.TaskFiles)
		if err != nil {
			return t.kept(err)
		}
		text, err := ledger.AppendSection(append(endLine(now.Data), '\n'), r)
		if err != nil {
			return t.kept(err)
		}
		text = append(text, '\n')
		before, _, err := statedir.Preview(t.dir, t.files, now.Data)
		if err != nil {
			return t.kept(err)
		}
		t.old = before.Findings
		plan, records, err := statedir.Preview(t.dir, t.files, text)
		if err != nil {
			return t.kept(err)
		}
		if !slices.ContainsFunc(records, func(o ledger.Record) bool { return o.ID == r.ID }) {
			t.app.showFindings(plan.Findings)
			return t.kept(errors.New("the section would have no effect in tasks.md as it is; fix that first"))
		}
		plan.Notices = slices.DeleteFunc(plan.Notices, func(n string) bool { return !strings.Contains(n, r.ID) })
		if changed, err := t.put(ctx, now, text, records, plan); !changed {
			return err
		}
	}
}

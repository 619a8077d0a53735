package api

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/memory"
	"stint/session"
	"stint/state"
	"stint/state/jobs"
)

// The fake master's answers to who only reads.

func (f *fakeMaster) Runs(ctx context.Context, ref string) ([]task.TaskRun, error) {
	t, err := f.Task(ctx, ref)
	if err != nil || t.RunID == "" {
		return nil, err
	}
	return []task.TaskRun{{RunID: t.RunID, Number: 1, Attempt: 1, RunDir: f.RunDir(t.RunID), Kept: true}}, nil
}

func (f *fakeMaster) Files(ctx context.Context, ref, run string) (task.TaskFiles, error) {
	t, err := f.Task(ctx, ref)
	list := task.TaskFiles{Inputs: []task.TaskFile{}, Outputs: []task.TaskFile{}}
	for _, out := range t.OutputFiles {
		list.Outputs = append(list.Outputs, task.TaskFile{Name: out.Path, Size: out.Size, RunID: t.RunID + run})
	}
	return list, err
}

func (f *fakeMaster) OpenFile(ctx context.Context, ref, _, name string) (task.Content, error) {
	t, err := f.Task(ctx, ref)
	if err != nil {
		return task.Content{}, err
	}
	if !slices.ContainsFunc(t.OutputFiles, func(out state.OutputFile) bool { return out.Path == name }) {
		return task.Content{}, &task.Error{Code: task.CodeNotFound, Message: "no file " + name}
	}
	file, fi, err := rundir.OpenCollected(f.RunDir(t.RunID), name)
	if err != nil {
		return task.Content{}, &task.Error{Code: task.CodeNotFound, Message: err.Error()}
	}
	return task.Content{ReadSeeker: file, Modified: fi.ModTime(), Close: file.Close}, nil
}

func (f *fakeMaster) Accounts() []state.AccountUse {
	return []state.AccountUse{{Account: state.Account{Name: "codex", Hold: true, Reason: "auth"}, Agent: "codex", Waiting: 2}}
}

func (f *fakeMaster) Usage(_ context.Context, q task.UsageQuery) ([]task.UsageRow, error) {
	key := strings.Join([]string{q.By, q.Since.UTC().String(), q.Until.UTC().String(), q.Location.String()}, ",")
	return []task.UsageRow{{Key: key, Runs: 1}}, f.err
}

func (f *fakeMaster) SearchMemory(_ context.Context, q task.MemoryQuery) (memory.Result, error) {
	f.mu.Lock()
	f.run = q.FromRun
	f.mu.Unlock()
	return memory.Result{Hits: []memory.Hit{{Path: "MEMORY.md", Text: q.Prompt}}, Notes: 1}, f.err
}

// Session reads a page of a transcript from a file beside the runs.
func (f *fakeMaster) Session(ref string, before int64, n int) (state.Session, session.Page, error) {
	sessions := f.Sessions()
	i := slices.IndexFunc(sessions, func(s state.Session) bool { return s.Key == ref || s.ID == ref })
	if i < 0 {
		return state.Session{}, session.Page{}, &task.Error{Code: task.CodeNotFound, Message: "no session " + ref}
	}
	s := sessions[i]
	if n == 0 {
		return s, session.Page{Messages: []session.Message{{Role: "user", Text: "hello"}}}, nil
	}
	p, err := session.ReadPage(filepath.Join(f.runs, s.ID+".jsonl"), before, n)
	if err != nil && !os.IsNotExist(err) {
		err = task.BadCursor(err.Error())
	}
	return s, p, err
}

func (f *fakeMaster) Findings() []task.Finding { return slices.Clone(f.findings) }

func (f *fakeMaster) Compact(context.Context, time.Duration, wire.CompactBody) (wire.Compacted, error) {
	return wire.Compacted{}, f.err
}

func (f *fakeMaster) Prune(context.Context, time.Duration, bool) (task.Pruned, error) {
	return task.Pruned{Removed: []task.Leftover{}}, f.err
}

func (f *fakeMaster) Reconcile(context.Context, bool) (task.Reconciled, error) {
	return task.Reconciled{Notices: []string{}, Findings: f.Findings()}, f.err
}

func (f *fakeMaster) Schedules(context.Context) ([]task.Schedule, error) {
	return []task.Schedule{{Name: "nightly", Cron: "@daily", Next: []time.Time{}, Open: []time.Time{}}}, f.err
}

func (f *fakeMaster) JobRuns(context.Context, string, int) ([]task.JobRun, error) { return nil, f.err }

func (f *fakeMaster) ActOnSchedule(_ context.Context, name, act string, at time.Time) (task.Schedule, error) {
	return task.Schedule{Name: name, Paused: act == "pause", Open: []time.Time{at}}, f.err
}

func (f *fakeMaster) Call() (end func()) { return func() {} }

// fakeJobs has one due job, j1.
// fakeFleet has one instance, shop, on the server s1.
type fakeFleet struct{}

var fakeInstance = task.Instance{ID: "shop", Server: "s1", Health: "running"}

func (fakeFleet) Instances() []task.Instance { return []task.Instance{fakeInstance} }

func (fakeFleet) Instance(id string) (in task.Instance, err error) {
	if id != "shop" {
		return in, &task.Error{Code: task.CodeNotFound, Message: "there is no instance " + id}
	}
	return fakeInstance, nil
}

func (f fakeFleet) Claim(_ context.Context, id, user, tgUser string) (task.Instance, error) {
	in, err := f.Instance(id)
	in.User, in.TgUser = user, tgUser
	return in, err
}

func (f fakeFleet) SetBot(_ context.Context, id, _ string) (task.Instance, error) {
	in, err := f.Instance(id)
	in.BotRef = "env:BOT"
	return in, err
}

func (f fakeFleet) Act(_ context.Context, id, act string, _ bool) (string, error) {
	_, err := f.Instance(id)
	return act, err
}

func (fakeFleet) Servers() ([]task.Server, error) {
	return []task.Server{{ID: "s1", SSH: "s1", Instances: 1}}, nil
}

func (fakeFleet) Metrics(server string, most int) ([]task.ServerMetric, error) {
	return make([]task.ServerMetric, most), nil
}

func (fakeFleet) Usage(instance, _ string) ([]task.UsageDay, error) {
	return []task.UsageDay{{Instance: instance}}, nil
}

type fakeJobs struct{}

func (fakeJobs) Enqueue(_ context.Context, spec jobs.Spec) (jobs.Job, bool, error) {
	return jobs.Job{ID: "j1", Spec: spec, Status: jobs.Queued}, spec.IdempotencyKey == "", nil
}

func (fakeJobs) Pull(_ context.Context, p jobs.Pull) ([]jobs.Job, error) {
	return []jobs.Job{{ID: "j1", Status: jobs.Running, WorkerID: p.WorkerID}}, nil
}

func (fakeJobs) Ack(_ context.Context, id string, a jobs.Ack) (jobs.Job, error) {
	return jobs.Job{ID: id, Status: jobs.Succeeded, AuditEventID: a.AuditEventID}, nil
}

func (fakeJobs) Fail(_ context.Context, id string, f jobs.Fail) (jobs.Job, error) {
	return jobs.Job{ID: id, Status: jobs.DeadLetter, LastError: &f.Error}, nil
}

func (fakeJobs) Retry(_ context.Context, id string) (jobs.Job, error) {
	return jobs.Job{ID: id, Status: jobs.Queued}, nil
}

func (fakeJobs) Job(ref string) (jobs.Job, error) {
	if ref != "j1" && ref != "1" {
		return jobs.Job{}, &task.Error{Code: task.CodeNotFound, Message: "there is no job " + ref}
	}
	return jobs.Job{ID: "j1", Status: jobs.Queued}, nil
}

func (fakeJobs) List(f jobs.Filter) []jobs.Job {
	return slices.Repeat([]jobs.Job{{ID: "j1", Status: f.Status}}, min(1, f.Limit))
}

func (fakeJobs) Metrics() jobs.Metrics { return jobs.Metrics{Due: 2, DeadLetters: 1} }

func (fakeJobs) View(f func(*jobs.State)) { f(jobs.New()) }

package queue

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/store"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/lock"
	"stint/ledger/plain"
	"stint/ledger/reconcile"
	"stint/session"
	"stint/state"
	"stint/state/fold"
)

// Open locks the state directory, replays the journal and takes over what was edited
// meanwhile. The error is an *Error where a user can do something about it.
func Open(cfg Config) (*Store, error) {
	const tempAge = time.Hour // from then on a temporary file is what a killed writer has left
	cfg = cfg.WithDefaults()
	unlock, err := Lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.StateDir, filepath.Dir(cfg.HeartbeatPath)} {
		if err := durable.RemoveTemps(dir, time.Now().Add(-tempAge)); err != nil { // by the clock of the files
			cfg.Log.Warn("a temporary file was not removed", "error", err)
		}
	}
	s, err := OpenLocked(cfg)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	s.unlock = unlock
	return s, nil
}

// Lock makes the state directory, if need be, and locks it until unlock is called. The error
// has CodeBusy if somebody else has locked it.
func Lock(dir string) (unlock func() error, err error) {
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	unlock, err = lock.Dir(dir)
	switch {
	case errors.Is(err, lock.ErrLocked):
		return nil, &task.Error{Code: task.CodeBusy, Message: err.Error(), Hint: "use that one, or end it"}
	case err != nil:
		return nil, &task.Error{Code: task.CodeInvalid, Message: fmt.Sprintf("the state directory cannot be locked: %v", err), Hint: "stint doctor"}
	}
	return unlock, nil
}

// OpenLocked is Open of a state directory whose lock the caller holds, and keeps.
func OpenLocked(cfg Config) (*Store, error) {
	cfg = cfg.WithDefaults()
	s := &Store{Config: cfg, Home: task.WithoutLinks(cfg.StateDir), orphans: map[string]string{}, life: life{lastCall: cfg.Now()}}
	s.hooks = Hooks{Committed: func(*journal.Commit) {}, Taken: func(string) {}, Wake: func() {}} // Changed may be nil in the fold
	for _, agent := range slices.Sorted(maps.Keys(cfg.Agents)) {
		s.defaults = append(s.defaults, state.AccountConfig{ID: agent, Tool: agent})
	}
	view := func(f func(*fold.State)) { s.View(f) }
	s.Store = store.New(store.Options[*fold.State]{
		Ledger: journal.Options{
			Dir: cfg.StateDir, FS: cfg.FS, Watch: !cfg.Unwatched, Now: cfg.Now,
			Rules: EditRules(view), Notify: s.notice, Observe: s.committed,
			OnDelete: func(gone map[string]bool) (records []ledger.Record) {
				view(func(st *fold.State) { records = s.deleted(st, gone) })
				return records
			},
		},
		New:   func(read journal.Reader) *fold.State { return fold.New(read) },
		Apply: s.apply,
		Ready: s.ready,
		Code: func(st *fold.State, c *plain.Coder) {
			st.Code(c)
			plain.List(c, &s.rejected, func(text *string) { c.Texts(text) })
			plain.Map(c, s.orphans, func(id, run *string) { c.Texts(id, run) })
		},
	})
	if err := s.Store.Open(); err != nil {
		return nil, err
	}
	s.openSessions()
	return s, nil
}

// prepareDir makes the state directory and refuses one that others own or can read.
func prepareDir(dir string) error {
	fail := func(what string, hint string) error {
		return &task.Error{Code: task.CodeInvalid, Message: fmt.Sprintf("the state directory %s %s", dir, what), Hint: hint}
	}
	if err := durable.MkdirAll(durable.OS, dir); err != nil {
		return fail(fmt.Sprintf("cannot be made: %v", err), "set STINT_STATE_DIR to a directory of your own")
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return fail(fmt.Sprintf("cannot be read: %v", err), "set STINT_STATE_DIR to a directory of your own")
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fail(fmt.Sprintf("belongs to user %d, not to you", st.Uid), "set STINT_STATE_DIR to a directory of your own")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, durable.DirMode); err != nil {
			return fail("can be read by others", "chmod 700 "+dir)
		}
	}
	for _, sub := range []string{"runs", "sessions"} {
		if err := durable.MkdirAll(durable.OS, filepath.Join(dir, sub)); err != nil {
			return fail(fmt.Sprintf("cannot be written: %v", err), "set STINT_STATE_DIR to a directory of your own")
		}
	}
	// Prettier, which many editors run when they save, must leave tasks.md alone: it rewrites
	// prompts. A new directory gets the file once; whoever deletes it wants it so.
	if _, err := os.Lstat(filepath.Join(dir, "format")); err == nil {
		return nil
	}
	if f, err := durable.Open(filepath.Join(dir, ".prettierrc"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode); err == nil {
		_, _ = f.WriteString(`{"requirePragma": true}` + "\n") // a comfort: what a formatter changes is quarantined anyway
		_ = f.Close()
	}
	return nil
}

// MakeDir makes a directory below runs or checks. Because no task could begin, another thing in the place of
// these two is moved aside, and their permissions are given back.
func (s *Store) MakeDir(path string) error {
	if _, err := os.Stat(s.Config.StateDir); err != nil || s.IsGone() {
		return cmp.Or(err, s.Err()) // it is never made anew
	}
	err := os.MkdirAll(path, durable.DirMode)
	if !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	name, _ := filepath.Rel(s.Config.StateDir, path)
	name, _, _ = strings.Cut(name, string(filepath.Separator))
	top := filepath.Join(s.Config.StateDir, name)
	fi, lerr := os.Lstat(top)
	switch {
	case lerr == nil && !fi.IsDir():
		aside := top + ".foreign-" + s.Config.Now().UTC().Format("20060102T150405.000000000Z")
		if err := os.Rename(top, aside); err != nil {
			return err
		}
		s.Config.Log.Warn(name+" was no directory", "moved to", filepath.Base(aside))
	case lerr == nil && fi.Mode().Perm() != durable.DirMode && os.Chmod(top, durable.DirMode) == nil:
		s.Config.Log.Warn(name+" was closed to its owner", "permissions", fi.Mode().Perm().String())
	default:
		return err
	}
	return os.MkdirAll(path, durable.DirMode)
}

// openSessions opens sessions.json, which has the sessions of the fold.
func (s *Store) openSessions() {
	s.sessions = session.Open(session.Options{
		Dir: s.Config.StateDir, Interval: time.Second, Gone: s.IsGone,
		List:    func() []state.Session { return Read(s, (*fold.State).Sessions) },
		OnError: func(err error) { s.Trouble("sessions.json could not be written", err) },
		OnAside: func(aside string) {
			s.Config.Log.Warn("sessions.json was not a regular file; it is written anew from the ledger", "renamed_to", aside)
		},
	})
}

// EditRules decide about what a person has written. view calls its argument with the fold.
func EditRules(view func(func(*fold.State))) reconcile.Rules {
	return reconcile.Rules{
		Begin: func() (check func(*ledger.Section) error, implied func(*ledger.Record) []ledger.Pair) {
			var save *fold.Save
			view(func(st *fold.State) { save = st.NewSave() })
			check = func(sec *ledger.Section) (err error) {
				view(func(*fold.State) { err = save.Check(sec) })
				return err
			}
			implied = func(r *ledger.Record) (fields []ledger.Pair) {
				view(func(*fold.State) { fields = save.ImpliedChanges(r) })
				return fields
			}
			return check, implied
		},
		CheckBatch: func(list []*ledger.Section) (bad map[int]error) {
			view(func(st *fold.State) { bad = st.CheckTogether(list) })
			return bad
		},
		IsBusy: func(name string) (busy bool) {
			id, _ := strings.CutPrefix(name, string(ledger.KindTask)+" ")
			view(func(st *fold.State) {
				t, ok := st.Peek(id)
				busy = ok && t.Status == state.Running
			})
			return busy
		},
		Guarded:    []string{state.KeyPrompt, state.KeyVerifyCommand, state.KeyOnFailure, state.KeyOnIssue, state.KeyOutputPolicy}, // texts that a formatter may spoil
		KeepOnCopy: state.Copied,
	}
}

// deleted returns the records that say what becomes of tasks whose sections a person has
// deleted: those that have not ended are canceled, the others are no longer listed.
func (s *Store) deleted(st *fold.State, gone map[string]bool) (records []ledger.Record) {
	canceled, hidden, back := st.Gone(gone)
	now := state.FormatTime(s.Config.Now())
	for _, id := range canceled {
		r := ledger.Record{Kind: ledger.KindTask, ID: id}
		r.Add(state.KeyStatus, string(state.Canceled)).Add(state.KeyReason, string(state.ClassCanceled))
		records = append(records, *r.Add(state.KeyBy, ledger.ByHand).Add(state.KeyUpdatedAt, now))
	}
	if len(hidden)+len(back) > 0 {
		r := ledger.Record{Kind: ledger.KindControl, ID: fold.ControlDeleted}
		r.AddIf(fold.KeyTasks, strings.Join(hidden, "\n")).AddIf(fold.KeyBack, strings.Join(back, "\n"))
		records = append(records, *r.Add(state.KeyBy, ledger.ByHand).Add(state.KeyUpdatedAt, now))
	}
	if len(hidden) > 0 {
		s.Config.Log.Info(fmt.Sprintf("%s: %d finished tasks were deleted by hand and are no longer listed", ledger.TasksName, len(hidden)))
	}
	return records
}

// notice passes on what the ledger reports about edits and findings.
func (s *Store) notice(n ledger.Notice) {
	switch {
	case n.Damage:
		s.Config.Log.Warn(n.Text)
		s.mu.Lock()
		s.lastErr = n.Text
		s.mu.Unlock()
	case n.Finding != nil:
		s.Config.Log.Warn(n.Text)
	default:
		s.Config.Log.Info(n.Text)
	}
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"stint/ledger"
	"stint/state"
)

// A Finding is something that is wrong in a file of the ledger.
type Finding struct {
	File    string `json:"file" doc:"Name of the file" example:"tasks.md"`
	Line    int    `json:"line" doc:"Line number, from 1; 0: the file as a whole" example:"812"`
	Message string `json:"message" doc:"What is wrong" example:"unknown status \"qeued\"; did you mean queued?"`
}

// String gives "tasks.md:812: message".
func (f Finding) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// A TakeOver says what taking over tasks.md did, or would do.
type TakeOver struct {
	Notices  []string  `json:"notices" doc:"What a person should know, without the findings" example:"tasks.md:15: Task mine: written by hand"`
	Findings []Finding `json:"findings" doc:"What is wrong in tasks.md now"`
	Adopted  int       `json:"adopted" doc:"Number of records that were made of a person's edits" example:"1"`
	Missing  int       `json:"missing" doc:"Number of records that a stale buffer had dropped and that were appended again" example:"0"`
	Held     int       `json:"held" doc:"Number of edits that are held because a formatter may have made them" example:"0"`
}

// Findings gives what is wrong in the ledger at present.
func (c *Coordinator) Findings() []Finding {
	list := findingsOf(c.ledger.Findings())
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(list, homeless(c.state, c.cfg.WorkspaceRoot)...)
}

// homeless gives the tasks that wait for a workspace.
func homeless(s *state.State, root string) (list []Finding) {
	for _, id := range s.Homeless(root) {
		list = append(list, Finding{File: ledger.TasksName, Message: "task " + id + ": " + state.NoWorkspace})
	}
	return list
}

// Reconcile takes over tasks.md now, without waiting for the watch to see that it
// was saved. With accept it also takes what is held as the work of a formatter.
func (c *Coordinator) Reconcile(ctx context.Context, accept bool) (TakeOver, error) {
	defer c.call()()
	r, err := c.ledger.Reconcile(ctx, accept)
	var refused *ledger.RefusedError
	switch {
	case errors.Is(err, ledger.ErrClosed):
		return TakeOver{}, c.stopped()
	case errors.As(err, &refused):
		return TakeOver{}, &Error{Code: CodeConflict, Message: refused.Why, Hint: refused.Hint}
	case err != nil:
		return TakeOver{}, err
	}
	t := takeOverOf(r)
	t.Findings = c.Findings()
	return t, nil
}

// Preview says what a master of this state directory would do if tasks.md were
// these bytes. It reads the journal and changes nothing; a master may be at work.
// The records are those that it would make of edits; they have no seq yet.
func Preview(dir string, tasks []byte) (TakeOver, []ledger.Record, error) {
	st, err := foldForEdit(dir)
	if err != nil {
		return TakeOver{}, nil, err
	}
	r, err := ledger.Preview(editOptions(dir, st), tasks)
	if err != nil {
		return TakeOver{}, nil, err
	}
	return takeOverOf(r), r.Records, nil
}

// EditCheck gives what says whether a record that a person wrote can be taken over,
// as the journal of a state directory stands now. It reads the journal and needs no
// lock. The errors are those of state.Check.
func EditCheck(dir string) (func(*ledger.Section) error, error) {
	st, err := foldForEdit(dir)
	if err != nil {
		return nil, err
	}
	return st.CheckNext, nil
}

// foldForEdit is fold; where nothing was ever written, there are no tasks.
func foldForEdit(dir string) (*state.State, error) {
	st, err := fold(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return state.New(nil), nil
	}
	return st, err
}

// editOptions are those of the ledger that decide about edits.
func editOptions(dir string, st *state.State) ledger.Options {
	begin := func() (func(*ledger.Section) error, func(*ledger.Record) []ledger.Pair) {
		save := st.NewSave()
		return save.Check, save.LeftBehind
	}
	return ledger.Options{Dir: dir, Begin: begin, Together: st.CheckTogether, Guarded: guardedKeys, Copied: state.Copied}
}

func takeOverOf(r ledger.Report) TakeOver {
	t := TakeOver{Notices: []string{}, Findings: findingsOf(r.Findings), Adopted: len(r.Records), Missing: r.Missing, Held: r.Held}
	for _, n := range r.Notices {
		if n.Finding == nil {
			t.Notices = append(t.Notices, n.Text)
		}
	}
	return t
}

func findingsOf(list []*ledger.SyntaxError) []Finding {
	out := make([]Finding, len(list))
	for i, f := range list {
		out[i] = Finding{File: f.File, Line: f.Line, Message: f.Msg}
	}
	return out
}

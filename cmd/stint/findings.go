package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// maxWarn bounds how long a command that was asked for something else looks for findings.
const maxWarn = 2 * time.Second

// warnFindings prints on stderr what is wrong in the ledger: a section that waits for its repair looks forgotten.
func (a *app) warnFindings(ctx context.Context) {
	if n := a.notice(); a.quiet || n != nil && n.Findings == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxWarn)
	defer cancel()
	out, _ := fetch[wire.FindingsBody](ctx, a.callRunning, http.MethodGet, "/v1/ledger/findings", nil) // without a master there is nobody to ask
	switch n := len(out.Findings); {
	case n == 1:
		a.hint("stint: %s\n", escapeText(oneLine(out.Findings[0].String())))
	case n > 1:
		a.hint("stint: the ledger has %s; to check all files: stint fsck\n", count(n, "finding"))
	}
}

// byHand returns which fields of a task a person has set last, from its records: "priority, prompt (seq 12)".
// An edit that a compaction has merged with what others wrote is not known any more.
func byHand(raw []byte) string {
	told := map[string]bool{ledger.KeyBy: true, state.KeyUpdatedAt: true} // by a newer record, or of no interest
	var parts []string
	for _, s := range slices.Backward(ledger.Parse(raw).Sections) {
		var own []string
		for _, f := range s.Fields {
			if key := string(f.Key); !told[key] && !ledger.IsEngineKey(key) {
				own, told[key] = append(own, key), true
			}
		}
		isEdit := s.Value(ledger.KeyBy) == ledger.ByHand && s.Get(ledger.KeyAdopts) != nil // what compaction merged has no adopts
		if isEdit && len(own) > 0 {
			parts = append(parts, fmt.Sprintf("%s (seq %d)", strings.Join(own, ", "), s.Seq))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "; ")
}

// warnConfig warns on stderr, once, that the master that was asked last was started with
// another configuration than the file has now, or with other settings than this shell has.
func (a *app) warnConfig(ctx context.Context) {
	n := a.notice()
	cfg, err := a.base()
	if n == nil || err != nil || a.quiet || a.warnedConfig {
		return
	}
	dir, _ := a.state() // it is known: the master was asked
	if _, err := newAccountsFile(dir).read(); err != nil {
		message, try := explain(err)
		a.hint("stint: warning: %s\n  try: %s\n", message, try)
	}
	_, used, _ := strings.Cut(n.Config, " ")
	var unused []string
	for _, setting := range cfg.masterSettings() {
		if name, _, _ := strings.Cut(setting, "="); !slices.Contains(strings.Fields(used), setting) {
			unused = append(unused, name)
		}
	}
	if n.Config == "" || len(unused) == 0 && !a.isStale(n) {
		return
	}
	a.warnedConfig = true
	ctx, cancel := context.WithTimeout(ctx, maxWarn)
	defer cancel()
	h, err := a.health(ctx)
	if err != nil {
		return // who is gone uses no configuration
	}
	if a.isStale(n) {
		a.hint("stint: the master (pid %d) %s: %s\n", h.PID, a.staleText(&h), restart(h.Background))
	}
	if len(unused) > 0 {
		a.hint("stint: %s of this shell has no effect: the master (pid %d) was started without it; to use it: %s\n", strings.Join(unused, ", "), h.PID, restart(h.Background))
	}
}

// isStale reports whether a master was started with another configuration.
func (a *app) isStale(n *wire.Notice) bool {
	cfg, err := a.base()
	file, _, _ := strings.Cut(n.Config, " ")
	return err == nil && file != "" && file != cfg.digest()
}

func (a *app) staleText(h *task.Health) string {
	cfg, _ := a.base() // it is known: who examines has asked for it
	return fmt.Sprintf("still uses the configuration of %s; to use %s as it is now", localTime(h.Start), cfg.file)
}

// restart returns the command that ends a master after its runs; the next one starts anew.
func restart(background bool) string {
	return map[bool]string{true: "stint serve --stop", false: "stint serve --stop, then stint serve"}[background]
}

// askAccounts asks a master for its accounts.
func askAccounts(ctx context.Context, find finder) ([]state.AccountUse, error) {
	out, err := fetch[wire.AccountsBody](ctx, find, http.MethodGet, "/v1/accounts", nil)
	return out.Accounts, err
}

// warnAccounts prints on stderr, once, which accounts keep some of these tasks from starting.
func (a *app) warnAccounts(ctx context.Context, views []wire.TaskView) {
	if !slices.ContainsFunc(views, func(v wire.TaskView) bool { return v.Status == state.Queued }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxWarn)
	defer cancel()
	list, _ := askAccounts(ctx, a.callRunning) // the tasks are what was asked for
	for _, u := range list {
		waits := func(v wire.TaskView) bool { return v.Status == state.Queued && v.AccountName() == u.Name }
		if u.Why != "" && !slices.Contains(a.told, u.Name) && slices.ContainsFunc(views, waits) {
			a.hint("stint: %s\n", escapeText(oneLine(u.Why)))
			a.told = append(a.told, u.Name)
		}
	}
}

// warnOtherPlace warns on stderr that the session of new tasks had another agent or directory so
// far: the one remembers nothing of it, and what the agent remembers is about the other.
func (a *app) warnOtherPlace(ctx context.Context, views []wire.TaskView) {
	v := &views[0]
	if a.quiet || v.SessionKey == "" || strings.Contains(v.SessionKey, ":") {
		return
	}
	list, _ := a.listRunning(ctx, state.Filter{Session: v.SessionKey, Limit: len(views) + 1}) // the tasks are queued, whatever it answers
	n := len(list)
	if n > 0 && list[n-1].Agent != v.Agent {
		a.hint("stint: session %s had %s as its agent so far; %s does not know that conversation\n", escapeText(v.SessionKey), escapeText(list[n-1].Agent), escapeText(v.Agent))
	}
	if n > 0 && list[n-1].Workspace != v.Workspace && list[n-1].Workspace != "" {
		a.hint("stint: session %s has worked in %s so far; this task runs in %s\n", escapeText(v.SessionKey), escapeText(list[n-1].Workspace), escapeText(v.Workspace))
	}
}

// retryTask queues a task again, and says what that does to its account, or why the account lets it wait.
func (a *app) retryTask(c *client.Client, ctx context.Context, ref string) (wire.TaskView, error) {
	before, _ := askAccounts(ctx, a.callRunning) // for the message alone
	view, err := c.Act(ctx, ref, "retry")
	if err != nil {
		return view, err
	}
	if u := find(before, func(u *state.AccountUse) bool { return u.Name == view.AccountName() }); u != nil && u.Hold {
		a.hint("stint: the hold of account %s is lifted (%s)\n", u.Name, escapeText(oneLine(u.Reason)))
	}
	a.warnAccounts(ctx, []wire.TaskView{view})
	return view, nil
}

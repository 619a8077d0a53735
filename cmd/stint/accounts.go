package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/state"
)

// tellAccounts says on stderr which accounts keep some of these tasks from starting.
func (a *app) tellAccounts(ctx context.Context, views []wire.TaskView) {
	waits := func(account string) bool {
		return slices.ContainsFunc(views, func(v wire.TaskView) bool { return v.Status == state.Queued && v.AccountName() == account })
	}
	if !slices.ContainsFunc(views, func(v wire.TaskView) bool { return v.Status == state.Queued }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxTell)
	defer cancel()
	_ = a.callRunning(func(c *client.Client) error { // the list is what was asked for
		list, err := c.Accounts(ctx)
		for _, u := range list {
			if text := accountText(&u.Account, time.Now()); text != "" && waits(u.Name) {
				a.hint("stint: %s\n", escapeText(oneLine(text)))
			}
		}
		return err
	})
}

// accountText says what keeps the tasks of an account from starting; "" if nothing does.
func accountText(u *state.Account, now time.Time) string {
	switch {
	case u.IsMissing():
		return because(fmt.Sprintf("account %s is on hold", u.Name), u.Reason) + "; its tasks go on by themselves when the program is back"
	case u.Hold:
		return because(fmt.Sprintf("account %s is on hold", u.Name), u.Reason) + "; to lift it: stint retry ID of a task that it stopped"
	case u.CoolUntil.After(now):
		return because(fmt.Sprintf("account %s cools down until %s", u.Name, localTime(u.CoolUntil)), u.Reason)
	}
	return ""
}

// retryTask queues a task again, and says what that does to its account, or for how long
// the account lets it wait.
func (a *app) retryTask(c *client.Client, ctx context.Context, ref string) (wire.TaskView, error) {
	before, _ := c.Accounts(ctx) // for the message alone
	view, err := c.Retry(ctx, ref)
	i := slices.IndexFunc(before, func(u state.AccountUse) bool { return u.Name == view.AccountName() })
	if err != nil || i < 0 {
		return view, err
	}
	u := before[i].Account
	if u.Hold {
		a.hint("stint: the hold of account %s is lifted (%s)\n", u.Name, escapeText(oneLine(u.Reason)))
		u.Hold, u.Reason = false, ""
	}
	waits := "; the task waits until then"
	if len(view.Fallback) > 0 || view.MaxLimitWait != "" {
		waits = "" // another agent may take it over, or it may end
	}
	if text := accountText(&u, time.Now()); text != "" {
		a.hint("stint: %s%s\n", escapeText(oneLine(text)), waits)
	}
	return view, nil
}

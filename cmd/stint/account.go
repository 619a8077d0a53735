package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stint/coordinator/agent"
	"stint/coordinator/api/client"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) accountCommand() *cobra.Command {
	return group(command("account", "accounts of agents: logins, keys, and how many tasks use each", nil, nil),
		a.noRun(a.accountAddCommand()), a.accountLsCommand(), a.accountShowCommand(), a.noRun(a.accountLoginCommand()),
		a.accountAct("enable", "let tasks use an account: ends disable, hold and cool-down"),
		a.accountAct("disable", "let no more tasks start with an account"),
		a.noRun(a.accountLimitsCommand()), a.noRun(a.accountRmCommand()))
}

// accountFlags are the options that set what accounts.toml has of an account.
type accountFlags struct {
	account
	variables []string
}

func (f *accountFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.ID, "id", "", "`id` of the account; without it, TOOL-NAME")
	c.Flags().StringVar(&f.Tool, "tool", "", "its `agent`: "+strings.Join(agentNames, ", "))
	c.Flags().StringVar(&f.Title, "name", "", "its `name`, which no other account of the agent has")
	c.Flags().StringVar(&f.GroupName, "group-name", "", "free `text`")
	c.Flags().StringArrayVar(&f.variables, "env", nil, "`KEY=VALUE` for its agent; may be given again")
	c.Flags().StringVar(&f.envFrom, "env-from", "", "`file` with lines of KEY=VALUE, which only you can read")
	c.Flags().StringVar(&f.CredRef, "cred-ref", "", "`file` with its login (JSON) or its key (one line), which only you can read")
	c.Flags().BoolVar(&f.Dangerous, "dangerous", false, "an agent of it may run without a guard")
	f.addLimits(c)
}

func (f *accountFlags) addLimits(c *cobra.Command) {
	c.Flags().IntVar(&f.Max, "max", 0, "`number` of its tasks that may run at the same time")
	c.Flags().StringVar(&f.Reserve, "reserve", "", "`share` of each window of its quota that is kept for you: 20%")
	c.Flags().StringVar(&f.Budget, "budget", "", "`amount` that it may spend in a day: 10usd, 2Mtok, 3h, or several")
	c.Flags().StringVar(&f.Hours, "hours", "", "`times` when queued tasks may start: 22:00-07:00; empty: always")
}

// values returns the keys that options of a command have set, as TOML.
func (f *accountFlags) values(c *cobra.Command) (map[string]string, error) {
	f.env = map[string]string{}
	for _, kv := range f.variables {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !variableName().MatchString(name) {
			return nil, usage("stint account add --env KEY=VALUE", "--env %s is not KEY=VALUE, with the name of a variable before the =", clip(name, 40))
		}
		f.env[name] = value
	}
	for _, path := range []*string{&f.envFrom, &f.CredRef} {
		full, err := expandHome(*path)
		if err == nil && full != "" {
			full, err = filepath.Abs(full)
		}
		if *path = full; err != nil {
			return nil, err
		}
	}
	values, fields := map[string]string{}, f.fields()
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		key := strings.ReplaceAll(flag.Name, "-", "_")
		if field := fields[key]; field != nil && flag.Changed {
			values[key] = tomlText(reflect.ValueOf(field).Elem().Interface())
		}
	})
	return values, nil
}

func (a *app) accountAddCommand() *cobra.Command {
	var f accountFlags
	c := command("add [OPTIONS] --tool AGENT --name NAME", "add an account of an agent", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if f.Tool == "" || f.Title == "" && f.ID == "" {
			return usage("stint account add --tool codex --name work", "stint account add needs --tool and --name")
		}
		id, credRef := cmp.Or(f.ID, f.Tool+"-"+f.Title), f.CredRef
		values, err := f.values(c)
		if a.shared && err == nil {
			return a.onShared(c, func(ctx context.Context, q *shared.Queue) error {
				err := q.AddAccount(ctx, shared.Account{ID: id, Tool: f.Tool, GroupName: f.GroupName, Max: f.Max, Env: f.env, CredRef: credRef})
				if err == nil {
					err = printText(a.stdout, "added "+id)
				}
				return err
			})
		}
		dir, wrong := a.ownState()
		if err = cmp.Or(err, wrong); err != nil {
			return err
		}
		file := newAccountsFile(dir)
		if file.find(id) != nil {
			return usage("stint account set-limits "+id+", or edit "+file.path, "there is an account %s already", id)
		}
		if err := file.change(c.Context(), id, values); err != nil {
			return err
		}
		added := file.find(id)
		home, err := added.home()
		if err == nil {
			err = printText(a.stdout, "added "+id)
		}
		if err != nil || home == "" {
			return err
		}
		a.hint("stint: its home is %s: settings of %s go there\n", home, added.Tool)
		if added.CredRef == "" && added.envFrom == "" && len(added.env) == 0 {
			a.hint("  try: stint account login %s\n", id)
		}
		return nil
	})
	f.add(c)
	complete(c, "tool", func() []string { return cliNames })
	return a.withShared(c, sharedAccount, "env-from", "dangerous", "reserve", "budget", "hours")
}

func (a *app) accountLimitsCommand() *cobra.Command {
	var f accountFlags
	c := command("set-limits [OPTIONS] ID", "change what bounds the use of an account", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		values, err := f.values(c)
		if err != nil {
			return err
		}
		if len(values) == 0 {
			return usage("stint account set-limits --help", "stint account set-limits does not say what to change")
		}
		if a.shared {
			return a.onShared(c, func(ctx context.Context, q *shared.Queue) error { return q.SetAccount(ctx, args[0], nil, f.Max) })
		}
		file, _, err := a.findAccount(args[0])
		if err == nil {
			err = file.change(c.Context(), args[0], values)
		}
		return err
	})
	f.addLimits(c)
	return a.withShared(c, sharedAccount, "reserve", "budget", "hours")
}

func (a *app) accountRmCommand() *cobra.Command {
	return command("rm ID", "remove an account; its home stays", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		id := args[0]
		file, found, err := a.findAccount(id)
		if err != nil {
			return err
		}
		if !found.written {
			return usage("stint account disable "+id, "%s is the account of your own login; it can only be disabled", id)
		}
		list, err := askAccounts(c.Context(), a.callRunning)
		use := find(list, func(u *state.AccountUse) bool { return u.Name == id })
		if err != nil && !errors.Is(err, client.ErrNoMaster) { // without one nothing runs
			return err
		}
		if use != nil && use.Running > 0 {
			return &cliError{code: exitBusy, message: count(use.Running, "task") + " of account " + id + " run", try: "stint account disable " + id + ", and remove it when they have ended"}
		}
		if err := file.change(c.Context(), id, nil); err != nil {
			return err
		}
		return printText(a.stdout, "removed "+id+" from "+accountsName)
	})
}

// actOnAccount enables or disables an account.
func (a *app) actOnAccount(ctx context.Context, id, act string) error {
	_, err := fetch[state.AccountUse](ctx, a.call, http.MethodPost, "/v1/accounts/"+url.PathEscape(id)+"/"+act, nil)
	return err
}

func (a *app) accountAct(name, short string) *cobra.Command {
	on := name == "enable"
	return a.withShared(a.noRun(command(name+" ID", short, cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if a.shared {
			return a.onShared(c, func(ctx context.Context, q *shared.Queue) error { return q.SetAccount(ctx, args[0], &on, 0) })
		}
		return a.actOnAccount(c.Context(), args[0], name)
	})), sharedAccount)
}

func (a *app) accountLsCommand() *cobra.Command {
	return a.withShared(a.withJSON(a.withIDs(command("ls [OPTIONS]", "list accounts", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if a.shared {
			list, err := fromShared(a, c, (*shared.Queue).Accounts)
			return printTable(a, list, err, "no accounts in the shared queue", []string{"ACCOUNT", "AGENT", "GROUP", "RUNNING", "STATE", "COOL UNTIL"}, []string{"GROUP", "AGENT"}, func(u shared.Account) (string, []string) {
				condition, until := map[bool]string{true: "ready", false: "disabled"}[u.Enabled], ""
				if u.CoolUntil.After(time.Now()) {
					condition, until = "limit", localTime(u.CoolUntil)
				}
				return u.ID, []string{u.ID, u.Tool, u.GroupName, fmt.Sprintf("%d/%d", u.Running, u.Max), condition, until}
			})
		}
		list, err := a.accounts(c.Context())
		return printTable(a, list, err, "no accounts", []string{"ACCOUNT", "AGENT", "NAME", "GROUP", "RUNNING", "WAITING", "STATE"}, []string{"GROUP", "NAME", "AGENT"}, func(u state.AccountUse) (string, []string) {
			running := strconv.Itoa(u.Running)
			if u.Max > 0 {
				running += "/" + strconv.Itoa(u.Max)
			}
			return u.Name, []string{u.Name, u.Agent, u.Title, u.GroupName, running, strconv.Itoa(u.Waiting), cmp.Or(u.Closed, "ready")}
		})
	}))), sharedAccount)
}

func (a *app) accountShowCommand() *cobra.Command {
	return a.withJSON(command("show [OPTIONS] ID", "show an account", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		list, err := a.accounts(c.Context())
		u := find(list, func(u *state.AccountUse) bool { return u.Name == args[0] })
		if err != nil || u == nil {
			return cmp.Or(err, noAccount(args[0]))
		}
		if a.json {
			return printJSON(a.stdout, u)
		}
		d := &description{}
		d.line("account", u.Name)
		d.line("agent", u.Agent)
		d.line("name", u.Title)
		d.line("group", u.GroupName)
		d.line("state", cmp.Or(u.Why, "ready"))
		d.line("running", strconv.Itoa(u.Running)+map[bool]string{true: " of at most " + strconv.Itoa(u.Max)}[u.Max > 0])
		d.line("hours", u.Hours)
		d.line("reserve", u.Reserve)
		d.line("budget", u.Budget)
		d.line("spent today", u.Spent)
		for _, w := range u.Quota {
			text := fmt.Sprintf("%.4g%% used, resets at %s (told %s ago)", w.Used, localTime(w.ResetsAt), ago(time.Since(w.At)))
			if w.Lapsed(time.Now()) {
				text = "unknown: the window has ended at " + localTime(w.ResetsAt)
			}
			d.line(w.Name, text)
		}
		if u.Quota == nil && u.Agent != builtIn {
			d.line("quota", "unknown: its CLI has told nothing")
		}
		d.line("waiting", strconv.Itoa(u.Waiting))
		d.line("last limit", map[bool]string{false: localTime(u.LimitedAt)}[u.LimitedAt.IsZero()])
		d.line("variables", strings.Join(u.Variables, ", "))
		d.line("cred_ref", u.CredRef)
		if file, found, err := a.findAccount(u.Name); err == nil {
			home, _ := found.home() // "": where the CLI has it
			d.line("home", home)
			d.line("dangerous", map[bool]string{true: "yes, where all else permits that"}[found.Dangerous])
			adapter, _, err := a.accountAdapter(file, found)
			if err != nil {
				d.line("login", err.Error())
			} else if p := adapter.CLI().Probe(c.Context()); found.Tool != builtIn {
				d.line("login", map[bool]string{true: cmp.Or(p.Detail, "logged in"), false: cmp.Or(p.Detail, "not logged in") + ": stint account login " + u.Name}[p.LoggedIn])
			}
		}
		return printText(a.stdout, d.String())
	}))
}

func (a *app) accountLoginCommand() *cobra.Command {
	return command("login ID", "log in to an account, with its agent's own login, and enable it", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		file, found, err := a.findAccount(args[0])
		if err != nil {
			return err
		}
		adapter, env, err := a.accountAdapter(file, found)
		if err != nil {
			return err
		}
		command := adapter.CLI().LogIn
		switch p := adapter.CLI().Probe(c.Context()); {
		case findKind(found.Tool).KeyEnv == "":
			return usage("stint task --account "+args[0]+" ...", "%s needs no login", found.Tool)
		case p.Path == "":
			return &cliError{code: exitAgent, message: p.Detail, try: p.Fix}
		case command == "" || strings.HasPrefix(command, "export "):
			return usage("give it a key: stint account add --cred-ref FILE, or env_from in "+file.path, "%s has no login of its own", found.Tool)
		}
		own := findKind(found.Tool).Own()
		environ := slices.DeleteFunc(os.Environ(), func(kv string) bool { return env.IsWhole && task.IsNamed(kv, own) })
		login := exec.CommandContext(c.Context(), "/bin/sh", "-c", "exec "+command)
		login.Env, login.Stdin, login.Stdout, login.Stderr = append(environ, env.Env...), a.stdin, a.stdout, a.stderr
		if err := login.Run(); err != nil {
			return &cliError{code: exitAgent, message: command + " did not log in", err: err, try: "stint account show " + args[0]}
		}
		return a.actOnAccount(c.Context(), args[0], "enable")
	})
}

// accounts asks the master for the accounts, and adds what this shell knows of their programs and logins
// without starting any. One that is not configured counts while it has tasks or a hold.
func (a *app) accounts(ctx context.Context) (list []state.AccountUse, err error) {
	dir, none, err := a.stateMissing()
	file := newAccountsFile(dir)
	if none || err != nil {
		return state.WithConfigured(nil, file.configs()), err // those of agents of which nothing is configured
	}
	_, err = file.read()
	cfg, wrong := a.base()
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	list, err = askAccounts(ctx, a.call)
	list = slices.DeleteFunc(list, func(u state.AccountUse) bool { return file.find(u.Name) == nil && u.Running+u.Waiting == 0 && !u.Hold })
	for i := range list {
		u := &list[i]
		switch missing, isOut := a.lastLook(cfg, u.Agent); {
		case file.find(u.Name) == nil && !u.Hold:
			u.Closed, u.Why = "not configured", "not configured"
		case u.Closed != "" || u.Agent == builtIn:
		case missing != nil:
			u.Closed, u.Why = "not installed", missing.Error()
		case isOut && u.Name == u.Agent:
			u.Closed, u.Why = "not logged in", "not logged in when stint doctor last looked"
		}
	}
	return list, err
}

func (a *app) findAccount(id string) (*accountsFile, *account, error) {
	dir, err := a.state()
	file := newAccountsFile(dir)
	if err == nil {
		_, err = file.read()
	}
	found := file.find(id)
	if err == nil && found == nil {
		err = noAccount(id)
	}
	return file, found, err
}

// accountAdapter returns the adapter of an account's agent, as it runs with what the account gives it.
func (a *app) accountAdapter(file *accountsFile, found *account) (agent.Adapter, task.AccountEnv, error) {
	env, err := found.environment()
	cfg, wrong := a.base()
	if err = cmp.Or(wrong, err); err != nil {
		return nil, env, err
	}
	return adapterFor(cfg, found.Tool, filepath.Dir(file.path), task.Turn{Account: env}), env, nil
}

func noAccount(id string) error {
	return &cliError{code: exitNotFound, message: "there is no account " + clip(id, 40), try: "stint account ls"}
}

// change sets keys in an account's section, which is made if need be, or removes it if there are none.
// Nothing is written that could not be read again, or used.
func (f *accountsFile) change(ctx context.Context, id string, values map[string]string) error {
	if _, err := f.read(); err != nil {
		return err
	}
	name := toml.Key{"account", id}.String()
	return changeText(ctx, f.path, func(text []byte) ([]byte, error) {
		now := setLines(text, name, values)
		if values == nil {
			now = withoutSection(text, slices.Index(headsOf(text), name))
		}
		list, err := parseAccounts(now)
		if i := slices.IndexFunc(list, func(a account) bool { return a.ID == id && a.written }); err == nil && i >= 0 {
			if values == nil {
				return nil, usage("edit "+f.path, "account %s cannot be taken out of the file as it is written", id)
			}
			_, err = list[i].environment()
		}
		if err != nil {
			_, wrong, isPlaced := strings.Cut(err.Error(), ": account ")
			if !isPlaced {
				wrong = id + ": " + err.Error()
			}
			return nil, usage("stint help accounts, or edit "+f.path, "account %s", wrong)
		}
		return now, nil
	})
}

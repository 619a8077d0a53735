package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/lazy"
	"stint/ledger/lock"
	"stint/state"
	"stint/state/limits"
)

// accountsName is the file in the state directory that has the accounts.
const accountsName = "accounts.toml"

// An account is one [account.ID] section of accounts.toml.
type account struct {
	state.AccountConfig
	env     map[string]string
	written bool   // it stands in the file
	envFrom string // path of a file with lines of KEY=VALUE; "": none
}

// isDefault reports whether it is the user's own login, in the CLI's own home.
func (a *account) isDefault() bool { return a.ID == a.Tool }

// home returns the directory where its agent keeps settings and sessions; "" for that of the user.
func (a *account) home() (string, error) {
	if a.isDefault() || findKind(a.Tool).HomeEnv == "" {
		return "", nil
	}
	base, err := xdg("XDG_DATA_HOME", ".local/share")
	return filepath.Join(base, "stint", "homes", a.ID), err
}

// fields returns where the value of each key goes.
func (a *account) fields() map[string]any {
	return map[string]any{
		"tool": &a.Tool, "name": &a.Title, "group_name": &a.GroupName, "max": &a.Max, "env": &a.env,
		"env_from": &a.envFrom, "hours": &a.Hours, "reserve": &a.Reserve, "budget": &a.Budget, "cred_ref": &a.CredRef, "dangerous": &a.Dangerous,
	}
}

// accountID is what an account may be called: its home has this name, and its control record.
var accountID = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// variableName is what a program may find in its environment.
var variableName = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check returns what is wrong with an account, and the key at fault. before are the accounts before it, and the default ones.
func (a *account) check(given map[string]toml.Primitive, before []account) (key string, err error) {
	kind := findKind(a.Tool)
	a.Title = cmp.Or(a.Title, a.ID)
	_, hasMax := given["max"]
	switch {
	case !accountID().MatchString(a.ID):
		return "", fmt.Errorf("%q cannot be the id of an account: use letters, digits, dashes and underscores", a.ID)
	case kind == nil:
		return "tool", fmt.Errorf("tool is %q; it has to be one of %s", a.Tool, strings.Join(agentNames, ", "))
	case findKind(a.ID) != nil && !a.isDefault():
		return "tool", fmt.Errorf("%s is the id of %s's own account; give this one another", a.ID, a.ID)
	case hasMax && a.Max < 1:
		return "max", fmt.Errorf("max is %d; at least one task has to be allowed (stint account disable %s lets none run)", a.Max, a.ID)
	case a.isDefault() && a.CredRef != "":
		return "cred_ref", fmt.Errorf("%s is your own login and takes no cred_ref; add an account for it: stint account add", a.ID)
	case a.CredRef != "" && kind.KeyEnv == "":
		return "cred_ref", fmt.Errorf("%s has no credentials", a.Tool)
	}
	if _, err := limits.ParseBudget(a.Budget); err != nil {
		return "budget", fmt.Errorf("budget: %w", err)
	}
	if _, err := limits.ParsePercent(a.Reserve); err != nil {
		return "reserve", fmt.Errorf("reserve: %w", err)
	}
	if _, err := limits.ParseHours(a.Hours); err != nil {
		return "hours", fmt.Errorf("hours: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(a.env)) {
		if !variableName().MatchString(name) || name == kind.HomeEnv || strings.ContainsRune(a.env[name], 0) {
			return "env", fmt.Errorf("env cannot set %q", name)
		}
	}
	for key, path := range map[string]string{"env_from": a.envFrom, "cred_ref": a.CredRef} {
		if path != "" && !filepath.IsAbs(path) {
			return key, fmt.Errorf("%s is %q; it has to be an absolute path", key, path)
		}
	}
	if o := find(before, func(o *account) bool { return o.written && o.Tool == a.Tool && o.Title == a.Title }); o != nil {
		return "name", fmt.Errorf("%s has an account of that name, %q: %s", a.Tool, a.Title, o.ID)
	}
	return "", nil
}

// parseAccounts reads accounts.toml, the default account of each agent first. Errors begin with "accounts.toml:12: ".
func parseAccounts(text []byte) ([]account, error) {
	f := &fileReader{name: accountsName, text: string(text)}
	top, all := f.decode(), map[string]toml.Primitive{}
	for _, key := range f.inOrder(top) {
		if key != "account" {
			line := 1 + strings.Count(f.text[:max(0, strings.Index(f.text, key))], "\n") // the decoder knows none of a section of sections
			f.wrong(line, "%q is not known here; write [account.ID], and below that its settings", key)
		} else {
			all = f.section(top[key], key, "account.ID")
		}
	}
	list := mapped(agentNames, func(name *string) account {
		return account{AccountConfig: state.AccountConfig{ID: *name, Tool: *name, Title: *name}}
	})
	for _, id := range f.inOrder(all) {
		a, own := account{AccountConfig: state.AccountConfig{ID: id}, written: true}, slices.Index(agentNames, id)
		if own >= 0 {
			a.Tool = id
		}
		given := f.section(all[id], "account."+id, "account."+id)
		key, err := f.strict(given, a.fields(), nil, "")
		if err == nil {
			key, err = a.check(given, list)
		}
		if err != nil {
			place, has := given[key]
			if !has {
				place = all[id]
			}
			f.wrong(f.line(place), "account %s: %w", id, err)
		}
		a.Variables = slices.Sorted(maps.Keys(a.env))
		if own >= 0 {
			list[own] = a
		} else {
			list = append(list, a)
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	slices.SortStableFunc(list, func(a, b account) int { return slices.Index(agentNames, a.Tool) - slices.Index(agentNames, b.Tool) })
	for i := range list {
		list[i].Max = cmp.Or(list[i].Max, findKind(list[i].Tool).Max)
	}
	return list, nil
}

// A stateFile is a TOML file of the state directory with a list, which people edit too, as it is from
// time to time. It may be used by several goroutines.
type stateFile[T any] struct {
	path  string
	parse func(text []byte) ([]T, error) // its errors begin with the name of the file; with one, a list counts that is not nil
	try   string                         // what helps after a mistake
	tell  func(error)                    // gets each mistake once; nil: nobody does

	mu    sync.Mutex
	stamp string // of the text that was read last
	list  []T
	err   error // what is wrong with that text: list is the one before it
}

// read returns the list. With an error, a *task.Error, what is wrong is in it as it was before.
func (f *stateFile[T]) read() ([]T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp := "none"
	if fi, err := os.Lstat(f.path); err == nil {
		stamp = fmt.Sprint(fi.ModTime().UnixNano(), fi.Size(), fi.Mode())
	}
	if stamp == f.stamp {
		return f.list, f.err
	}
	isFirst := f.stamp == ""
	f.stamp, f.err = stamp, nil
	text, err := stateText(f.path)
	var list []T
	if text != nil && len(text) == 0 && !isFirst && len(f.list) > 0 { // an editor may be about to write it
		err = fmt.Errorf("%s is empty; to have none of what stood there, remove it", filepath.Base(f.path))
	} else if err == nil {
		list, err = f.parse(text)
	}
	if err == nil || list != nil { // what can be read counts
		f.list = list
	}
	if err == nil {
		return list, nil
	}
	if f.err = task.Invalid(f.try, "%s", f.located(err)); f.tell != nil {
		f.tell(f.err)
	}
	return f.list, f.err
}

// located returns an error with the path of the file in place of its name.
func (f *stateFile[T]) located(err error) string {
	return strings.Replace(err.Error(), filepath.Base(f.path), f.path, 1)
}

type accountsFile struct{ stateFile[account] }

func newAccountsFile(stateDir string) *accountsFile {
	f := &accountsFile{}
	f.path, f.parse = filepath.Join(stateDir, accountsName), parseAccounts
	f.try = "correct it there; until then a master that has read it before uses that, and any other starts no task"
	return f
}

// stateText returns the text of a file of the state directory, "" if there is none.
func stateText(path string) ([]byte, error) {
	text, err := durable.ReadFile(durable.OS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", filepath.Base(path), err)
	}
	return text, nil
}

// changeText gives a file of the state directory the text that change makes of it. Commands that do so at the same
// time wait for each other; what an editor saves meanwhile stays.
func changeText(ctx context.Context, path string, change func(text []byte) ([]byte, error)) error {
	unlock, err := lock.Take(ctx, path+".lock", 10*time.Second)
	if err != nil {
		return &cliError{code: exitBusy, message: "cannot change " + path, err: err, try: "the same again"}
	}
	text, err := stateText(path)
	var now []byte
	if err == nil {
		now, err = change(text)
	}
	if err == nil {
		if again, _ := stateText(path); !bytes.Equal(again, text) {
			err = &cliError{code: exitBusy, message: path + " was changed by another program just now", try: "the same again"}
		} else if err = durable.ReplaceFile(durable.OS, path, now); err != nil {
			err = &cliError{code: exitFailure, message: "cannot write " + filepath.Base(path), err: err}
		}
	}
	return errors.Join(err, unlock())
}

// configs returns the accounts as the master needs them.
func (f *accountsFile) configs() []state.AccountConfig {
	list, _ := f.read() // the mistake is told by who starts, and by doctor
	return mapped(list, func(a *account) state.AccountConfig { return a.AccountConfig })
}

func (f *accountsFile) find(id string) *account {
	list, _ := f.read()
	return find(list, func(a *account) bool { return a.ID == id })
}

// hasOther reports whether an agent has an account beside the default one that can work, as far as files tell.
func (f *accountsFile) hasOther(tool string) bool {
	list, _ := f.read()
	return slices.ContainsFunc(list, func(a account) bool {
		home, err := a.home()
		if a.Tool != tool || a.isDefault() || err != nil {
			return false
		}
		_, err = os.Stat(filepath.Join(home, findKind(tool).CredFile))
		return err == nil || a.CredRef != "" || a.envFrom != "" || len(a.env) > 0
	})
}

// environment returns what the agent of an account gets, for a run that begins now; and puts its credentials into its home.
func (f *accountsFile) environment(id string) (env task.AccountEnv, err error) {
	a := f.find(id)
	if a == nil {
		return env, fmt.Errorf("there is no account %s any more", id)
	}
	if env, err = a.environment(); err != nil {
		err = fmt.Errorf("account %s: %w", id, err)
	}
	return env, err
}

func (a *account) environment() (env task.AccountEnv, err error) {
	kind := findKind(a.Tool)
	home, err := a.home()
	if err != nil {
		return env, err
	}
	if home != "" {
		if err := durable.MkdirAll(durable.OS, home); err != nil {
			return env, fmt.Errorf("cannot make its home: %w", err)
		}
		env.IsWhole, env.Env = true, []string{kind.HomeEnv + "=" + home}
	}
	if a.envFrom != "" {
		more, err := readVariables(a.envFrom)
		if err == nil && slices.ContainsFunc(more, func(kv string) bool { return strings.HasPrefix(kv, kind.HomeEnv+"=") }) {
			err = fmt.Errorf("%s cannot set %s, which is the account's home", a.envFrom, kind.HomeEnv)
		}
		if err != nil {
			return env, err
		}
		env.Env = append(env.Env, more...)
	}
	for _, name := range a.Variables {
		env.Env = append(env.Env, name+"="+a.env[name])
	}
	login := ""
	if a.CredRef != "" {
		text, err := readSecret(a.CredRef)
		if err != nil {
			return env, err
		}
		switch text = strings.TrimSpace(text); {
		case json.Valid([]byte(text)) && text[0] == '{':
			login = a.CredRef
		case text == "" || strings.ContainsAny(text, "\n\x00"):
			return env, fmt.Errorf("%s has neither a JSON object nor a key on one line", a.CredRef)
		default:
			env.Env = append(env.Env, kind.KeyEnv+"="+text)
		}
	}
	if home == "" {
		return env, nil
	}
	return env, linkCredentials(login, filepath.Join(home, kind.CredFile))
}

// danger is the Danger of a master's configuration.
func (f *accountsFile) danger(cfg *Config, inContainer func() bool) func(id string) (effect string, err error) {
	return func(id string) (effect string, err error) {
		a := f.find(id)
		d := find(dangers(), func(d *danger) bool {
			return a != nil && strings.HasPrefix(d.key, a.Tool+"_") && cfg.agents[d.key] == d.value
		})
		if d == nil {
			return "", nil
		}
		set, missing := d.key+" = "+d.value, []string(nil)
		if !a.Dangerous {
			missing = append(missing, "dangerous = true for the account")
		}
		if fi, err := os.Stat(a.CredRef); a.CredRef == "" {
			missing = append(missing, "an account with a cred_ref (stint account add --dangerous --cred-ref FILE)")
		} else if err != nil || fi.Mode().Perm()&0o222 != 0 {
			missing = append(missing, "a cred_ref that nobody can write to (chmod 400 "+state.ShellQuote(a.CredRef)+")")
		}
		if !inContainer() {
			missing = append(missing, "a container")
		}
		if missing == nil {
			return set + ": the agent can do whatever this user can in this container", nil
		}
		return "", fmt.Errorf("account %s: with %s its agent could do whatever you can; that needs %s; see stint help security", id, set, strings.Join(missing, ", "))
	}
}

// inContainer reports whether this machine is a container, as Docker, Podman or systemd tell.
func inContainer() bool {
	isThere := func(mark string) bool { _, err := os.Lstat(mark); return err == nil }
	return isThere("/.dockerenv") || isThere("/run/.containerenv") || systemCommand(context.Background(), "systemd-detect-virt --container --quiet").Run() == nil
}

// linkCredentials links the login file into a home, or removes such a link. A login that the CLI made stays.
func linkCredentials(file, link string) error {
	to, err := os.Readlink(link)
	if err == nil && to != file {
		err = os.Remove(link)
	} else if err == nil || file == "" {
		return nil
	} else {
		err = durable.MkdirAll(durable.OS, filepath.Dir(link))
	}
	if err == nil && file != "" {
		err = os.Symlink(file, link)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; remove it, or leave cred_ref out", link)
	}
	return err
}

// maxSecret is how many bytes a file with a login, a key or a URL may have.
const maxSecret = 1 << 20

// readSecret reads a file of the user's that nobody else can read.
func readSecret(path string) (string, error) {
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !fi.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a file", path)
	case !ownedByUs(fi):
		return "", fmt.Errorf("%s belongs to another user", path)
	case fi.Mode().Perm()&0o077 != 0:
		return "", task.Invalid("chmod 600 "+state.ShellQuote(path), "%s can be read by others (mode %04o)", path, fi.Mode().Perm())
	}
	text, err := readNamed(path, maxSecret)
	return string(text), err
}

// readVariables reads a file with lines of KEY=VALUE; blank lines and those with # are left out.
func readVariables(path string) (env []string, err error) {
	text, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || !variableName().MatchString(name) || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("%s:%d is not KEY=VALUE", path, i+1)
		}
		if quoted := len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0]; quoted {
			value = value[1 : len(value)-1]
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

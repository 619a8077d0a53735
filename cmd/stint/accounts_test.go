package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/state"
)

// TestParseAccounts: the accounts of each agent stand together, the default one first and with its
// agent's limit; a mistake is named with its line.
func TestParseAccounts(t *testing.T) {
	t.Parallel()
	list, err := parseAccounts([]byte("[account.zeta]\ntool = \"codex\"\nmax = 2\n[account.codex]\nmax = 1\n[account.\"a-b\"]\ntool = \"claude\"\nenv = { B = \"1\", A = \"2\" }\n"))
	var got []string
	for _, a := range list {
		got = append(got, strings.Join(append([]string{a.ID, a.Tool, a.Title, strings.Repeat("i", a.Max)}, a.Variables...), " "))
	}
	want := []string{"codex codex codex i", "zeta codex zeta ii", "claude claude claude iii", "a-b claude a-b iii A B", "gemini gemini gemini iiiii", "demo demo demo "}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"[account.x]\ntool = \"codex\"\nmax = 0":                                               "accounts.toml:3: account x: max is 0",
		"[account.x]\ntool = \"codex\"\nmax = -1":                                              "accounts.toml:3: account x: max is -1",
		"[account.x]\ntool = \"codex\"\nmax = \"2\"":                                           "accounts.toml:3: account x: max has a value of another type",
		"[account.x]\nmax = 1":                                                                 "accounts.toml:1: account x: tool is \"\"; it has to be one of codex, claude, gemini, demo",
		"[account.x]\ntool = \"codex\"\nmaxx = 1":                                              "accounts.toml:3: account x: unknown key \"maxx\"; did you mean max?",
		"[account.\"a/b\"]\ntool = \"codex\"":                                                  "\"a/b\" cannot be the id of an account",
		"[account.\"..\"]\ntool = \"codex\"":                                                   "\"..\" cannot be the id of an account",
		"[account.codex]\ntool = \"claude\"":                                                   "accounts.toml:2: account codex: codex is the id of codex's own account",
		"[account.codex]\ncred_ref = \"/k\"":                                                   "accounts.toml:2: account codex: codex is your own login and takes no cred_ref",
		"[account.x]\ntool = \"codex\"\ncred_ref = \"k\"":                                      "accounts.toml:3: account x: cred_ref is \"k\"; it has to be an absolute path",
		"[account.x]\ntool = \"codex\"\nenv_from = \"~/k\"":                                    "accounts.toml:3: account x: env_from is \"~/k\"; it has to be an absolute path",
		"[account.x]\ntool = \"codex\"\nenv = { CODEX_HOME = \"/h\" }":                         "accounts.toml:3: account x: env cannot set \"CODEX_HOME\"",
		"[account.x]\ntool = \"codex\"\nenv = \"A=B\"":                                         "accounts.toml:3: account x: env has a value of another type",
		"[account.x]\ntool = \"codex\"\nenv = { \"A=B\" = \"1\" }":                             "accounts.toml:3: account x: env cannot set \"A=B\"",
		"[account.x]\ntool = \"codex\"\nname = \"n\"\n[account.y]\ntool=\"codex\"\nname=\"n\"": "accounts.toml:6: account y: codex has an account of that name, \"n\": x",
		"[acount.x]\ntool = \"codex\"":                                                         "accounts.toml:1: \"acount\" is not known here; write [account.ID]",
		"account = 1":                                                                          "accounts.toml:1: ",
		"[account]\nx = 1":                                                                     "accounts.toml:2: account.x is not a section; write [account.x]",
		"[account.x\n":                                                                         "accounts.toml:2: ",
	} {
		if _, err := parseAccounts([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParseAccounts: whatever stands in the file, it is read or refused; what is read has all
// default accounts, and no account twice.
func FuzzParseAccounts(f *testing.F) {
	f.Add("[account.x]\ntool = \"codex\"\nmax = 2\nenv = { A = \"b\" }\n")
	f.Add("[account.codex]\nname = \"own\"\n[account]\n")
	f.Add("account = [1]")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseAccounts([]byte(text))
		ids := map[string]bool{}
		for _, a := range list {
			if ids[a.ID] || !slices.Contains(agentNames, a.Tool) {
				t.Errorf("%q: account %q", text, a.ID)
			}
			ids[a.ID] = true
		}
		for _, name := range agentNames {
			if err == nil && !ids[name] {
				t.Errorf("%q: without %s", text, name)
			}
		}
	})
}

// TestAccountsFile: a file with a mistake leaves the accounts as they were, until it is corrected.
func TestAccountsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := int64(0)
	put := func(text string) {
		n++
		path := filepath.Join(dir, accountsName)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		check(t, os.Chtimes(path, time.Time{}, time.Unix(n, 0))) // a clock may stand still between two
	}
	f := newAccountsFile(dir)
	if f.find("x") != nil || f.find("codex") == nil {
		t.Error("without a file there are not just the default accounts")
	}
	put("[account.x]\ntool = \"demo\"\n")
	if f.find("x") == nil {
		t.Error("the file was not read")
	}
	put("[account.y]\ntool = \"none\"\n")
	if _, err := f.read(); exitCode(err) != exitUsage || !strings.Contains(err.Error(), dir+"/accounts.toml:2: account y") {
		t.Errorf("a mistake: %v", err)
	}
	if f.find("x") == nil || f.find("y") != nil {
		t.Error("with a mistake in the file, the accounts are other ones")
	}
	put("") // as while it is written
	if _, err := f.read(); err == nil || f.find("x") == nil {
		t.Errorf("empty: %v", err)
	}
	put("[account.yy]\ntool = \"demo\"\n")
	if _, err := f.read(); err != nil || f.find("x") != nil || f.find("yy") == nil {
		t.Errorf("corrected: %v", err)
	}
}

// TestAccountEnvironment: an account gives its agent a home and what its files have, and a login only
// where the CLI looks for it; what others could read is refused.
func TestAccountEnvironment(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_DATA_HOME", home)
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(home, name)
		check(t, os.WriteFile(path, []byte(text), mode))
		check(t, os.Chmod(path, mode))
		return path
	}
	key, login := put("key", "sk-a-key-of-mine\n", 0o400), put("login", `{"tokens": {"access_token": "a-token-of-mine"}}`, 0o400)
	vars := put("vars", "# mine\n\nexport A=1\nB=\"two words\"\n", 0o600)
	link := filepath.Join(home, "stint/homes/x/auth.json")
	tests := []struct {
		name string
		a    account
		want []string
		err  string
	}{
		{"nothing", account{}, []string{"CODEX_HOME=" + filepath.Dir(link)}, ""},
		{"a key", account{AccountConfig: accountConfig(key)}, []string{"CODEX_HOME=" + filepath.Dir(link), "CODEX_API_KEY=sk-a-key-of-mine"}, ""},
		{"a login", account{AccountConfig: accountConfig(login)}, []string{"CODEX_HOME=" + filepath.Dir(link)}, ""},
		{"variables", account{envFrom: vars, env: map[string]string{"A": "3"}}, []string{"CODEX_HOME=" + filepath.Dir(link), "A=1", "B=two words", "A=3"}, ""},
		{"open to others", account{AccountConfig: accountConfig(put("open", "k", 0o640))}, nil, "can be read by others (mode 0640); chmod 600 "},
		{"a directory", account{AccountConfig: accountConfig(home)}, nil, "is not a file"},
		{"not there", account{envFrom: home + "/none"}, nil, "no such file"},
		{"no variables", account{envFrom: key}, nil, "key:1 is not KEY=VALUE"},
		{"another home", account{envFrom: put("home", "CODEX_HOME=/h\n", 0o600)}, nil, "home cannot set CODEX_HOME"},
		{"empty", account{AccountConfig: accountConfig(put("empty", "\n", 0o600))}, nil, "neither a JSON object nor a key"},
		{"two lines", account{AccountConfig: accountConfig(put("two", "a\nb\n", 0o600))}, nil, "neither a JSON object nor a key"},
	}
	for _, tt := range tests {
		tt.a.ID, tt.a.Tool, tt.a.Title = "x", "codex", "x"
		for name := range tt.a.env {
			tt.a.Variables = append(tt.a.Variables, name)
		}
		got, err := tt.a.environment()
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if diff := cmp.Diff(task.AccountEnv{IsWhole: true, Env: tt.want}, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
	for _, file := range []string{login, key, login, ""} { // one that is not named any more goes
		_, err := (&account{AccountConfig: accountConfig(file)}).environment()
		to, _ := os.Readlink(link)
		if is := to == login; err != nil || is != (file == login) {
			t.Errorf("with %q the login is %q, %v", file, to, err)
		}
	}
	check(t, os.WriteFile(link, nil, 0o600))
	if _, err := (&account{AccountConfig: accountConfig(login)}).environment(); err == nil || !strings.Contains(err.Error(), "auth.json is there already") {
		t.Errorf("a login that is there: %v", err)
	}
	own := account{AccountConfig: accountConfig("")}
	own.ID = "codex"
	if got, err := own.environment(); got.IsWhole || got.Env != nil || err != nil {
		t.Errorf("the default account: %+v, %v", got, err)
	}
	secret := account{envFrom: vars, AccountConfig: accountConfig(login), env: map[string]string{"MY_TOKEN": "12345678", "GREETING": "hello"}}
	if got := secret.secrets(); !slices.Contains(got, "a-token-of-mine") || !slices.Contains(got, "12345678") || !slices.Contains(got, "two words") || slices.Contains(got, "hello") {
		t.Errorf("secrets: %q", got)
	}
}

func accountConfig(cred string) (c state.AccountConfig) {
	c.ID, c.Tool, c.CredRef = "x", "codex", cred
	return c
}

// TestDanger: an agent may run without a guard only if its account, its login and a container permit
// that; as it is configured by default it has one.
func TestDanger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	check(t, os.WriteFile(key, []byte("k"), 0o600))
	for i := range 16 {
		isSet, dangerous, readOnly, inContainer := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
		cfg := &Config{agents: map[string]any{"codex_sandbox": "workspace-write"}}
		if isSet {
			cfg.agents["codex_sandbox"] = "danger-full-access"
		}
		text := "[account.x]\ntool = \"codex\"\ncred_ref = \"" + key + "\"\n"
		if dangerous {
			text += "dangerous = true\n"
		}
		check(t, os.Chmod(key, map[bool]os.FileMode{false: 0o600, true: 0o400}[readOnly]))
		check(t, os.WriteFile(filepath.Join(dir, accountsName), []byte(text), 0o600))
		may := newAccountsFile(dir).danger(cfg, func() bool { return inContainer })
		effect, err := may("x")
		if all := dangerous && readOnly && inContainer; (err == nil) != (all || !isSet) || (effect != "") != (all && isSet) {
			t.Errorf("set %v, dangerous %v, read-only %v, container %v: %q, %v", isSet, dangerous, readOnly, inContainer, effect, err)
		}
		if _, err := may("codex"); (err == nil) == isSet {
			t.Errorf("the user's own login: %v", err)
		}
	}
}

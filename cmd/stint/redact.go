package main

import (
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"stint/coordinator/fleet"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

// secrets returns the function that lists the secret values which nothing that stint writes or
// prints may have; without a stateDir there is no token. What cannot be read is left out.
func secrets(cfg *Config, stateDir string) func() []string {
	file := newAccountsFile(stateDir)                // with a mistake in it, it keeps what stood there before
	own := sync.OnceValue(func() (values []string) { // our environment stays as it is
		for _, name := range agentNames {
			for _, kv := range agentEnv(os.Environ(), name, cfg.Env) {
				values = append(values, secretsOf(kv)...)
			}
		}
		return values
	})
	return func() (values []string) {
		values = slices.Clone(own())
		if o, on := postgresOptions(cfg, stateDir, nil); on {
			database, _ := o.URL()
			if dsn.HasPassword(database) {
				values = append(values, database)
			}
			if c, err := dsn.Parse(database); err == nil {
				values = append(values, c.ConnConfig.Password)
			}
		}
		for i := range cfg.Notify {
			token, _ := cfg.Notify[i].Token(os.Environ(), readSecret)
			values = append(values, token)
		}
		for _, ref := range append(mapped(cfg.Fleet.Instances, func(in *fleet.Instance) string { return in.KeyRef }), cfg.Fleet.LiteLLM.KeyRef) {
			key, _ := readRef(ref)
			values = append(values, key)
		}
		if stateDir != "" {
			token, _ := durable.ReadFile(durable.OS, tokenFile(stateDir))
			values = append(values, string(token))
			accounts, _ := file.read()
			for i := range accounts {
				values = append(values, accounts[i].secrets()...)
			}
		}
		return values
	}
}

// secrets returns the secret values of an account. All that stands in env_from is secret, whatever it is called.
func (a *account) secrets() (values []string) {
	for name, value := range a.env {
		values = append(values, secretsOf(name+"="+value)...)
	}
	if a.envFrom != "" {
		env, _ := readVariables(a.envFrom)
		for _, kv := range env {
			_, value, _ := strings.Cut(kv, "=")
			values = append(values, value)
		}
	}
	if a.CredRef != "" {
		text, _ := readSecret(a.CredRef)
		var login any
		err := json.Unmarshal([]byte(text), &login)
		if _, isNumber := login.(float64); err != nil || isNumber { // a key may look like one
			login = text
		}
		values = append(values, secretsIn("key", login)...)
	}
	return values
}

// secretsIn returns the secret values in a value of JSON that has that name.
func secretsIn(name string, value any) (values []string) {
	switch v := value.(type) {
	case string:
		return secretsOf(name + "=" + strings.TrimSpace(v))
	case []any:
		for _, item := range v {
			values = append(values, secretsIn(name, item)...)
		}
	case map[string]any:
		for key, item := range v {
			values = append(values, secretsIn(key, item)...)
		}
	}
	return values
}

// secretsOf returns the values in a variable, KEY=VALUE, that are secret by its name or its form: it as a whole, its
// words but for the names of headers, and the password of a URL. The path of a file is none.
func secretsOf(kv string) (values []string) {
	name, value, _ := strings.Cut(kv, "=")
	if !task.IsSecret(name, value) || strings.HasSuffix(name, "_MECHANISM") || strings.HasSuffix(name, "_TYPE") {
		return nil
	}
	if _, err := os.Lstat(value); err == nil { // last: each run comes by here
		return nil
	}
	values = slices.DeleteFunc(append(strings.Fields(value), value), func(word string) bool { return strings.HasSuffix(word, ":") })
	if u, err := url.Parse(value); err == nil && u.User != nil {
		password, _ := u.User.Password()
		values = append(values, password)
	}
	return values
}

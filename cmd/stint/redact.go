package main

import (
	"net/url"
	"os"
	"strings"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

// secrets returns the function that lists the secret values which nothing that stint writes or
// prints may have; without a stateDir there is no token. What cannot be read is left out.
func secrets(cfg *Config, stateDir string) func() []string {
	return func() (values []string) {
		for _, name := range agentNames {
			for _, kv := range agentEnv(os.Environ(), name, cfg.Env) {
				values = append(values, secretsOf(kv)...)
			}
		}
		database := cfg.PostgresURL
		if database == "" && cfg.PostgresURLFile != "" {
			database, _ = readURLFile(cfg.PostgresURLFile)
		}
		if database != "" {
			if dsn.HasPassword(database) {
				values = append(values, database)
			}
			if c, err := dsn.Parse(database); err == nil {
				values = append(values, c.ConnConfig.Password)
			}
		}
		if stateDir != "" {
			token, _ := durable.ReadFile(durable.OS, tokenFile(stateDir))
			values = append(values, string(token))
		}
		return values
	}
}

// redact returns what masks secrets in what this command prints of a run's own words.
func (a *app) redact() *redact.Filter {
	cfg, err := a.base()
	if err != nil {
		return nil // told before
	}
	return cfg.Redact
}

// secretsOf returns the values in a variable, KEY=VALUE, that are secret by its name or its form: it as a whole,
// the password of a URL, and the last word of each line, as in headers. The path of a file is none.
func secretsOf(kv string) (values []string) {
	name, value, _ := strings.Cut(kv, "=")
	_, err := os.Lstat(value)
	if !task.IsSecret(name, value) || err == nil || strings.HasSuffix(name, "_MECHANISM") || strings.HasSuffix(name, "_TYPE") {
		return nil
	}
	values = append(values, value)
	if u, err := url.Parse(value); err == nil && u.User != nil {
		password, _ := u.User.Password()
		values = append(values, password)
	}
	for line := range strings.Lines(value) {
		if words := strings.Fields(line); len(words) > 1 && strings.Contains(line, ":") {
			values = append(values, words[len(words)-1])
		}
	}
	return values
}

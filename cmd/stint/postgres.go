package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
)

const (
	maxInline = 256 << 20 // bytes of a file that is copied whole
	maxHost   = 255       // bytes of a machine's name
)

// postgresURLKey is the URL of the database that has the mirror. What is wrong with it
// stops no local work, so it is an error on a command line alone.
func postgresURLKey() key {
	k := textKey("postgres_url", "", "mirror the ledger to this PostgreSQL database, such as postgres://db.example/stint; empty: no mirror", func(c *Config) *string { return &c.PostgresURL }).in("postgres")
	k.set = func(c *Config, s string) error { c.PostgresURL = strings.TrimSpace(s); return nil }
	k.option, k.word = "postgres", "URL"
	k.typed = checkTypedURL
	k.redact = func(s string) string {
		if s == "" {
			return ""
		}
		return dsn.Redact(s)
	}
	return k
}

// checkTypedURL refuses a URL on a command line that is broken, or has a password for everybody to read.
func checkTypedURL(text string) error {
	if text == "" {
		return nil
	}
	if dsn.HasPassword(text) {
		return usage("url_file below [postgres] in config.toml, STINT_POSTGRES_URL, or ~/.pgpass",
			"--postgres: a password on the command line can be read by everybody on this machine")
	}
	if err := dsn.Check(text); err != nil {
		message, try := explain(err)
		return usage(cmp.Or(try, "stint serve --help"), "--postgres: %s", message)
	}
	return nil
}

// urlFileKey is the path of a file that has a URL. What is no path may be that URL, so no error shows it.
func urlFileKey(name, help string, field func(*Config) *string) key {
	k := pathKey(name, help, field)
	set := k.set
	k.set = func(c *Config, s string) error {
		if s != "" && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "~/") {
			return errors.New("it is not the absolute path of a file")
		}
		return set(c, s)
	}
	return k
}

// checkHost returns the name of a machine, or "".
func checkHost(s string) (string, error) {
	if len(s) > maxHost || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return "", fmt.Errorf("it is no name of a machine: at most %d bytes that can be printed", maxHost)
	}
	return s, nil
}

// readURLFile reads a file that has a URL, and nobody but its owner may read it.
func readURLFile(path string) (string, error) {
	text, err := readSecret(path)
	switch text = strings.TrimSpace(text); {
	case errors.Is(err, fs.ErrNotExist):
		err = task.Invalid("write the URL of the database into it, then: chmod 600 "+path, "%s does not exist", path)
	case err == nil && text == "":
		err = task.Invalid("write the URL of the database into it", "%s is empty", path)
	case err == nil && strings.ContainsAny(text, "\r\n"):
		err = task.Invalid("write the URL alone into it", "%s has more than one line", path)
	}
	if err == nil {
		return text, nil
	}
	message, hint := explain(err)
	return "", task.Invalid(hint, "postgres.url_file: %s", message)
}

// postgresOptions returns where the mirror of a state directory is and what it holds; on: there is to be one.
func postgresOptions(cfg *Config, state string, log *slog.Logger) (o postgres.Options, on bool) {
	if cfg.PostgresURL == "" && cfg.PostgresURLFile == "" {
		return o, false
	}
	url := func() (string, error) { return cfg.PostgresURL, nil }
	if cfg.PostgresURL == "" {
		url = func() (string, error) { return readURLFile(cfg.PostgresURLFile) } // each time
	}
	name, _ := os.Hostname() // a machine without a name is localhost
	name = cmp.Or(name, "localhost")
	return postgres.Options{
		URL:             url,
		Host:            cmp.Or(cfg.PostgresHost, name),
		Hostname:        name,
		StateDir:        state,
		PoolSize:        cfg.PostgresPoolSize,
		InlineThreshold: cfg.PostgresInline,
		OutputLimit:     cfg.PostgresOutput,
		MaxAttempts:     cfg.MaxAttempts,
		MaxConcurrency:  cfg.MaxWorkers,
		Version:         versionName(),
		Worker:          uuid.New(),
		PID:             os.Getpid(),
		Redact:          cfg.Redact,
		Log:             log,
	}, true
}

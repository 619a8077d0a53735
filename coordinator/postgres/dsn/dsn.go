// Package dsn reads the connection string of a PostgreSQL database: a URL, or libpq's list of keywords and values. pgx parses
// it and finds the passwords. This package adds stint's defaults (TLS with a verified certificate unless the server is on this
// machine) and keeps every part of a password out of errors and of what is shown.
package dsn

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	neturl "net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/task"
)

const (
	exampleURL      = "postgres://stint@db.example/cli_worker"
	connectTimeout  = 5 * time.Second // where a URL names none
	defaultDatabase = "cli_worker"    // the same
)

// HasPassword reports whether the text of a database URL has a password, or may have one.
func HasPassword(text string) bool {
	text = strings.TrimSpace(text)
	return parseFailure(text) != text+"`: " || strings.Contains(strings.ToLower(text), "password")
}

// Redact returns the text of a database URL with its passwords masked. pgx knows where
// they are in a URL that it can read; of any other text that may have one, nothing is left.
func Redact(text string) string {
	text = strings.TrimSpace(text)
	if _, err := Parse(text); err != nil || !isURL(text) && HasPassword(text) {
		return "***"
	}
	return strings.TrimSuffix(parseFailure(text), "`: ")
}

// parseFailure returns what the errors of pgx about a text begin with: the text, redacted.
func parseFailure(text string) string {
	return strings.TrimPrefix(pgconn.NewParseConfigError(text, "", nil).Error(), "cannot parse `")
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// Parse returns the configuration of a pool for a URL or a libpq keyword/value string.
// As with psql, PG* variables, the service file and ~/.pgpass complete it. The errors are
// *task.Error and have no part of a password.
//
// TLS is required, and the server's certificate and name are verified, unless the server
// is on this machine or something else is asked for. pgx cannot tell PGSSLMODE=prefer from
// no setting, so only a URL can ask for that.
func Parse(text string) (*pgxpool.Config, error) {
	text = strings.TrimSpace(text)
	cfg, err := readURL(text)
	if err != nil {
		return nil, err
	}
	var defaults []string
	if cfg.ConnConfig.Database == "" {
		defaults = append(defaults, "dbname="+defaultDatabase)
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		defaults = append(defaults, fmt.Sprintf("connect_timeout=%.0f", connectTimeout.Seconds()))
	}
	if isUnverified(&cfg.ConnConfig.Config) {
		defaults = append(defaults, "sslmode=verify-full")
	}
	if defaults != nil {
		// Read again and not changed: pgx looks up the password and makes the TLS
		// configuration from what it was given.
		full := strings.Join(defaults, " ") + " " + text // what comes last wins
		if isURL(text) {
			host := strings.Index(text, "://") + len("://")
			if i := strings.IndexAny(text[host:], "@/"); i >= 0 && text[host+i] == '@' {
				host += i // what a password has no meaning here
			}
			before, query, _ := strings.Cut(text[host:], "?")
			full = text[:host] + before + "?" + strings.TrimSuffix(strings.Join(defaults, "&")+"&"+query, "&")
		}
		if cfg, err = readURL(full); err != nil {
			return nil, err
		}
	}
	if isUnverified(&cfg.ConnConfig.Config) && !strings.Contains(text, "prefer") {
		return nil, task.Invalid("write sslmode=verify-full, or leave it out", "the database URL has an empty sslmode")
	}
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.HealthCheckPeriod = time.Minute
	cfg.PingTimeout = connectTimeout
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	params := cfg.ConnConfig.RuntimeParams
	params["client_encoding"] = "UTF8"
	params["application_name"] = cmp.Or(params["application_name"], "stint")
	return cfg, nil
}

// ForPrograms returns a URL without a password for PostgreSQL's own programs, and the variables that complete it for them; of
// another database of that server, if other names one. Its errors have no part of a password.
func ForPrograms(text, other string) (url string, env []string, err error) {
	cfg, err := Parse(text)
	if err != nil {
		return "", nil, err
	}
	c := cfg.ConnConfig
	u, err := neturl.Parse(strings.TrimSpace(text))
	if err != nil || !isURL(strings.TrimSpace(text)) {
		return "", nil, task.Invalid("write one such as "+exampleURL, "PostgreSQL's programs need the database as a URL")
	}
	query := u.Query()
	query.Del("password")
	u.User, u.Path, u.RawQuery = neturl.User(c.User), "/"+cmp.Or(other, c.Database), query.Encode()
	if env = append(env, "PGPASSWORD="+c.Password); c.TLSConfig != nil && !c.TLSConfig.InsecureSkipVerify {
		env = append(env, "PGSSLMODE=verify-full") // where the URL says nothing
	}
	return u.String(), env, nil
}

// readURL has pgx read a connection string. It refuses what pgx reads in another way than
// it was meant: where a part of a password becomes a host or a database, it would be shown.
func readURL(text string) (*pgxpool.Config, error) {
	switch {
	case !isURL(text) && strings.Contains(text, "://"):
		return nil, task.Invalid("write one such as "+exampleURL, "the database URL does not begin with postgres:// or postgresql://")
	case isURL(text) && strings.Count(text, "@") > 1:
		return nil, task.Invalid("in user and password write @ as %40, / as %2F, : as %3A", "the database URL has more than one @")
	case isURL(text) && strings.ContainsFunc(text, unicode.IsControl):
		return nil, task.Invalid("percent-encode them, or remove them", "the database URL has control characters in it")
	}
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		// Of pgx's text only what pgx itself has written is shown: what follows a colon, a quote or a parenthesis may be
		// a piece of a password.
		why := "it is not valid"
		if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
			why = strings.TrimPrefix(strings.TrimPrefix(err.Error(), "cannot parse `"), parseFailure(parse.ConnString))
			why = strings.TrimSpace(why[:strings.IndexAny(why+"(", `:("`)])
		}
		if file, ok := errors.AsType[*fs.PathError](err); ok {
			why += ": a file that it, the environment or the service file names: " + file.Err.Error()
		}
		return nil, task.Invalid("write one such as "+exampleURL+"; look at the PG* variables and ~/.pg_service.conf too", "the database URL cannot be read: %s", why)
	}
	c := &cfg.ConnConfig.Config
	names := []string{c.Database, c.Host}
	for _, f := range c.Fallbacks {
		names = append(names, f.Host)
	}
	if slices.ContainsFunc(names, func(s string) bool { return strings.ContainsAny(s, "@?") }) {
		return nil, task.Invalid("in user and password write @ as %40, / as %2F, : as %3A", "a host or the name of the database in the database URL has an @ or a ? in it")
	}
	return cfg, nil
}

// isUnverified reports whether pgx would accept any certificate of a server elsewhere, or
// none, as it does where no sslmode is set.
func isUnverified(c *pgconn.Config) bool {
	hosts := append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for i, h := range hosts {
		addr, err := netip.ParseAddr(h.Host)
		isHere := strings.HasPrefix(h.Host, "/") || strings.EqualFold(h.Host, "localhost") || err == nil && addr.Unmap().IsLoopback()
		if isHere || h.TLSConfig == nil || !h.TLSConfig.InsecureSkipVerify || h.TLSConfig.VerifyPeerCertificate != nil {
			continue
		}
		plainNext := i+1 < len(hosts) && hosts[i+1].Host == h.Host && hosts[i+1].TLSConfig == nil
		if plainNext || c.SSLNegotiation == "direct" {
			return true
		}
	}
	return false
}

package dsn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/task"
)

// The canary is a password that no output may have; canaryMark is in all its spellings.
const (
	canary        = "c4n4ry:/?#[]@!p%w d"
	canaryEncoded = "c4n4ry%3A%2F%3F%23%5B%5D%40%21p%25w%20d"
	canaryMark    = "c4n4ry"
)

// everything returns all that a careless caller could print of an error.
func everything(err error) string {
	var b strings.Builder
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(&b, "%v\n%+v\n%#v\n%s\n%q\n", err, err, err, err.Error(), err.Error())
	}
	return b.String()
}

// brokenURLs are broken in as many ways, with a part of what is said about each.
var brokenURLs = []struct{ text, says string }{
	{"postgres://u:" + canaryMark + "\x00@h/db", "control characters"},
	{"password=" + canaryMark + "\x00 host=h", "failed to parse as keyword/value"},
	{"postgres://u:" + canaryMark + "\x1b[31m@h/db", "control characters"},
	{"postgres://u:" + canaryMark + " word@h/db", "failed to parse as URL"},
	{"mysql://u:" + canaryEncoded + "@h/db", "does not begin with postgres://"},
	{"jdbc:postgresql://h/db?user=u&password=" + canaryMark, "does not begin with postgres://"},
	{"POSTGRES://u:" + canaryEncoded + "@h/db?sslmode=disable", "does not begin with postgres://"},
	{"postgres:u:" + canaryEncoded + "@h/db", "failed to parse as keyword/value"},
	{canaryMark, "failed to parse as keyword/value"},
	{"u:" + canaryMark + "@h:5432/db", "failed to parse as keyword/value"},
	{"postgres://u:c4n4ry@word@h/db", "more than one @"},
	{"postgres://u@h/db?password=c4n4ry@word", "more than one @"},
	{"postgres://u:12/c4n4ry@h/db", "has an @ or a ? in it"},
	{"postgres://u:c4n4ry/word@h/db", "invalid port"},
	{"postgres://u:c4n4ry%zz@h/db", "failed to parse as URL"},
	{"postgres://u:c4n4ry%00@h/db", "failed to parse as URL"},
	{"postgres://u:c4n4ry", "invalid port"},
	{"postgres://u:c4n4ry@h:70000/db", "invalid port"},
	{"postgres://u:c4n4ry@h1:1,h2:2/db?port=1,2,3", "could not match 3 port numbers to 2 hosts"},
	{"postgres://u:c4n4ry@[::1/db", "failed to parse as URL"},
	{"postgres://u@h/db?password", "failed to parse as URL"},
	{"postgres://u@h/db?password=c4n4ry=word", "failed to parse as URL"},
	{"postgres://u:c4n4ry@h/db?sslmode=c4n4ry", "failed to configure TLS"},
	{"postgres://u:c4n4ry@h/db?target_session_attrs=c4n4ry", "unknown target_session_attrs value"},
	{"postgres://u:c4n4ry@h/db?connect_timeout=c4n4ry", "invalid connect_timeout"},
	{"host=postgres://u:c4n4ry@h/db", "does not begin with postgres://"},
	{"host=u:c4n4ry@h", "has an @ or a ? in it"},
	{"dbname=u:c4n4ry@h", "has an @ or a ? in it"},
	{"host=/sock?password=c4n4ry", "has an @ or a ? in it"},
	{"host=h password=" + canary, "failed to parse as keyword/value"},
	{"host=h password='c4n4ry", "failed to parse as keyword/value"},
	{"host=h sslmode='' password=c4n4ry", "an empty sslmode"},
	{"postgres://u:c4n4ry@h/db?sslmode=", "an empty sslmode"},
	{"host=h port=c4n4ry", "invalid port"},
	{"host=h password=c4n4ry require_auth=c4n4ry", "invalid require_auth"},
	{"host=h password=c4n4ry sslrootcert=/no/c4n4ry", "failed to configure TLS: a file that it, the environment or the service file names: no such file"},
	{"service=c4n4ry", "failed to read service"},
}

// TestBrokenURLs: a database URL that is refused is refused for what is wrong with it,
// and nothing that is said of it has its password.
func TestBrokenURLs(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, c := range brokenURLs {
		_, err := Parse(c.text)
		var told *task.Error
		if !errors.As(err, &told) || told.Code != task.CodeInvalid || told.Hint == "" || !strings.Contains(told.Message, c.says) {
			t.Errorf("%.60q: %v, want %q", c.text, err, c.says)
		}
		said := everything(err) + Redact(c.text)
		if strings.Contains(said, canaryMark) {
			t.Errorf("%.60q: its password is in\n%s", c.text, said)
		}
	}
}

// TestURLsAreReadAsPgxReadsThem: our defaults change nothing else.
func TestURLsAreReadAsPgxReadsThem(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, text := range []string{
		"postgres://u:p:q?r@h/db?sslmode=disable",
		"postgresql://u:a'b\\c%27@h/db?sslmode=require&application_name=x%20y",
		"postgres://h1:1,h2:2,h3/db?sslmode=disable&target_session_attrs=read-write",
		"postgres://u@[::1]:5433/db?sslmode=disable",
		"postgres:///db?host=/run/postgresql&port=5433&user=me",
		"postgres://h/db?user=u&password=x%26y&ssl=true",
		"postgres://h/db?sslmode=disable&search_path=a,b&statement_timeout=5000&options=-c%20jit%3Doff",
		`host=h dbname=db sslmode=disable password='it\'s \\'`,
		"host=h1,h2 port=1,2 dbname=db sslmode=disable default_query_exec_mode=exec",
	} {
		want, err := pgxpool.ParseConfig(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if g, w := described(got), described(want); g != w {
			t.Errorf("%q:\n got %s\nwant %s", text, g, w)
		}
	}
}

// described returns what of a configuration comes from a URL.
func described(cfg *pgxpool.Config) string {
	c := cfg.ConnConfig
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %q %q %q %v", c.Host, c.Port, c.User, c.Password, c.Database, c.TLSConfig != nil)
	for _, f := range c.Fallbacks {
		fmt.Fprintf(&b, ", %s %d %v", f.Host, f.Port, f.TLSConfig != nil)
	}
	for _, key := range []string{"search_path", "statement_timeout", "options"} {
		fmt.Fprintf(&b, " %s=%s", key, c.RuntimeParams[key])
	}
	return b.String()
}

func TestDefaultsOfAURL(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	cfg, err := Parse("postgres://u@db.example?application_name=")
	if err != nil {
		t.Fatal(err)
	}
	c := cfg.ConnConfig
	if c.Database != "cli_worker" || c.Port != 5432 || c.ConnectTimeout != 5*time.Second || c.RuntimeParams["application_name"] != "stint" {
		t.Errorf("%q %d %v %v", c.Database, c.Port, c.ConnectTimeout, c.RuntimeParams)
	}
	if cfg.HealthCheckPeriod < time.Minute || cfg.MinConns != 0 || cfg.MinIdleConns != 0 {
		t.Errorf("an idle pool wakes up: every %v, %d and %d connections", cfg.HealthCheckPeriod, cfg.MinConns, cfg.MinIdleConns)
	}
	t.Setenv("PGCONNECT_TIMEOUT", "9")
	t.Setenv("PGDATABASE", "fromenv")
	if cfg, err = Parse("postgres://u@h"); err != nil || cfg.ConnConfig.Database != "fromenv" || cfg.ConnConfig.ConnectTimeout != 9*time.Second {
		t.Errorf("of the environment: %v, %v", cfg.ConnConfig.Database, err)
	}
	if cfg, err = Parse("host=db.example connect_timeout=20 dbname=other application_name=mine"); err != nil {
		t.Fatal(err)
	}
	c = cfg.ConnConfig
	if c.Database != "other" || c.ConnectTimeout != 20*time.Second || c.RuntimeParams["application_name"] != "mine" {
		t.Errorf("%q %v %v", c.Database, c.ConnectTimeout, c.RuntimeParams)
	}
}

// TestTLSIsVerifiedUnlessTheServerIsHere: nothing goes over a network unencrypted, or to
// anybody who answers there, unless somebody has asked for it.
func TestTLSIsVerifiedUnlessTheServerIsHere(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for text, want := range map[string]string{
		"postgres://db.example/d":                           "verified",
		"postgres://10.0.0.7/d":                             "verified",
		"postgres://[2001:db8::1]/d":                        "verified",
		"postgres://localhost.example/d":                    "verified",
		"postgres://h1,h2/d":                                "verified verified",
		"postgres://localhost,h2/d":                         "verified verified",
		"postgres://db.example/d?sslnegotiation=direct":     "verified",
		"postgres://localhost/d":                            "any none",
		"postgres://127.0.0.2/d":                            "any none",
		"postgres://[::1]/d":                                "any none",
		"postgres://[::ffff:127.0.0.1]/d":                   "any none",
		"postgres:///d?host=/run/postgresql":                "none",
		"postgres://db.example/d?sslmode=disable":           "none",
		"postgres://db.example/d?sslmode=require":           "any",
		"postgres://db.example/d?sslmode=prefer":            "any none",
		"postgres://db.example/d?sslmode=verify-ca":         "signed",
		"postgres://db.example/d?sslmode=verify-full":       "verified",
		"postgres://db.example/d?sslrootcert=system":        "verified",
		"postgres://localhost/d?sslmode=verify-full":        "verified",
		"postgres://db.example/d?ssl=true":                  "any",
		"postgres:///d?host=/run/postgresql,db.example":     "none verified",
		"postgres://127.0.0.1,db.example/d?sslmode=disable": "none none",
		"postgres://db.example/d?sslmode=allow":             "none any",
	} {
		cfg, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := trust(&cfg.ConnConfig.Config); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	t.Setenv("PGSSLMODE", "disable")
	if cfg, err := Parse("postgres://db.example/d"); err != nil || trust(&cfg.ConnConfig.Config) != "none" {
		t.Errorf("PGSSLMODE=disable: %v", err)
	}
	t.Setenv("PGSSLMODE", "prefer")
	if cfg, err := Parse("postgres://db.example/d"); err != nil || trust(&cfg.ConnConfig.Config) != "verified" {
		t.Errorf("PGSSLMODE=prefer, which cannot be told from none: %v", err)
	}
}

// trust says of each server that is tried what is asked of its certificate.
func trust(c *pgconn.Config) string {
	all := append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	words := make([]string, 0, len(all))
	for _, f := range all {
		switch {
		case f.TLSConfig == nil:
			words = append(words, "none")
		case !f.TLSConfig.InsecureSkipVerify && f.TLSConfig.ServerName == f.Host, !f.TLSConfig.InsecureSkipVerify && strings.ContainsAny(f.Host, ":7"):
			words = append(words, "verified")
		case f.TLSConfig.VerifyPeerCertificate != nil:
			words = append(words, "signed")
		default:
			words = append(words, "any")
		}
	}
	return strings.Join(words, " ")
}

// FuzzURL: no text makes the reader panic, and no error or redacted text has the password.
func FuzzURL(f *testing.F) {
	for _, c := range brokenURLs {
		before, after, _ := strings.Cut(c.text, canaryMark)
		f.Add(before, after)
	}
	for _, s := range [][2]string{
		{"postgres://u:", "@h/db?sslmode=disable"},
		{"host=h password='", `\'' user=u`},
		{"postgres://u@h/?pass%77ord=", "&user=x"},
		{"password=a password=", " host=/x"},
		{"pAssword=", ""},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + canaryMark + after
		cfg, err := Parse(text)
		said := everything(err)
		if err == nil && strings.Contains(cfg.ConnConfig.Password, canaryMark) && strings.Count(text, canaryMark) == 1 {
			said = cfg.ConnConfig.Database + cfg.ConnConfig.Host + Redact(text)
		}
		if strings.Contains(said, canaryMark) {
			t.Errorf("%q: the password is in\n%s", text, said)
		}
	})
}

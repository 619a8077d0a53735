package postgres

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator"
)

// A canary is a password that no output may have.
const (
	canary        = "c4n4ry:/?#[]@!p%w d"
	canaryEncoded = "c4n4ry%3A%2F%3F%23%5B%5D%40%21p%25w%20d"
	canaryQuoted  = `'c4n4ry:/?#[]@!p%w d'`
	canaryMark    = "c4n4ry" // is in all its spellings
)

// everything gives all that a careless caller could print of an error.
func everything(err error) string {
	var b strings.Builder
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(&b, "%v\n%+v\n%#v\n%s\n%q\n", err, err, err, err.Error(), err.Error())
	}
	return b.String()
}

// home gives the test an empty home directory.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	return dir
}

// brokenURLs are broken in as many ways, with the words that tell each of them.
var brokenURLs = []struct{ text, says string }{
	{"", "is empty"},
	{"  \n", "is empty"},
	{"postgres://u:" + strings.Repeat(canaryMark, 2000) + "@h/db", "longer than 8192 bytes"},
	{"postgres://u:" + canaryMark + "\xff\xfe@h/db", "no UTF-8"},
	{"postgres://u:" + canaryMark + "\x00@h/db", "NUL"},
	{"password=" + canaryMark + "\x00 host=h", "NUL"},
	{"postgres://u:" + canaryMark + "\n@h/db", "control characters"},
	{"postgres://u:" + canaryMark + "\x1b[31m@h/db", "control characters"},
	{"postgres://u:" + canaryMark + " word@h/db", "has a blank"},
	{"mysql://u:" + canaryEncoded + "@h/db", "does not begin with postgres://"},
	{"jdbc:postgresql://h/db?user=u&password=" + canaryMark, "does not begin with postgres://"},
	{"postgres:/u:" + canaryEncoded + "@h/db", "does not begin with postgres://"},
	{"postgres:u:" + canaryEncoded + "@h/db", "does not begin with postgres://"},
	{"POSTGRES://u:" + canaryEncoded + "@h/db?sslmode=disable", "does not begin with postgres://"},
	{"//u:" + canaryEncoded + "@h/db", "neither a URL nor a list"},
	{canaryMark, "neither a URL nor a list"},
	{"u:" + canaryMark + "@h:5432/db", "neither a URL nor a list"},
	{"postgres://u:" + canary + "@h/db", "has a blank"},
	{"postgres://u:c4n4ry@word@h/db", "an @ where none can be"},
	{"postgres://u:12/c4n4ry@h/db", "an @ where none can be"},
	{"postgres://u:c4n4ry/word@h/db", "an @ where none can be"},
	{"postgres://u@h/db?password=c4n4ry@word", "an @ where none can be"},
	{"postgres://u:c4n4ry%zz@h/db", "the password in the database URL has a % without"},
	{"postgres://u:c4n4ry%4@h/db", "the password in the database URL has a % without"},
	{"postgres://u:c4n4ry%@h/db", "the password in the database URL has a % without"},
	{"postgres://u:c4n4ry%00@h/db", "the password in the database URL has a %00"},
	{"postgres://%u:c4n4ry@h/db", "the user in the database URL has a % without"},
	{"postgres://u:c4n4ry@h%/db", "the host in the database URL has a % without"},
	{"postgres://u:c4n4ry@h/d%b", "the name of the database in the database URL has a % without"},
	{"postgres://u@h/db?password=c4n4ry%", "the value of password in the database URL has a % without"},
	{"postgres://u:c4n4ry@h/db?%=1", "the name of a setting in the database URL has a % without"},
	{"postgres://u:c4n4ry@h:port/db", "the port in the database URL is no number"},
	{"postgres://u:c4n4ry@h:0/db", "the port in the database URL is no number"},
	{"postgres://u:c4n4ry@h:70000/db", "the port in the database URL is no number"},
	{"postgres://u:c4n4ry", "the port in the database URL is no number"},
	{"postgres://u:c4n4ry@::1/db", "the port in the database URL is no number"},
	{"postgres://u:c4n4ry@h1:1,h2:2/db?port=1,2,3", "another number of ports"},
	{"postgres://u:c4n4ry@[::1/db", "has no ] behind it"},
	{"postgres://u:c4n4ry@[::1]x/db", "has no ] behind it"},
	{"postgres://u:c4n4ry@[no]/db", "is no IPv6 address"},
	{"postgres://u:c4n4ry@h!/db", "a character that host names cannot have"},
	{"postgres://u:c4n4ry@h/db/more", "more behind the name of the database"},
	{"postgres://u:c4n4ry@h/db#top", "has a # in it"},
	{"postgres://u@h/db?password", "something other than key=value"},
	{"postgres://u@h/db?password=c4n4ry=word", "something other than key=value"},
	{"postgres://u@h/db?password=part&c4n4ry=1", "a setting whose name is not known"},
	{"postgres://u:c4n4ry@h/db?sslmod=disable", "a setting whose name is not known"},
	{"postgres://u:c4n4ry@h/db?gssencmode=disable", "the setting gssencmode in the database URL means nothing here"},
	{"postgres://u:c4n4ry@h/db?pool_max_conns=4", "the setting pool_max_conns in the database URL means nothing here"},
	{"postgres://u:c4n4ry@h/db?sslmode=c4n4ry", "sslmode in the database URL has a value that it cannot have"},
	{"postgres://u:c4n4ry@h/db?ssl=c4n4ry", "ssl in the database URL is something other than true"},
	{"postgres://u:c4n4ry@h/db?target_session_attrs=c4n4ry", "target_session_attrs in the database URL has a value"},
	{"postgres://u:c4n4ry@h/db?connect_timeout=c4n4ry", "connect_timeout in the database URL is no whole number"},
	{"postgres://u:c4n4ry@h/db?connect_timeout=-1", "connect_timeout in the database URL is no whole number"},
	{"postgres://u:c4n4ry@h/db?sslcert=c4n4ry", "one of sslcert and sslkey without the other"},
	{"postgres://u:c4n4ry@h/db?application_name=%0Ac4n4ry", "the value of application_name in the database URL has control characters"},
	{"host=postgres://u:c4n4ry@h/db", "a character that host names cannot have"},
	{"dbname=postgres://u:c4n4ry@h/db", "the value of dbname in the database URL is a URL itself"},
	{"dbname=u:c4n4ry@h", "the name of the database in the database URL has an @"},
	{"host=h password=" + canary, "a word without ="},
	{"host=h password=c4n4ry word=1", "a setting whose name is not known"},
	{"host=h password='c4n4ry", "has a ' without its other one"},
	{`host=h password='c4n4ry\'`, "has a ' without its other one"},
	{"host=h =c4n4ry", "a word without ="},
	{"host=h port=c4n4ry", "the port in the database URL is no number"},
	{"host=/sock?password=c4n4ry", "a character that host names cannot have"},
	{"host=h password=c4n4ry require_auth=c4n4ry", "not valid"},
	{"host=h password=c4n4ry sslrootcert=/no/c4n4ry", "a file with certificates or keys for PostgreSQL cannot be read: no such file"},
	{"service=c4n4ry", "service file that is to name the PostgreSQL server cannot be read"},
}

// TestBrokenURLs: a database URL that is refused is refused for what is wrong with it,
// and nothing that is said of it has its password.
func TestBrokenURLs(t *testing.T) {
	home(t)
	if len(brokenURLs) < 50 {
		t.Fatalf("%d broken URLs", len(brokenURLs))
	}
	for _, c := range brokenURLs {
		_, err := parseURL(c.text)
		var told *coordinator.Error
		if !errors.As(err, &told) || told.Code != coordinator.CodeInvalid || told.Hint == "" || !strings.Contains(told.Message, c.says) {
			t.Errorf("%.60q: %v, want %q", c.text, err, c.says)
			continue
		}
		said := everything(err) + everything(CheckURL(c.text)) + everything(explain(err, target{})) + Redact(c.text)
		if _, theirs := pgxpool.ParseConfig(c.text); theirs != nil {
			said += everything(explain(fmt.Errorf("wrapped: %w", theirs), target{}))
		}
		if _, theirs := url.Parse(c.text); theirs != nil {
			said += everything(explain(theirs, target{}))
		}
		if strings.Contains(strings.ReplaceAll(said, "sslrootcert=/no/c4n4ry", ""), canaryMark) && !isPublic(c.text) {
			t.Errorf("%.60q: its password is in\n%s", c.text, said)
		}
	}
}

// isPublic reports whether Redact may show a canary: where it is no password's.
func isPublic(text string) bool {
	c, err := readConnString(text)
	if err != nil {
		return false
	}
	for key, value := range c.settings {
		if !isSecret(key) && strings.Contains(value, canaryMark) {
			return true
		}
	}
	return false
}

// TestURLsAreReadAsPgxReadsThem: what is right goes to pgx with nothing changed.
func TestURLsAreReadAsPgxReadsThem(t *testing.T) {
	home(t)
	for _, text := range []string{
		"postgres://u:" + canaryEncoded + "@h:6543/db?sslmode=disable",
		"postgresql://u:a'b\\c%27@h/db?sslmode=require&connect_timeout=7&application_name=x%20y",
		"postgres://u:p:q?r@h/db?sslmode=disable",
		"postgres://h1:1,h2:2,h3/db?sslmode=disable&target_session_attrs=read-write",
		"postgres://u@[::1]:5433/db?sslmode=disable",
		"postgres://%2Frun%2Fpostgresql/db",
		"postgres:///db?host=/run/postgresql&port=5433&user=me",
		"postgres://h/db?user=u&password=x%26y&ssl=true",
		"postgres://h/db?ssl=true&sslmode=disable",
		"postgres://h/db?sslmode=disable&search_path=a,b&statement_timeout=5000&options=-c%20jit%3Doff",
		"host=h user=u password=" + canaryQuoted + " dbname=db sslmode=disable",
		"host = h\n user = u\tpassword=a\\ b\\'c dbname='my db' sslmode=disable ",
		`host=h dbname=db sslmode=disable password='it\'s \\'`,
		"host=h1,h2 port=1,2 dbname=db sslmode=disable default_query_exec_mode=exec",
		"host=h dbname=db sslmode=disable user='' password=''",
	} {
		want, err := pgxpool.ParseConfig(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		got, err := parseURL(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if g, w := described(got), described(want); g != w {
			t.Errorf("%q:\n got %s\nwant %s", text, g, w)
		}
	}
}

// described gives what of a configuration comes from a URL.
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
	home(t)
	cfg, err := parseURL("postgres://u@db.example?application_name=")
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
	if cfg, err = parseURL("host=db.example connect_timeout=20 dbname=other application_name=mine"); err != nil {
		t.Fatal(err)
	}
	c = cfg.ConnConfig
	if c.Database != "other" || c.ConnectTimeout != 20*time.Second || c.RuntimeParams["application_name"] != "mine" {
		t.Errorf("%q %v %v", c.Database, c.ConnectTimeout, c.RuntimeParams)
	}
}

// TestSurroundingsOfAURL: PG* variables, the service file and ~/.pgpass say what the URL
// leaves out, the password for our default database among it.
func TestSurroundingsOfAURL(t *testing.T) {
	dir := home(t)
	write(t, filepath.Join(dir, ".pgpass"), "db.example:5432:cli_worker:u:"+canaryMark+"\n")
	write(t, filepath.Join(dir, ".pg_service.conf"), "[prod]\nhost=svc.example\ndbname=audit\nuser=s\nsslmode=disable\n[bad]\nsslmode=maybe\n")
	cfg, err := parseURL("postgres://u@db.example")
	if err != nil || cfg.ConnConfig.Password != canaryMark {
		t.Errorf("~/.pgpass was not read for cli_worker: %v", err)
	}
	if cfg, err = parseURL("service=prod"); err != nil {
		t.Fatal(err)
	} else if c := cfg.ConnConfig; c.Host != "svc.example" || c.Database != "audit" || c.User != "s" || c.TLSConfig != nil {
		t.Errorf("of the service: %v", targetOf(cfg))
	}
	for text, says := range map[string]string{"service=none": "has no service of the name", "service=bad host=h": "PGSSLMODE, or sslmode in the service file"} {
		if _, err := parseURL(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	t.Setenv("PGDATABASE", "fromenv")
	t.Setenv("PGHOST", "env.example")
	t.Setenv("PGCONNECT_TIMEOUT", "9")
	if cfg, err = parseURL("postgres://u@"); err != nil {
		t.Fatal(err)
	} else if c := cfg.ConnConfig; c.Host != "env.example" || c.Database != "fromenv" || c.ConnectTimeout != 9*time.Second {
		t.Errorf("of the environment: %v", targetOf(cfg))
	}
	t.Setenv("PGPORT", canaryMark)
	if _, err = parseURL("postgres://u@"); err == nil || strings.Contains(everything(err), canaryMark) {
		t.Errorf("a wrong PGPORT: %v", err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLSIsVerifiedUnlessTheServerIsHere: nothing goes over a network unencrypted, or to
// anybody who answers there, unless somebody has asked for it.
func TestTLSIsVerifiedUnlessTheServerIsHere(t *testing.T) {
	home(t)
	for text, want := range map[string]string{
		"postgres://db.example/d":                           "verified",
		"postgres://10.0.0.7/d":                             "verified",
		"postgres://[2001:db8::1]/d":                        "verified",
		"postgres://localhost.example/d":                    "verified",
		"postgres://h1,h2/d":                                "verified verified",
		"postgres://localhost,h2/d":                         "verified verified",
		"host=db.example sslmode=''":                        "verified",
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
		"postgres://db.example/d?sslmode=disable&ssl=true":  "any",
		"postgres:///d?host=/run/postgresql,db.example":     "none verified",
		"postgres://127.0.0.1,db.example/d?sslmode=disable": "none none",
		"postgres://db.example/d?sslmode=allow":             "none any",
	} {
		cfg, err := parseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := trust(&cfg.ConnConfig.Config); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	t.Setenv("PGSSLMODE", "disable")
	if cfg, err := parseURL("postgres://db.example/d"); err != nil || trust(&cfg.ConnConfig.Config) != "none" {
		t.Errorf("PGSSLMODE=disable: %v", err)
	}
	t.Setenv("PGSSLMODE", "prefer")
	if cfg, err := parseURL("postgres://db.example/d"); err != nil || trust(&cfg.ConnConfig.Config) != "verified" {
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

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://u:" + canaryEncoded + "@h:1/db?sslmode=disable":                        "postgres://u:***@h:1/db?sslmode=disable",
		" postgres://u@h/db?password=" + canaryEncoded + "&user=v \n":                      "postgres://u@h/db?password=***&user=v",
		"postgres://u:c4n4ry@h/db?pass%77ord=c4n4ry&sslpassword=c4n4ry&sslcert=a&sslkey=b": "postgres://u:***@h/db?pass%77ord=***&sslpassword=***&sslcert=a&sslkey=b",
		"host=h password=" + canaryQuoted + " user=u":                                      "host=h password=*** user=u",
		`host=h password = c4n4ry\ word  user=u`:                                           `host=h password = ***  user=u`,
		"postgres://u@h/db":                                                                "postgres://u@h/db",
		"postgres://u:@h/db":                                                               "postgres://u:@h/db",
		"postgres://u:c4n4ry@h:x/db":                                                       "***",
		"c4n4ry":                                                                           "***",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if has := strings.Contains(want, "***") && want != "***"; HasPassword(text) != has {
			t.Errorf("HasPassword(%q): %v", text, !has)
		}
	}
}

// wantSameServer fails the test if pgx reads another server, user or password from a text.
// An empty user is none to pgx and the account's name to libpq and us.
func wantSameServer(t *testing.T, text string, cfg *pgxpool.Config) {
	t.Helper()
	theirs, err := pgxpool.ParseConfig(strings.TrimSpace(text))
	if err != nil {
		return // we take some that it does not, such as && in a query
	}
	got, want := cfg.ConnConfig, theirs.ConnConfig
	if got.Host != want.Host || got.Port != want.Port || got.Password != want.Password ||
		want.User != "" && got.User != want.User || want.Database != "" && got.Database != want.Database {
		t.Errorf("%q: %v, %q; pgx: %v, %q", text, targetOf(cfg), got.Password, targetOf(theirs), want.Password)
	}
}

// FuzzURL: no text makes the reader panic or show a password, and what it takes, it reads
// as pgx does.
func FuzzURL(f *testing.F) {
	for _, c := range brokenURLs {
		before, after, _ := strings.Cut(c.text, canaryMark)
		f.Add(before, after)
	}
	for _, s := range [][2]string{
		{"postgres://u:", "@h/db?sslmode=disable"},
		{"host=h password='", `\'' user=u`},
		{"postgres://u@h/?pass%77ord=", "&user=x"},
		{"postgres://u:p@h1,h2:1/", ""},
		{"password=a password=", " host=/x"},
		{"pAssword=", ""},
		{"postgres://?pass%77ord=", "&user="},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + canaryMark + after
		err := CheckURL(text)
		said := everything(err) + everything(explain(err, target{}))
		if cfg, parseErr := parseURL(text); parseErr == nil {
			said += everything(noAnswer(target{secrets: targetOf(cfg).secrets}, time.Second))
			wantSameServer(t, text, cfg)
		} else {
			said += everything(parseErr)
		}
		if HasPassword(text) && err != nil {
			t.Errorf("%q: refused, and said to have a password", text)
		}
		if !isPublic(text) && !strings.Contains(strings.ToLower(text), "sslrootcert") {
			if c, err := readConnString(text); err != nil || slices.ContainsFunc(c.secrets, func(s span) bool { return strings.Contains(strings.TrimSpace(text)[s.from:s.to], canaryMark) }) {
				said += Redact(text)
			}
		}
		if strings.Contains(said, canaryMark) {
			t.Errorf("%q: the password is in\n%s", text, said)
		}
	})
}

package postgres

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A target names a database for people, and knows what must not be shown of it.
type target struct {
	database, host string // host: a name, an address, or the directory of a socket
	port           uint16
	user           string
	secrets        *secrets // a pointer, so that %+v of a target shows none of them
}

// String gives "cli_worker at db.example:5432" or "cli_worker at /run/postgresql"; no
// user and no password.
func (t target) String() string {
	switch {
	case t.host == "":
		return "the database"
	case strings.HasPrefix(t.host, "/") && t.port == defaultPort:
		return oneLine(t.database + " at " + t.host)
	default:
		return oneLine(t.database + " at " + t.address())
	}
}

// address gives host and port, or the path of a socket.
func (t target) address() string {
	port := strconv.Itoa(int(t.port))
	if strings.HasPrefix(t.host, "/") {
		return strings.TrimSuffix(t.host, "/") + "/.s.PGSQL." + port
	}
	return net.JoinHostPort(t.host, port)
}

// targetOf names the database of a configuration.
func targetOf(cfg *pgxpool.Config) target {
	c := cfg.ConnConfig
	return target{database: c.Database, host: c.Host, port: c.Port, user: c.User, secrets: secretsOf(c.Password)}
}

// secrets are the spellings of passwords that must not be shown, the longest first.
type secrets struct{ spellings []string }

// minSecret is the length in bytes from which on a password is looked for in a text: a
// shorter one stands in ordinary words.
const minSecret = 3

// secretsOf gives the spellings of a password: as it is, and percent-encoded.
func secretsOf(password string) *secrets {
	s := &secrets{}
	if len(password) < minSecret {
		return s
	}
	var all strings.Builder
	for i := range len(password) {
		all.WriteString("%" + string("0123456789ABCDEF"[password[i]>>4]) + string("0123456789ABCDEF"[password[i]&15]))
	}
	s.spellings = []string{
		password, url.QueryEscape(password), url.PathEscape(password), url.UserPassword("", password).String()[1:],
		strconv.Quote(password), all.String(), strings.ToLower(all.String()),
	}
	slices.SortFunc(s.spellings, func(a, b string) int { return len(b) - len(a) })
	return s
}

// credentials fits where a password stands in a connection string, which no text that
// is shown should have.
var credentials = pattern(`(://)[^@\s]*@|((?i:password)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)

// scrub makes a text that came from elsewhere fit to be shown: one line, without control
// characters, of at most maxSaid characters, and with *** for passwords. s may be nil.
func (s *secrets) scrub(text string) string {
	if s != nil {
		for _, spelling := range s.spellings {
			text = strings.ReplaceAll(text, spelling, "***")
		}
	}
	return short(oneLine(credentials().ReplaceAllString(text, "$1$2***")))
}

// maxSaid bounds what is shown of a text that came from elsewhere, in characters.
const maxSaid = 300

func short(text string) string {
	if utf8.RuneCountInString(text) <= maxSaid {
		return text
	}
	return string([]rune(text)[:maxSaid]) + "…"
}

// oneLine gives a text as valid UTF-8 on one line, without control characters.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

// pattern compiles a regular expression when it is first needed: most commands have no
// use for it.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

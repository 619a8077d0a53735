package postgres

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"stint/coordinator"
)

// A connString is what the text of a database URL says, and where its secrets stand.
//
// The text is read here and not by pgx, as an error of pgx or of net/url shows what it
// could not read, and that may be the password. No sentence of this file has any part
// of the text in it but for the names of settings that are known.
type connString struct {
	settings map[string]string // by libpq's keywords, with their values decoded
	secrets  []span
}

// A span is a part of a text: [from, to).
type span struct{ from, to int }

// maxURL bounds the text of a URL, in bytes.
const maxURL = 8 << 10

const exampleURL = "postgres://stint@db.example/cli_worker"

// CheckURL reports what is wrong with the syntax of a database URL, or of a libpq
// keyword/value string. Nothing but the text is looked at: no file, no environment. The
// error is a *coordinator.Error, and has no part of a password.
func CheckURL(text string) error {
	_, err := readConnString(text)
	return err
}

// HasPassword reports whether the text of a database URL has a password in it. One that
// CheckURL refuses has none that could be told.
func HasPassword(text string) bool {
	c, err := readConnString(text)
	return err == nil && (c.settings["password"] != "" || c.settings["sslpassword"] != "")
}

// Redact gives the text of a database URL with *** for its passwords, and *** for all of
// it where CheckURL refuses it, as nobody can tell then where its password ends.
func Redact(text string) string {
	c, err := readConnString(text)
	if err != nil {
		return "***"
	}
	text = strings.TrimSpace(text)
	slices.SortFunc(c.secrets, func(a, b span) int { return b.from - a.from })
	for _, s := range c.secrets {
		text = text[:s.from] + "***" + text[s.to:]
	}
	return text
}

// badURL gives the error of a URL.
func badURL(hint, format string, args ...any) error {
	return &coordinator.Error{Code: coordinator.CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// readConnString reads a URL or a keyword/value string and checks its settings. Offsets
// are those in the text without the blanks around it.
func readConnString(text string) (*connString, error) {
	text = strings.TrimSpace(text)
	c := &connString{settings: map[string]string{}}
	read, err := c.form(text)
	if err == nil {
		err = read(text)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// form decides how a text is to be read.
func (c *connString) form(text string) (read func(string) error, err error) {
	equals := strings.IndexByte(text, '=')
	scheme := strings.Index(text, "://")
	switch {
	case text == "":
		return nil, badURL("write one such as "+exampleURL, "the database URL is empty")
	case len(text) > maxURL:
		return nil, badURL("write one such as "+exampleURL, "the database URL is longer than %d bytes", maxURL)
	case !utf8.ValidString(text):
		return nil, badURL("percent-encode those bytes", "the database URL has bytes that are no UTF-8")
	case strings.Contains(text, "\x00"):
		return nil, badURL("remove it", "the database URL has a NUL character in it")
	case strings.HasPrefix(text, "postgres://"), strings.HasPrefix(text, "postgresql://"):
		return c.readURL, nil
	case strings.HasPrefix(strings.ToLower(text), "postgres"), scheme >= 0 && (equals < 0 || scheme < equals):
		return nil, badURL("write one such as "+exampleURL, "the database URL does not begin with postgres:// or postgresql://")
	case equals < 0:
		return nil, badURL("write one such as "+exampleURL, "the database URL is neither a URL nor a list such as host=db.example user=stint")
	default:
		return c.readKeywords, nil
	}
}

// readURL reads postgres://user:password@host:port,host:port/database?key=value, where
// each part may be absent, the way that libpq and pgx do.
func (c *connString) readURL(text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return badURL("percent-encode them, or remove them", "the database URL has control characters in it")
	}
	if strings.Contains(text, " ") {
		return badURL("write a blank as %20", "the database URL has a blank in it")
	}
	at := strings.Index(text, "://") + len("://")
	at, err := c.readUserinfo(text, at)
	if err != nil {
		return err
	}
	rest := text[at:]
	if strings.Contains(rest, "@") {
		return badURL("in user and password write @ as %40, / as %2F, : as %3A", "the database URL has an @ where none can be")
	}
	if strings.Contains(rest, "#") {
		return badURL("write # as %23", "the database URL has a # in it")
	}
	rest, query, _ := strings.Cut(rest, "?")
	netloc, path, _ := strings.Cut(rest, "/")
	if err := c.readHosts(netloc); err != nil {
		return err
	}
	if strings.Contains(path, "/") {
		return badURL("write / in its name as %2F", "the database URL has more behind the name of the database")
	}
	if path != "" {
		if c.settings["dbname"], err = percentDecode(path, "the name of the database"); err != nil {
			return err
		}
	}
	return c.readQuery(query, len(text)-len(query))
}

// readUserinfo reads user:password@ where there is one, and gives the place behind it.
func (c *connString) readUserinfo(text string, at int) (end int, err error) {
	i := strings.IndexAny(text[at:], "@/")
	if i < 0 || text[at+i] != '@' {
		return at, nil
	}
	user, password, _ := strings.Cut(text[at:at+i], ":")
	if user != "" {
		if c.settings["user"], err = percentDecode(user, "the user"); err != nil {
			return 0, err
		}
	}
	if password != "" {
		if c.settings["password"], err = percentDecode(password, "the password"); err != nil {
			return 0, err
		}
		c.secrets = append(c.secrets, span{at + i - len(password), at + i})
	}
	return at + i + 1, nil
}

// readHosts reads host:port,host:port.
func (c *connString) readHosts(netloc string) error {
	var hosts, ports []string
	for part := range strings.SplitSeq(netloc, ",") {
		host, port := part, ""
		if strings.HasPrefix(part, "[") {
			inside, after, closed := strings.Cut(part[1:], "]")
			if !closed || (after != "" && after[0] != ':') {
				return badURL("write it such as postgres://[::1]:5432/cli_worker", "the IPv6 address in the database URL has no ] behind it")
			}
			host, port = inside, strings.TrimPrefix(after, ":")
			if !isIPv6(host) {
				return badURL("write it such as postgres://[::1]:5432/cli_worker", "what stands in [ ] in the database URL is no IPv6 address")
			}
		} else {
			host, port, _ = strings.Cut(part, ":")
		}
		host, err := percentDecode(host, "the host")
		if err != nil {
			return err
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	if list := strings.Join(hosts, ","); list != "" {
		c.settings["host"] = list
	}
	if list := strings.Join(ports, ","); list != "" {
		c.settings["port"] = list
	}
	return nil
}

// isIPv6 reports whether that is an address as it stands between brackets, its zone
// percent-encoded or not.
func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(strings.Replace(s, "%25", "%", 1))
	return err == nil && addr.Is6()
}

// readQuery reads key=value&key=value, which begins at that place of the text.
func (c *connString) readQuery(query string, at int) error {
	last := "" // of ssl and sslmode
	for pair := range strings.SplitSeq(query, "&") {
		rawKey, rawValue, found := strings.Cut(pair, "=")
		from := at + len(rawKey) + 1
		at += len(pair) + 1
		if pair == "" {
			continue
		}
		if !found || strings.Contains(rawValue, "=") {
			return badURL("write & as %26, = as %3D", "behind the ? of the database URL stands something other than key=value")
		}
		key, err := percentDecode(rawKey, "the name of a setting")
		if err != nil {
			return err
		}
		if key, err = knownKey(key, true); err != nil {
			return err
		}
		if c.settings[key], err = percentDecode(rawValue, "the value of "+key); err != nil {
			return err
		}
		if isSecret(key) {
			c.secrets = append(c.secrets, span{from, from + len(rawValue)})
		}
		if key == "ssl" || key == "sslmode" {
			last = key
		}
	}
	return c.readSSL(last)
}

// readSSL takes JDBC's ssl=true as sslmode=require, unless an sslmode stands behind it.
func (c *connString) readSSL(last string) error {
	value, there := c.settings["ssl"]
	delete(c.settings, "ssl")
	if there && value != "true" {
		return badURL("write sslmode=disable, sslmode=require or sslmode=verify-full", "ssl in the database URL is something other than true")
	}
	if last == "ssl" {
		c.settings["sslmode"] = "require"
	}
	return nil
}

// percentDecode decodes a part of a URL, which the error names by what.
func percentDecode(raw, what string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			b.WriteByte(raw[i])
			continue
		}
		if i+2 >= len(raw) {
			return "", badPercent(what)
		}
		n, err := strconv.ParseUint(raw[i+1:i+3], 16, 8)
		if err != nil {
			return "", badPercent(what)
		}
		if n == 0 {
			return "", badURL("remove it", "%s in the database URL has a %%00, which PostgreSQL cannot hold", what)
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), nil
}

func badPercent(what string) error {
	return badURL("write % itself as %25", "%s in the database URL has a %% without two hexadecimal digits behind it", what)
}

// blanks are what separates settings in a keyword/value string.
const blanks = " \t\n\r\v\f"

// readKeywords reads key=value key='value with blanks'.
func (c *connString) readKeywords(text string) error {
	for at := 0; at < len(text); {
		rawKey, _, found := strings.Cut(text[at:], "=")
		key := strings.Trim(rawKey, blanks)
		if !found || key == "" || strings.ContainsAny(key, blanks) {
			return badURL("a value with blanks in it stands in single quotes", "the database URL has a word without = in its list of settings")
		}
		key, err := knownKey(key, false)
		if err != nil {
			return err
		}
		at += len(rawKey) + 1
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], blanks))
		value, end, err := keywordValue(text, at)
		if err != nil {
			return err
		}
		if isSecret(key) {
			c.secrets = append(c.secrets, span{at, end})
		}
		if key != "user" || value != "" { // as libpq, which takes the account's name then
			c.settings[key] = value
		}
		at = end + len(text[end:]) - len(strings.TrimLeft(text[end:], blanks))
	}
	return nil
}

// keywordValue reads the value at that place, in quotes or not, and gives the place
// behind it. A backslash takes the character behind it as it is.
func keywordValue(text string, at int) (value string, end int, err error) {
	quoted := at < len(text) && text[at] == '\''
	if quoted {
		at++
	}
	var b strings.Builder
	for ; at < len(text); at++ {
		switch ch := text[at]; {
		case ch == '\\' && at+1 < len(text):
			at++
			b.WriteByte(text[at])
		case ch == '\\':
			// At the very end it stands for nothing.
		case quoted && ch == '\'':
			return b.String(), at + 1, nil
		case !quoted && strings.IndexByte(blanks, ch) >= 0:
			return b.String(), at, nil
		default:
			b.WriteByte(ch)
		}
	}
	if quoted {
		return "", 0, badURL(`a ' inside of quotes is written \'`, "the database URL has a ' without its other one")
	}
	return b.String(), at, nil
}

// keywords gives the settings as a keyword/value string, for pgx.
func (c *connString) keywords() string {
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c.settings)) {
		fmt.Fprintf(&b, "%s='%s' ", key, quote.Replace(c.settings[key]))
	}
	return b.String()
}

func isSecret(key string) bool { return key == "password" || key == "sslpassword" }

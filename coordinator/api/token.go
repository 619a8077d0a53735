package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"stint/ledger/durable"
)

// A Token is the bearer token of a state directory: 256 random bits in a file that
// its user alone can read. It is read anew as soon as the file is another one, so
// that a rotation counts at once. It is safe for concurrent use.
type Token struct {
	path string

	mu   sync.Mutex // guards what follows
	info fs.FileInfo
	text string
}

// tokenBytes is the size of a token before it is written in base64.
const tokenBytes = 32

// OpenToken gives the token in the file at path, which is made if it is missing. The
// error is a [*coordinator.Error] if the file is not as it must be.
func OpenToken(path string) (*Token, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := firstToken(path); err != nil {
			return nil, err
		}
	}
	t := &Token{path: path}
	_, err := t.Text()
	return t, err
}

// firstToken makes a token, unless somebody else has made one meanwhile: then that one
// counts, which may have been given to somebody already.
func firstToken(path string) error {
	own := path + "." + randomText(8)
	if err := RotateToken(own); err != nil {
		return err
	}
	err := os.Link(own, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err := errors.Join(err, os.Remove(own)); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return nil
}

// RotateToken puts a new token into the file at path. The old one, and every browser
// that was let in with it, counts no more as soon as this returns.
func RotateToken(path string) error {
	if err := durable.WriteFile(durable.OS, path, []byte(randomText(tokenBytes)+"\n")); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return nil
}

// randomText gives n random bytes in base64, as it may stand in a URL.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Text gives the token as it is in the file now.
func (t *Token) Text() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Lstat(t.path)
	if err != nil {
		return "", badToken(t.path, "cannot be read: "+plain(err))
	}
	if t.info != nil && os.SameFile(info, t.info) && info.ModTime().Equal(t.info.ModTime()) && info.Size() == t.info.Size() && info.Mode() == t.info.Mode() {
		return t.text, nil
	}
	t.info = nil
	text, err := readToken(t.path, info)
	if err == nil {
		t.text, t.info = text, info
	}
	return text, err
}

// readToken reads a token's file, which must be ours alone: whoever could write there
// would choose the token.
func readToken(path string, info fs.FileInfo) (string, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return "", badToken(path, "is no file")
	case !ok || int(st.Uid) != os.Getuid():
		return "", badToken(path, "belongs to another user")
	case info.Mode().Perm()&0o077 != 0:
		return "", badToken(path, "can be read by other users")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", badToken(path, "cannot be read: "+plain(err))
	}
	text := strings.TrimSuffix(string(data), "\n")
	if raw, err := base64.RawURLEncoding.DecodeString(text); err != nil || len(raw) != tokenBytes {
		return "", badToken(path, "holds no token")
	}
	return text, nil
}

func badToken(path, what string) error {
	return invalid("the file of the token, "+path+", "+what, "stint token rotate")
}

// plain gives what the system says about a file, without its name.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// isToken reports whether given is the present token.
func (t *Token) isToken(given string) bool {
	text, err := t.Text()
	return err == nil && equalText(given, text)
}

// equalText compares in a time that does not depend on what the texts are.
func equalText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// browserTime is how long a browser stays let in.
const browserTime = 7 * 24 * time.Hour

// cookie gives what a browser is to send from now on: when it ends, something random,
// and the proof that both are from who has the token. Nothing is kept, so it outlives
// the master, and counts no more when the token is another one.
func (t *Token) cookie(now time.Time) (string, error) {
	text, err := t.Text()
	if err != nil {
		return "", err
	}
	body := strconv.FormatInt(now.Add(browserTime).Unix(), 10) + "." + randomText(16)
	return body + "." + proof(text, "cookie "+body), nil
}

// isCookie reports whether value is a cookie of the present token that has not ended.
func (t *Token) isCookie(value string, now time.Time) bool {
	text, err := t.Text()
	if err != nil {
		return false
	}
	i := strings.LastIndexByte(value, '.')
	if i < 0 || !equalText(value[i+1:], proof(text, "cookie "+value[:i])) {
		return false
	}
	until, _, _ := strings.Cut(value, ".")
	end, err := strconv.ParseInt(until, 10, 64)
	return err == nil && now.Unix() < end
}

// pageKey gives what a page has to show beside its cookie before it may change
// anything: browsers send the cookies of a host to all of its ports, so whoever listens
// at another one may come to have the cookie, but never this.
func (t *Token) pageKey(cookie string) (string, error) {
	text, err := t.Text()
	return proof(text, "page "+cookie), err
}

// isPageKey reports whether given is the page key of a cookie.
func (t *Token) isPageKey(given, cookie string) bool {
	key, err := t.pageKey(cookie)
	return err == nil && equalText(given, key)
}

// proof is the code for a text that only who has the token can make.
func proof(token, text string) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("stint " + text)) // a hash takes all
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Codes are what lets a browser in, once each.
const (
	codeTime = time.Minute // from when it was given out
	maxCodes = 16          // that wait for their browser
)

// codes are the one-time codes that have been given out. It is safe for concurrent use.
type codes struct {
	mu    sync.Mutex
	until map[string]time.Time // guarded by mu
}

// add gives a new code. Of too many that wait, the oldest counts no more.
func (c *codes) add(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = map[string]time.Time{}
	}
	oldest := ""
	for code, until := range c.until {
		if !now.Before(until) {
			delete(c.until, code)
		} else if oldest == "" || until.Before(c.until[oldest]) {
			oldest = code
		}
	}
	if len(c.until) >= maxCodes {
		delete(c.until, oldest)
	}
	code := randomText(16)
	c.until[code] = now.Add(codeTime)
	return code
}

// take reports whether a code counts, which it does once.
func (c *codes) take(code string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for known, until := range c.until {
		if equalText(known, code) {
			delete(c.until, known)
			return now.Before(until)
		}
	}
	return false
}

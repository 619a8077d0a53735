package api

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
)

func newToken(t testing.TB) *Token {
	t.Helper()
	token, err := OpenToken(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func textOf(t testing.TB, token *Token) string {
	t.Helper()
	text, err := token.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTokenIsMadeOnceForItsUserAlone(t *testing.T) {
	token := newToken(t)
	text := textOf(t, token)
	fi, err := os.Stat(token.path)
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	again, err := OpenToken(token.path)
	if err != nil || textOf(t, again) != text || len(text) != 43 {
		t.Errorf("%v %d characters", err, len(text))
	}
}

// TestFirstTokenIsOne: whoever makes it first, all who ask have the same.
func TestFirstTokenIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	const callers = 20
	texts, begin := make(chan string, callers), make(chan struct{})
	for range callers {
		go func() {
			<-begin
			text := ""
			if token, err := OpenToken(path); err == nil {
				text, _ = token.Text()
			}
			texts <- text
		}()
	}
	close(begin)
	first := <-texts
	for range callers - 1 {
		if text := <-texts; text != first || text == "" {
			t.Errorf("%q is not %q", text, first)
		}
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// TestRotationCountsAtOnce: for the token, and for the browsers that it let in.
func TestRotationCountsAtOnce(t *testing.T) {
	token, now := newToken(t), time.Now()
	old := textOf(t, token)
	cookie, err := token.cookie(now)
	if err != nil || !token.isToken(old) || !token.isCookie(cookie, now) {
		t.Fatal("the present token does not count", err)
	}
	if err := RotateToken(token.path); err != nil {
		t.Fatal(err)
	}
	if token.isToken(old) || token.isCookie(cookie, now) || !token.isToken(textOf(t, token)) {
		t.Error("the old token still counts, or the new one does not")
	}
}

func TestBadTokenFiles(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"can be read by other users": func(p string) error { return os.Chmod(p, 0o644) },
		"holds no token":             func(p string) error { return os.WriteFile(p, []byte("secret\n"), 0o600) },
		"cannot be read: no such":    os.Remove,
		"is no file": func(p string) error {
			return errors.Join(os.Rename(p, p+"1"), os.Symlink(p+"1", p))
		},
	} {
		token := newToken(t)
		text := textOf(t, token)
		if err := spoil(token.path); err != nil {
			t.Fatal(err)
		}
		_, err := token.Text()
		var e *coordinator.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, name) || e.Hint != "stint token rotate" || token.isToken(text) || token.isToken("") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCookies(t *testing.T) {
	token, now := newToken(t), time.Now()
	good, err := token.cookie(now)
	if err != nil {
		t.Fatal(err)
	}
	later, _, _ := strings.Cut(good, ".")
	for _, bad := range []string{"", ".", "..", good + "x", "9" + good, strings.Replace(good, later, "99999999999", 1), textOf(t, token)} {
		if token.isCookie(bad, now) {
			t.Errorf("%q counts", bad)
		}
	}
	if token.isCookie(good, now.Add(browserTime+time.Second)) || !token.isCookie(good, now.Add(browserTime-time.Minute)) {
		t.Error("a cookie does not end when it should")
	}
}

func TestCodesCountOnceAndNotForLong(t *testing.T) {
	var c codes
	now := time.Now()
	first, second := c.add(now), c.add(now)
	if c.take("", now) || c.take(first+"x", now) || !c.take(first, now) || c.take(first, now) {
		t.Error("a code does not count just once")
	}
	if c.take(second, now.Add(codeTime)) || c.take(second, now) {
		t.Error("a code that is too old counts")
	}
	oldest := c.add(now)
	for i := range maxCodes {
		c.add(now.Add(time.Duration(i+1) * time.Millisecond))
	}
	if c.take(oldest, now) || len(c.until) != maxCodes {
		t.Error("codes pile up")
	}
}

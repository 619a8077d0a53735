package guard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/task"
)

func newToken(t testing.TB) *Token {
	t.Helper()
	token, err := OpenToken(filepath.Join(t.TempDir(), "token"))
	must(t, err)
	return token
}

func textOf(t testing.TB, token *Token) string {
	t.Helper()
	text, err := token.Text()
	must(t, err)
	return text
}

// TestFirstTokenIsOne: whoever makes it first, all who ask have the same, for its user alone.
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
		if text := <-texts; text != first || len(text) != 43 {
			t.Errorf("%q is not %q", text, first)
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// TestRotationCountsAtOnce: for browsers see TestStolenCookieChangesNothing.
func TestRotationCountsAtOnce(t *testing.T) {
	token := newToken(t)
	old := textOf(t, token)
	if !token.isToken(old) {
		t.Fatal("the present token does not count")
	}
	must(t, RotateToken(token.path))
	if token.isToken(old) || !token.isToken(textOf(t, token)) {
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
		must(t, spoil(token.path))
		_, err := token.Text()
		var e *task.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, name) || e.Hint != "stint token rotate" || token.isToken(text) || token.isToken("") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBrowsersCountForATime: a code for a minute, a cookie for a week, and not more than some of them.
func TestBrowsersCountForATime(t *testing.T) {
	var b browsers
	now := time.Now()
	shown := func(one browser, at time.Time) bool {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = one.name + ".localhost:1"
		r.AddCookie(&http.Cookie{Name: CookieName, Value: one.cookie})
		return b.shows(r, "token", at)
	}
	first, second := b.add("token", now), b.add("token", now)
	if _, ok := b.letIn(second.name, second.code, "token", now.Add(codeTime)); ok {
		t.Error("a code that is too old counts")
	}
	in, ok := b.letIn(first.name, first.code, "token", now.Add(codeTime-1))
	if !ok || shown(first, now) || !shown(in, now.Add(browserTime)) || shown(in, now.Add(browserTime+codeTime)) {
		t.Error("a cookie does not begin or end when it should")
	}
	if _, ok := b.letIn(first.name, "", "token", now); ok {
		t.Error("no code lets somebody in")
	}
	later := now.Add(codeTime)
	for range maxBrowsers - 1 {
		b.add("token", later)
	}
	if _, ok := b.get(second.name); ok || !shown(in, later) {
		t.Error("who has not come in time stays, or who is in does not")
	}
	b.add("token", later)
	if len(b.all) != maxBrowsers || shown(in, later) {
		t.Error("browsers pile up")
	}
}

// TestRotationsAtOnce: two rotations at a time never disturb each other, and who reads
// meanwhile gets a whole token.
func TestRotationsAtOnce(t *testing.T) {
	t.Parallel()
	const each = 100
	path := newToken(t).path
	stop := make(chan struct{})
	var rotations, readers sync.WaitGroup
	for range 2 {
		rotations.Go(func() {
			for range each {
				if err := RotateToken(path); err != nil {
					t.Error(err)
				}
			}
		})
		readers.Go(func() {
			token := &Token{path: path}
			for {
				if _, err := token.Text(); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	rotations.Wait()
	close(stop)
	readers.Wait()
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v %v", names, err)
	}
}

func (t *Token) isToken(given string) bool {
	text, err := t.Text()
	return err == nil && equalText(given, text)
}

package guard

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// A Token is the bearer token of a state directory: 256 random bits in a file that its user alone can read. It is read anew as
// soon as the file is another one, so that a rotation counts at once. It is safe for concurrent use.
type Token struct {
	path string

	mu   sync.Mutex // guards what follows
	info fs.FileInfo
	text string
}

// tokenBytes is the size of a token before it is written in base64.
const tokenBytes = 32

// OpenToken returns the token in the file at path, which is made if it is missing. The error is a
// [*task.Error] if the file is not as it must be; the token counts as soon as it is.
func OpenToken(path string) (*Token, error) {
	t := &Token{path: path}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := firstToken(path); err != nil {
			return t, err
		}
	}
	_, err := t.Text()
	return t, err
}

// firstToken makes a token, unless somebody else has made one meanwhile: then that one
// counts, which may have been given to somebody already.
func firstToken(path string) error {
	own := durable.TempName(path)
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

// randomText returns n random bytes in base64, as it may stand in a URL.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Text returns the token as it is in the file now.
func (t *Token) Text() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Lstat(t.path)
	if err != nil {
		return "", badToken(t.path, fmt.Sprintf("cannot be read: %v", cmp.Or(errors.Unwrap(err), err))) // the path is named already
	}
	if t.info != nil && os.SameFile(info, t.info) && info.ModTime().Equal(t.info.ModTime()) && info.Size() == t.info.Size() && info.Mode() == t.info.Mode() {
		return t.text, nil
	}
	t.info = nil
	st, ok := info.Sys().(*syscall.Stat_t)
	switch { // whoever could write there would choose the token
	case !info.Mode().IsRegular():
		return "", badToken(t.path, "is no file")
	case !ok || int(st.Uid) != os.Getuid():
		return "", badToken(t.path, "belongs to another user")
	case info.Mode().Perm()&0o077 != 0:
		return "", badToken(t.path, "can be read by other users")
	}
	data, err := durable.ReadFile(durable.OS, t.path)
	if err != nil {
		return "", badToken(t.path, fmt.Sprintf("cannot be read: %v", cmp.Or(errors.Unwrap(err), err))) // the path is named already
	}
	text := strings.TrimSuffix(string(data), "\n")
	if raw, err := base64.RawURLEncoding.DecodeString(text); err != nil || len(raw) != tokenBytes {
		return "", badToken(t.path, "holds no token")
	}
	t.text, t.info = text, info
	return text, nil
}

func badToken(path, what string) error {
	return task.Invalid("stint token rotate", "%s", "the file of the token, "+path+", "+what)
}

// equalText compares in a time that does not depend on what the texts are.
func equalText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

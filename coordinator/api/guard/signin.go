package guard

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	codeTime    = time.Minute        // that a code counts
	browserTime = 7 * 24 * time.Hour // that a browser stays let in
	maxBrowsers = 64                 // that are let in, or have a code; the oldest is replaced
)

// A browser is one that has a code, or was let in with it. It finds the page under a host name that nothing
// else has had or will have: what another user leaves in browsers under the names of a master that has ended
// (a service worker, a text, a cookie) reaches no other one, and no other port's page is of the same site.
type browser struct {
	name   string    // of the host NAME.localhost
	code   string    // lets it in, once; "": it is in
	until  time.Time // when the code, or the cookie, counts no more
	token  string    // that was the token then: a rotation ends the rest
	cookie string    // shown by all its requests
	key    string    // shown beside it by the page's script, to change something
}

// browsers are those that one Guard has let in. They are kept nowhere else: once the
// port may be another user's, whatever browsers send there is worth nothing any more.
type browsers struct {
	mu  sync.Mutex
	all []browser // guarded by mu; the oldest first
}

// add returns a new one, which has a code.
func (b *browsers) add(token string, now time.Time) browser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(b.all, func(one browser) bool { return !now.Before(one.until) })
	if len(b.all) >= maxBrowsers {
		b.all = slices.Delete(b.all, 0, 1)
	}
	one := browser{name: strings.ToLower(rand.Text()), code: randomText(16), until: now.Add(codeTime), token: token}
	b.all = append(b.all, one)
	return one
}

// find returns the one with a name; nil if there is none. The lock is held.
func (b *browsers) find(name string) *browser {
	i := slices.IndexFunc(b.all, func(one browser) bool { return one.name == name })
	if i < 0 {
		return nil
	}
	return &b.all[i]
}

func (b *browsers) get(name string) (one browser, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.find(name); found != nil {
		return *found, true
	}
	return browser{}, false
}

// letIn lets the browser in that comes by a name with the code of that name.
func (b *browsers) letIn(name, code, token string, now time.Time) (one browser, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.find(name)
	if found == nil || !equalText(code, found.code) || found.code == "" || found.token != token || !now.Before(found.until) {
		return browser{}, false
	}
	found.code, found.until, found.cookie, found.key = "", now.Add(browserTime), randomText(16), randomText(16)
	return *found, true
}

// browserOf returns NAME of the host NAME.localhost:PORT, whatever the port is, since ssh -L
// may lead here from another one; else "".
func browserOf(host string) string {
	name, port, _ := strings.Cut(host, ".localhost:")
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || fmt.Sprint(p) != port {
		return ""
	}
	return name
}

// Names of the cookie and of the header that a signed-in browser sends.
const (
	CookieName = "stint"
	KeyHeader  = "Stint-Page" // the header with a browser's key
)

// shows reports whether a request has the cookie of the browser that its host names, and unless it only reads, the key too: a
// browser sends the cookies of a host to all of its ports. What another port has set as a cookie of that name is passed over.
func (b *browsers) shows(r *http.Request, token string, now time.Time) bool {
	one, ok := b.get(browserOf(r.Host))
	if !ok || one.code != "" || one.token != token || !now.Before(one.until) {
		return false
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return (reads || equalText(r.Header.Get(KeyHeader), one.key)) &&
		slices.ContainsFunc(r.CookiesNamed(CookieName), func(c *http.Cookie) bool { return equalText(c.Value, one.cookie) })
}

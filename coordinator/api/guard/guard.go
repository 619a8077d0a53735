// Package guard stands between a master and who may not call it: it makes the unix socket
// ([Listen]) and the listeners on TCP ([ListenLoopback]), keeps the token ([Token]) and the
// browsers that are signed in, and stands before the handlers of a port ([Guard]).
//
// # The socket
//
// It has mode 0600 in a directory of mode 0700, and a connection from another user than ours
// or root is closed before a byte of it is read.
//
// # A port
//
// A port can be reached by every user of the machine and every page in a browser. On Linux nothing is read from other users
// than ours and root there either; elsewhere nobody can tell. The guard then asks in this order for the Host that we are (421
// otherwise: a name that was made to mean this machine), for no other Origin than our own page's (403), and for the token or a
// browser's cookie (401). The token lies in a file; it never stands in a URL.
//
// A browser gets its cookie for a one-time code, which stint ui puts behind the # of the page's address. Each such address has
// a host name of its own, NAME.localhost, at which alone the code, the cookie and a key for changes count. All of them are kept
// in memory, and end with the listener: while nobody of ours listens, another user may, and browsers send him what they have.
// What he leaves in them belongs to names that are not used again; who is not signed in is told to forget it (Clear-Site-Data).
//
// # Bounds of a port
//
// 256 connections, 64 requests that last, bodies of 4 MiB; 30 s for a request, a minute for each piece of an answer. None of it
// is shared with the socket, so a flood there costs commands nothing. When all connections are taken, the one that has waited
// longest for a request, or for the rest of one, is closed for a new one; those whose request was read are not.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// Bounds of the listener on TCP (reliability: exhaustion). Those of headers are the same as on the socket.
const (
	maxConns     = 256 // of both addresses
	maxStreams   = 64
	readTimeout  = 30 * time.Second // of a request
	writeTimeout = time.Minute      // of each piece of an answer
)

// MaxBody is the size of the largest body that is taken over TCP.
const MaxBody = 4 << 20

// ListenLoopback listens for the HTTP interface at an address such as 127.0.0.1:7433, [::1]:7433 or
// localhost:7433: always at both, so that nobody else answers at one of the names that browsers take for
// ours. Port 0 is any that is free. Another address is refused with a [*task.Error]: nothing but this machine
// may connect. An error that wraps [syscall.EADDRINUSE] says that someone else listens at one of them.
func ListenLoopback(addr string) (lns []net.Listener, err error) {
	if err := CheckLoopback(addr); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr) // it was looked at
	for range 10 {
		var four, six net.Listener
		if four, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", port)); err != nil {
			return nil, err
		}
		six, err = net.Listen("tcp6", fmt.Sprintf("[::1]:%d", four.Addr().(*net.TCPAddr).Port))
		switch {
		case err == nil:
			return []net.Listener{four, six}, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return []net.Listener{four}, nil // a machine without IPv6
		}
		if err = errors.Join(err, four.Close()); port != "0" { // else another port may be free for both
			break
		}
	}
	return nil, err
}

// CheckLoopback returns what is wrong with an address for [ListenLoopback]; nil if nothing is.
func CheckLoopback(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "127.0.0.1" || host == "::1" || host == "localhost") {
		if p, perr := netip.ParseAddrPort("127.0.0.1:" + port); perr == nil && fmt.Sprint(p.Port()) == port {
			return nil
		}
	}
	return task.Invalid("use 127.0.0.1:7433, and from another machine: ssh -L 7433:127.0.0.1:7433 HOST", "%q is not an address of this machine alone: 127.0.0.1, [::1] or localhost, and a port", addr)
}

// An Options is what a [Guard] needs of the server behind it.
type Options struct {
	Token    *Token                   // that programs must show
	Now      func() time.Time         // the clock
	Log      *slog.Logger             // for what is wrong with the machine
	IsPublic func(*http.Request) bool // whether a request needs no token
	IsLong   func(*http.Request) bool // whether it may last for long
	Handler  http.Handler             // answers what is allowed
}

// New returns the guard for the port of lns. It starts nothing.
func New(lns []net.Listener, o Options) *Guard {
	g := &Guard{opts: o, hosts: map[string]bool{}, Mark: randomText(16), places: newPlaces(maxConns), streams: make(chan struct{}, maxStreams)}
	for _, ln := range lns {
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			for _, host := range []string{"127.0.0.1", "[::1]", "localhost"} {
				g.hosts[fmt.Sprintf("%s:%d", host, a.Port)] = true
			}
			g.port = a.Port
		}
	}
	return g
}

// Listen returns lns as listeners whose connections are bounded, and are read from only if
// they are our own user's or root's, as far as the system tells.
func (g *Guard) Listen(lns []net.Listener) []net.Listener {
	bounded := make([]net.Listener, len(lns))
	for i, ln := range lns {
		bounded[i] = &tcpListener{Listener: ln, log: g.opts.Log, places: g.places, closed: make(chan struct{})}
	}
	return bounded
}

// Protect puts the guard before the handler of srv, with the bounds of a port.
func (g *Guard) Protect(srv *http.Server) {
	g.places.bound(srv)
	srv.Handler = g
	srv.ReadTimeout = readTimeout
	srv.DisableGeneralOptionsHandler = true // OPTIONS * would pass by the guard
}

// NewBrowser returns the address of the page that lets one browser in, once, and when that ends.
func (g *Guard) NewBrowser() (url string, until time.Time, err error) {
	token, err := g.opts.Token.Text()
	if err != nil {
		return "", time.Time{}, err
	}
	one := g.browsers.add(token, g.opts.Now())
	return fmt.Sprintf("http://%s.localhost:%d/#code=%s", one.name, g.port, one.code), one.until.UTC(), nil
}

// SignIn lets in the browser that comes to host with a code. It returns its cookie and its
// key for changes; ok is false if the code is not, or no longer, that host's.
func (g *Guard) SignIn(host, code string) (cookie http.Cookie, key string, ok bool, err error) {
	token, err := g.opts.Token.Text()
	if err != nil {
		return cookie, "", false, err
	}
	one, ok := g.browsers.letIn(browserOf(host), code, token, g.opts.Now())
	return http.Cookie{Name: CookieName, Value: one.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}, one.key, ok, nil
}

// Challenge asks in the header of an answer for what r lacks: it must show the token, and its browser forgets what it has of
// us, unless that is signed in. Then it is the link of another site, which brings no cookie: the open pages keep their key.
func (g *Guard) Challenge(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", authenticate)
	if one, ok := g.browsers.get(browserOf(r.Host)); !ok || one.code != "" {
		ClearSite(w.Header())
	}
}

// A guard stands before the handlers on TCP, where every page in a browser and every user of the machine can knock.
type Guard struct {
	opts     Options
	hosts    map[string]bool // for programs; a browser has a name of its own
	port     int
	browsers browsers
	Mark     string // stands in each page: the script takes no other one's for ours
	places   *places
	streams  chan struct{} // one for each long request
}

// tcpKey is the key under which a request's context has the guard that it came by.
type tcpKey struct{}

// OverTCP reports whether a request came by TCP.
func OverTCP(ctx context.Context) bool { return Of(ctx) != nil }

// Of returns the guard that a request came by, nil if it came over the socket.
func Of(ctx context.Context) *Guard {
	g, _ := ctx.Value(tcpKey{}).(*Guard)
	return g
}

// ServeHTTP answers one request. Nothing is looked at before the Host is known to be
// ours, and nothing is told before the token is.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = g.places.admit(w, r)
	SecureHeaders(w.Header())
	if p := g.check(r); p != nil {
		g.refuse(w, p)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), tcpKey{}, g))
	if g.opts.IsLong(r) {
		select {
		case g.streams <- struct{}{}:
			defer func() { <-g.streams }()
		default:
			g.refuse(w, wire.ProblemOf(&task.Error{
				Code: task.CodeTooMany, Message: fmt.Sprintf("%d requests that last are open already, and no more are taken", maxStreams),
				Hint: "close some, or use the unix socket",
			}))
			return
		}
		ctx, release := g.ctxUntilTokenRotated(r)
		defer release()
		r = r.WithContext(ctx)
	}
	if r.ContentLength == 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // net/http goes on reading there to notice that a client has gone
	}
	g.opts.Handler.ServeHTTP(w, r)
}

// check returns what a request is refused with; nil if it may pass.
func (g *Guard) check(r *http.Request) *wire.Problem {
	_, named := g.browsers.get(browserOf(r.Host)) // the name of a browser that we have given out
	switch {
	case !named && !g.hosts[r.Host] || !strings.HasPrefix(r.RequestURI, "/"):
		return wire.NewProblem(http.StatusMisdirectedRequest, "this is not the host that was asked for", "open the page with: stint ui")
	case r.Header.Get("Service-Worker") != "":
		return wire.NewProblem(http.StatusNotFound, "the page has no service worker", "")
	case !sameOrigin(r):
		return wire.NewProblem(http.StatusForbidden, "the request comes from the page of another site", "open the page with: stint ui")
	case !g.opts.IsPublic(r) && !g.Authenticated(r):
		return wire.NewProblem(http.StatusUnauthorized, "the token is missing or is not the present one",
			"curl: stint token header | curl -H @- URL; in a browser: stint ui")
	}
	return nil
}

// sameOrigin reports whether a request comes from our own page or from no browser. Of what comes from elsewhere only the address
// of the page itself may be followed, as a link to it is; what a page of another port of this machine sends is from elsewhere too.
func sameOrigin(r *http.Request) bool {
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != "http://"+r.Host {
		return false
	}
	sites := r.Header.Values("Sec-Fetch-Site")
	return len(sites) == 0 || len(sites) == 1 && (sites[0] == "same-origin" || sites[0] == "none") ||
		r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Authenticated reports whether a request has the token, or what a browser that was let in shows.
// The token is for programs: a page that another user left in a browser may have it from
// one that sent it to him, while no master ran, and would ask as our own user.
func (g *Guard) Authenticated(r *http.Request) bool {
	token, err := g.opts.Token.Text()
	if err != nil {
		return false
	}
	if auth := r.Header.Values("Authorization"); len(auth) > 0 {
		scheme, given, _ := strings.Cut(auth[0], " ")
		return len(auth) == 1 && strings.EqualFold(scheme, "Bearer") && equalText(given, token) && r.Header["Sec-Fetch-Site"] == nil
	}
	return g.browsers.shows(r, token, g.opts.Now())
}

// lookAgain is how often it is looked whether the token of a request that lasts still counts.
const lookAgain = time.Second

// ctxUntilTokenRotated returns a context that ends with the request, or soon after its token was replaced by another one.
func (g *Guard) ctxUntilTokenRotated(r *http.Request) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var look sync.WaitGroup
	look.Go(func() {
		for g.Authenticated(r) {
			if task.Sleep(ctx, lookAgain) != nil {
				return
			}
		}
		cancel(&task.Error{Code: task.CodeUnauthorized, Message: "the token counts no more", Hint: "stint token header; in a browser: stint ui"})
	})
	return ctx, func() {
		cancel(nil)
		look.Wait()
	}
}

// authenticate is the header that tells a program what it has to show.
const authenticate = `Bearer realm="stint"`

// refuse answers with p, and lets go of the connection: there are not many.
func (g *Guard) refuse(w http.ResponseWriter, p *wire.Problem) {
	w.Header().Set("Connection", "close")
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", authenticate)
		ClearSite(w.Header())
	case http.StatusNotFound, http.StatusMisdirectedRequest:
		ClearSite(w.Header())
	}
	p.Write(w)
}

// ClearSite has a browser that is not signed in forget what a page at our address has left there, a service worker above all:
// it may have been another user's, while no master ran. Cookies stay, which the other ports of this machine share. So does the
// cache: what it has is shown without asking us, and under the name of a sign-in, which is new, it has nothing.
func ClearSite(h http.Header) { h.Set("Clear-Site-Data", `"storage"`) }

// pagePolicy is what our page may do: show what comes from here, and run the one script, which may not turn text into markup.
const pagePolicy = "default-src 'none'; script-src 'self'; worker-src 'none'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// SecureHeaders makes browsers to run nothing, keep nothing and tell nobody. No header lets another origin read an answer.
func SecureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
}

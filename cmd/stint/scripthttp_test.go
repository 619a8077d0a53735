package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"stint/coordinator/api/client"
)

// headerForm is how a header stands on the line of a script.
var headerForm = regexp.MustCompile(`^([A-Za-z][A-Za-z-]*): *(.*)$`)

// cmdHTTP: http [-socket|-tcp] METHOD PATH [BODY] [HEADER...] makes a request of the
// running master, over its socket or its port. The body of the answer goes to stdout, its
// status and header to stderr. BODY is JSON, or @FILE. A HEADER is 'Name: value', and one
// without a value is left out. Over the port the token is sent, unless a HEADER is
// Authorization or Cookie.
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	tcp := len(args) > 0 && args[0] == "-tcp"
	if tcp || len(args) > 0 && args[0] == "-socket" {
		args = args[1:]
	}
	need(ts, neg, args, 2, 20, "http [-socket|-tcp] METHOD PATH [BODY] [HEADER...]")
	s := stateOf(ts)
	base, transport := "http://stint", dialSocket(s.master().Socket)
	if tcp {
		base, transport = "http://"+s.httpAddress(ts), &http.Transport{}
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), scriptDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, args[0], base+args[1], nil)
	ts.Check(err)
	fillRequest(ts, req, args[2:])
	if tcp && req.Header["Authorization"] == nil && req.Header["Cookie"] == nil {
		req.Header.Set("Authorization", "Bearer "+s.token(ts))
	}
	resp, err := transport.RoundTrip(req) // a redirect is an answer like others
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }() // it was only read
	_, err = fmt.Fprintln(ts.Stderr(), resp.Status)
	ts.Check(err)
	ts.Check(resp.Header.Write(ts.Stderr()))
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// fillRequest puts a body and headers into a request.
func fillRequest(ts *testscript.TestScript, req *http.Request, args []string) {
	if len(args) > 0 && !headerForm.MatchString(args[0]) {
		body := args[0]
		if file, ok := strings.CutPrefix(body, "@"); ok {
			body = ts.ReadFile(file)
		}
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		req.Header.Set("Content-Type", "application/json")
		args = args[1:]
	}
	for _, arg := range args {
		h := headerForm.FindStringSubmatch(arg)
		switch {
		case h == nil:
			ts.Fatalf("%q is not 'Name: value'", arg)
		case h[2] == "":
			req.Header[http.CanonicalHeaderKey(h[1])] = []string{}
		case http.CanonicalHeaderKey(h[1]) == "Host":
			req.Host = h[2]
		default:
			req.Header.Set(h[1], h[2])
		}
	}
}

// dialSocket returns a transport to a unix socket.
func dialSocket(socket string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
}

// httpAddress returns the address of the port that the running master answers at.
func (s *scriptState) httpAddress(ts *testscript.TestScript) string {
	c := client.Dial(s.master().Socket)
	defer c.Close()
	h, err := c.Health(context.Background())
	ts.Check(err)
	if h.HTTP == "" {
		ts.Fatalf("the master answers at no port")
	}
	return h.HTTP
}

// token returns the token of the script's state directory.
func (s *scriptState) token(ts *testscript.TestScript) string {
	text, err := os.ReadFile(filepath.Join(s.state, "token"))
	ts.Check(err)
	return strings.TrimSpace(string(text))
}

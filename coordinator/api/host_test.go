package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"stint/coordinator/api/wire"
)

// badHosts are what may stand after "Host:" and is not ours. PORT is the port, NEXT another one.
var badHosts = []string{
	// Without our port.
	"", "127.0.0.1", "localhost", "[::1]", "127.0.0.1:", "[::1]:", "localhost:", "127.0.0.1:80", "localhost:NEXT", "127.0.0.1:0PORT", "127.0.0.1:+PORT", "127.0.0.1:-PORT",
	"127.0.0.1:PORTx", "127.0.0.1:PORT:PORT", "127.0.0.1:PORT.", "127.0.0.1:%50ORT", "127.0.0.1:WRAPPED", "127.0.0.1:PORT0", "127.0.0.1:http", "127.0.0.1:HEX",
	// Names that are nearly ours.
	"LOCALHOST:PORT", "Localhost:PORT", "localhost.:PORT", "localhost.evil.example:PORT", "evil.localhost:PORT", "localhost.localdomain:PORT", "localhost6:PORT",
	"ip6-localhost:PORT", "xlocalhost:PORT", "localhost-:PORT", "local%68ost:PORT", "localhost%00:PORT", "localhost%2eevil.example:PORT", "localhost_:PORT",
	// Names that are nearly a browser's.
	"NAME.localhost", "NAME.localhost:", "NAME.localhost:0PORT", "NAME.localhost:PORTx", "NAME.localhost:WRAPPED", "NAME.localhost:+PORT", "NAME.localhost.:PORT", "NAME.LOCALHOST:PORT",
	"xNAME.localhost:PORT", "x.NAME.localhost:PORT", "NAMEx.localhost:PORT", "NAME:PORT", "NAME.local:PORT", ".localhost:PORT", "NAME.localhost.evil.example:PORT", "NAME.localhost:PORT.localhost:PORT",
	// Names that an attacker's server resolves to our address.
	"evil.example", "evil.example:PORT", "127.0.0.1.nip.io:PORT", "127.0.0.1.evil.example:PORT", "xn--lcalhost-54a:PORT", "xn--80ak6aa92e.com:PORT",
	// Other ways to write our address, and other addresses of this machine.
	"127.0.0.1.:PORT", "127.1:PORT", "127.0.1:PORT", "127.0.0.2:PORT", "127.0.0.01:PORT", "0127.0.0.1:PORT", "0177.0.0.1:PORT", "127.000.000.001:PORT", "2130706433:PORT",
	"0x7f000001:PORT", "0x7f.0.0.1:PORT", "017700000001:PORT", "0.0.0.0:PORT", "0:PORT", "255.255.255.255:PORT",
	"[::]:PORT", "[::1%lo]:PORT", "[::1%25lo]:PORT", "[0:0:0:0:0:0:0:1]:PORT", "[0000:0000:0000:0000:0000:0000:0000:0001]:PORT", "[::0001]:PORT", "[::1", "::1", "::1:PORT",
	"[::1].:PORT", "[::1]PORT", "[::ffff:127.0.0.1]:PORT", "[::ffff:7f00:1]:PORT", "[::127.0.0.1]:PORT", "[127.0.0.1]:PORT", "[localhost]:PORT", "[fe80::1]:PORT",
	// What is more than a host.
	"user@127.0.0.1:PORT", "user:secret@localhost:PORT", "127.0.0.1:PORT@evil.example", "evil.example@127.0.0.1:PORT", "127.0.0.1:PORT/", "127.0.0.1:PORT/v1/tasks", "127.0.0.1:PORT?x",
	"127.0.0.1:PORT#x", `127.0.0.1:PORT\`, "http://127.0.0.1:PORT", "//127.0.0.1:PORT", "127.0.0.1:PORT, evil.example", "127.0.0.1:PORT,127.0.0.1:PORT", "127.0.0.1:PORT evil.example",
	"127.0.0.1:PORT;x", `"127.0.0.1:PORT"`, "'127.0.0.1:PORT'", "127.0.0.1\t:PORT", "local\thost:PORT", "127.0.0.1 :PORT", "127.0.0.1: PORT", "*", "*:PORT", "null", "undefined", "%",
	"evil.example\r\n 127.0.0.1:PORT",
	// What is no text of HTTP.
	"127.0.0.1:PORT\x00", "\x00", "127.0.0.1\x00.evil.example:PORT", "127.0.0.1:PORT\x7f", "127.0.0.1:PORT\x0b", "127.0.0.1:PORT\xa0", "\xef\xbb\xbf127.0.0.1:PORT", "\xff\xfe",
	"１２７.0.0.1:PORT", "127。0。0。1:PORT", "localhost：PORT", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT", "lοcalhost:PORT", "127.0.0.1:PORT\u200b", "\u202e127.0.0.1:PORT",
	// What is long.
	strings.Repeat("a", 20_000) + ":PORT", "127.0.0.1:PORT" + strings.Repeat(".", 10_000), strings.Repeat("127.0.0.1:PORT,", 1000), strings.Repeat("x", maxHeader+8<<10),
}

// oddForms are requests that say twice, not at all, or elsewhere which host they mean, with
// METHOD, PATH, PORT and AUTH, the header with the token, left open.
var oddForms = map[string]string{
	"none":                                "METHOD PATH HTTP/1.1\r\nAUTH\r\n\r\n",
	"none, HTTP/1.0":                      "METHOD PATH HTTP/1.0\r\nAUTH\r\n\r\n",
	"empty, HTTP/1.0":                     "METHOD PATH HTTP/1.0\r\nHost:\r\nAUTH\r\n\r\n",
	"HTTP/0.9":                            "METHOD PATH\r\n\r\n",
	"another, HTTP/1.0":                   "METHOD PATH HTTP/1.0\r\nHost: evil.example:PORT\r\nAUTH\r\n\r\n",
	"the same twice":                      "METHOD PATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"two, ours first":                     "METHOD PATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: evil.example\r\nAUTH\r\n\r\n",
	"two, ours last":                      "METHOD PATH HTTP/1.1\r\nHost: evil.example\r\nhost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"two of ours":                         "METHOD PATH HTTP/1.0\r\nHost: localhost:PORT\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"a blank before the colon":            "METHOD PATH HTTP/1.1\r\nHost : 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"no colon":                            "METHOD PATH HTTP/1.1\r\nHost 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"indented":                            "METHOD PATH HTTP/1.1\r\n Host: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"forwarded":                           "METHOD PATH HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: 127.0.0.1:PORT\r\nForwarded: host=127.0.0.1:PORT\r\nX-Host: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	":authority":                          "METHOD PATH HTTP/1.1\r\n:authority: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"absolute-form":                       "METHOD http://127.0.0.1:PORTPATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"absolute-form of ours, Host another": "METHOD http://127.0.0.1:PORTPATH HTTP/1.1\r\nHost: evil.example\r\nAUTH\r\n\r\n",
	"absolute-form of another":            "METHOD http://evil.example:PORTPATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"absolute-form, no Host":              "METHOD http://localhost:PORTPATH HTTP/1.0\r\nAUTH\r\n\r\n",
	"absolute-form, https":                "METHOD https://127.0.0.1:PORTPATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"absolute-form, userinfo":             "METHOD http://evil@127.0.0.1:PORTPATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"absolute-form, upper case":           "METHOD HTTP://127.0.0.1:PORTPATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"no authority":                        "METHOD http:PATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"file":                                "METHOD file://PATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"no slash":                            "METHOD vPATH HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"authority-form":                      "CONNECT 127.0.0.1:PORT HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"authority-form of another":           "CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"authority-form, METHOD":              "METHOD 127.0.0.1:PORT HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"asterisk-form":                       "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"asterisk-form, METHOD":               "METHOD * HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAUTH\r\n\r\n",
	"preface of HTTP/2":                   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

// hostRequest puts in what a form leaves open.
func (s *tcpServer) hostRequest(form string, r apiOperation) string {
	var port int
	_, _ = fmt.Sscanf(s.addr, "127.0.0.1:%d", &port) // 0 fits no test
	return strings.NewReplacer(
		"NAME", s.name,
		"METHOD", r.method, "PATH", r.path, "PORT", fmt.Sprint(port), "NEXT", fmt.Sprint(port+1), "WRAPPED", fmt.Sprint(port+1<<16), "HEX", fmt.Sprintf("%#x", port),
		"AUTH", s.bearer()+"\r\nContent-Length: 0",
	).Replace(form)
}

const withHost = "METHOD PATH HTTP/1.1\r\nHost: BAD\r\nAUTH\r\nConnection: close\r\n\r\n"

// TestPromise11Host: a request that does not name our host is refused before anything is looked at, on every
// path, whatever else it has. A page of another site whose name was made to mean this machine names its own.
func TestPromise11Host(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		options, log := logged()
		s := serveTCP(t, untouchable{}, options)
		routes, _ := routesOf(t)
		forms, requests := maps.Clone(oddForms), 0
		for _, host := range badHosts {
			forms[fmt.Sprintf("%.60q", host)] = strings.Replace(withHost, "BAD", host, 1)
		}
		for name, form := range forms {
			for i, r := range routes {
				if testing.Short() && (i+len(name))%14 != 0 {
					continue
				}
				requests++
				if why := refusedHost(s.raw(t, s.hostRequest(form, r))); why != "" {
					t.Errorf("%s, %s %s: %s", name, r.method, r.path, why)
				}
			}
		}
		if log.String() != "" {
			t.Errorf("%s", log)
		}
		t.Logf("hosts: forms=%d routes=%d requests=%d", len(forms), len(routes), requests)
	})
}

// refusedHost returns what is wrong with the answer to a host that is not ours.
func refusedHost(answers []rawAnswer) string {
	if len(answers) != 1 {
		return fmt.Sprintf("%d answers", len(answers))
	}
	a := answers[0]
	if !a.ours() {
		if a.StatusCode != http.StatusBadRequest && a.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !a.Close {
			return fmt.Sprintf("net/http answers %d %s", a.StatusCode, short(a.body))
		}
		return ""
	}
	want := fmt.Sprintf(`"status":%d,"detail":"this is not the host that was asked for"`, http.StatusMisdirectedRequest)
	if a.StatusCode != http.StatusMisdirectedRequest || !strings.Contains(a.body, want) {
		return fmt.Sprintf("%d %s", a.StatusCode, short(a.body))
	}
	if h := a.Header; h.Get(wire.FindingsHeader) != "" || h.Get("Location") != "" || h.Get("Set-Cookie") != "" {
		return fmt.Sprintf("the header tells %v", h)
	}
	return ""
}

// TestOurHosts: the three ways to name us, and the name of a browser whatever the port, are
// taken on every path, with blanks around them, which HTTP does not count.
func TestOurHosts(t *testing.T) {
	t.Parallel()
	s := serveTCP(t, twoTasks(t), Options{})
	routes, _ := routesOf(t)
	hosts := []string{"127.0.0.1:PORT", "[::1]:PORT", "localhost:PORT", "NAME.localhost:PORT", "NAME.localhost:1", " \t127.0.0.1:PORT \t"}
	for i, r := range routes {
		host := hosts[i%len(hosts)]
		answers := s.raw(t, s.hostRequest(strings.Replace(withHost, "BAD", host, 1), r))
		if len(answers) != 1 || !answers[0].ours() || slices.Contains([]int{http.StatusMisdirectedRequest, http.StatusUnauthorized, http.StatusForbidden}, answers[0].StatusCode) {
			t.Errorf("%q, %s %s: %v", host, r.method, r.path, answers)
		}
	}
}

package web

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"stint/coordinator/api/wire"
)

var testTopics = []wire.Topic{{Name: "http", Title: "the interface", Markdown: []byte("# HTTP\n\nSee [limits](limits.md) `<b>`.\n")}, {Name: "limits", Title: "what not"}}

func TestPageHelp(t *testing.T) {
	m := newFake(t)
	if list := m.ask("/?help").Body.String(); !strings.Contains(list, `<dt><a href="/?help=http">http</a></dt><dd>the interface</dd>`) {
		t.Errorf("the list of topics: %s", list)
	}
	if got := m.ask("/?help=http").Body.String(); !strings.Contains(got, "<h3>HTTP</h3>\n<p>See <a href=\"/?help=limits\">limits</a> <code>&lt;b&gt;</code>.</p>") || !strings.Contains(got, "<title>Help: http · stint</title>") {
		t.Errorf("a topic: %s", got)
	}
	if got := m.ask("/?help=htpt"); got.Code != http.StatusNotFound || !strings.Contains(got.Body.String(), "the manual has no topic") {
		t.Errorf("an unknown topic: %d %s", got.Code, got.Body)
	}
}

// HTML in the manual does not reach the page.
func TestRenderHTMLOmitsHTML(t *testing.T) {
	for _, raw := range xssCorpus(t) {
		got, err := renderHTML([]byte("<div>" + raw + "\n\n*x* <b onclick=y>" + raw + "\n\n[l](javascript:alert)\n"))
		if err != nil {
			t.Fatal(err)
		}
		bad := find(parsePage(t, string(got)), func(n *html.Node) bool {
			return strings.Contains(" script style iframe img svg b div object embed form input base meta link math ", " "+n.Data+" ") && attr(n, "src") == "" ||
				strings.HasPrefix(attr(n, "href"), "javascript") || attr(n, "onclick") != "" || attr(n, "onerror") != ""
		})
		if bad != nil {
			t.Errorf("%q becomes %s", raw, got)
		}
	}
}

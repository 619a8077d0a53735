package web

import (
	"net/http"
	"strings"
	"testing"

	"stint/coordinator/api/wire"
)

var testTopics = []wire.Topic{{Name: "http", Title: "the interface", Markdown: []byte("# HTTP\n\nSee [limits](limits.md) `<b>`.\n")}, {Name: "limits", Title: "what not"}}

func TestPageHelp(t *testing.T) {
	m := newFake(t)
	if list := m.ask("/?help").Body.String(); !strings.Contains(list, `<dt><a href="/?help=http">http</a></dt><dd>the interface</dd>`) {
		t.Errorf("the list of topics: %s", list)
	}
	if got := m.ask("/?help=http").Body.String(); !strings.Contains(got, "<pre tabindex=\"0\">\n# HTTP\n\nSee [limits](limits.md) `&lt;b&gt;`.\n</pre>") || !strings.Contains(got, "<title>Help: http · stint</title>") {
		t.Errorf("a topic: %s", got)
	}
	if got := m.ask("/?help=htpt"); got.Code != http.StatusNotFound || !strings.Contains(got.Body.String(), "the manual has no topic") {
		t.Errorf("an unknown topic: %d %s", got.Code, got.Body)
	}
}

package wire

import (
	"net/http"
	"strings"
	"testing"
)

// TestNoticeTakesAnyReason: the reason of a pause is a person's, and stays one value.
func TestNoticeTakesAnyReason(t *testing.T) {
	for _, why := range []string{"", "lunch", "a\r\nSet-Cookie: x=\"é\"\x00\u2028 end", strings.Repeat("x", 5000)} {
		h := http.Header{}
		Notice{Findings: 3, Paused: true, PauseWhy: why, Shortage: why, Seq: 1<<64 - 1, Config: "c0ffee"}.Write(h)
		got, value := ReadNotice(h), h.Get(PauseWhyHeader)
		if got == nil || got.PauseWhy != why[:min(len(why), maxWhy)] || !got.Paused || got.Findings != 3 || got.Seq != 1<<64-1 || got.Config != "c0ffee" || strings.ContainsAny(value, "\r\n\x00") {
			t.Errorf("%q became %+v by %q", why, got, value)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"stint/coordinator/api/wire"
)

// TestAddressIsShownOnATerminalAlone: who sees no page gets the address, but no file does.
func TestAddressIsShownOnATerminalAlone(t *testing.T) {
	page := wire.PageAddress{URL: "http://127.0.0.1:7433/#code=secret"}
	if got := opened(page, true); !strings.Contains(got, page.URL) {
		t.Errorf("on a terminal: %q", got)
	}
	if got := opened(page, false); strings.Contains(got, "secret") || !strings.Contains(got, "--print") {
		t.Errorf("elsewhere: %q", got)
	}
}

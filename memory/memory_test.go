package memory

import "testing"

func TestHitString(t *testing.T) {
	h := Hit{Path: "memory/build.md", Line: 12, Text: "Run `make gen` first."}
	if got, want := h.String(), "memory/build.md:12 Run `make gen` first."; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

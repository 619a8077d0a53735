package state

import (
	"fmt"
	"testing"
	"time"
)

// TestReadTime: what the fast way reads is what the package time reads, and it leaves the rest to that.
func TestReadTime(t *testing.T) {
	fast := 0
	check := func(text string) {
		var want time.Time
		err := want.UnmarshalText([]byte(text))
		got, ok := readTime([]byte(text))
		if ok {
			fast++
		}
		if ok && (err != nil || got != want.UTC()) {
			t.Errorf("%q became %v, want %v, %v", text, got, want, err)
		}
	}
	const good = "2026-11-21T03:12:45.123Z"
	check(good)
	for i := range good { // every byte at every place
		for c := range 256 {
			check(good[:i] + string([]byte{byte(c)}) + good[i+1:])
		}
	}
	for month := range 14 {
		for day := range 33 {
			check(fmt.Sprintf("2023-%02d-%02dT23:59:59.999Z", month, day))
			check(fmt.Sprintf("0000-%02d-%02dT00:00:00.000Z", month, day))
		}
	}
	for n := range 100 {
		check(fmt.Sprintf("2024-02-29T%02d:%02d:%02d.000Z", n, n, n))
		check(fmt.Sprintf("2024-02-28T%02d:00:00.000Z", n))
		check(fmt.Sprintf("2024-02-28T00:%02d:%02d.000Z", n, n))
	}
	if fast < 12*28+24+60 {
		t.Errorf("only %d were read the fast way", fast)
	}
}

// TestShellQuote: a word is quoted for a shell only if it needs that.
func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{"cli_worker-2": "cli_worker-2", "it's": `'it'\''s'`, "": "''", "a b": "'a b'"} {
		if got := ShellQuote(word); got != want {
			t.Errorf("%q became %s, want %s", word, got, want)
		}
	}
}

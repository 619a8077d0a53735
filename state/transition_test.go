package state

import (
	"strings"
	"testing"
)

func TestCanFollow(t *testing.T) {
	// One row per status: what may follow; "*" by hand only, "!" never by hand.
	table := map[Status]string{
		"":       "draft queued running! done failed canceled dead",
		Draft:    "draft queued canceled",
		Queued:   "draft* queued running! done failed canceled dead",
		Running:  "queued running! done failed canceled dead",
		Done:     "queued done",
		Failed:   "queued failed",
		Canceled: "queued canceled",
		Dead:     "queued dead",
	}
	for from, row := range table {
		byHand, byUs := map[Status]bool{}, map[Status]bool{}
		for _, word := range strings.Fields(row) {
			st := Status(strings.TrimRight(word, "*!"))
			byHand[st] = !strings.HasSuffix(word, "!")
			byUs[st] = !strings.HasSuffix(word, "*")
		}
		for _, to := range Statuses[:] {
			if got := CanFollow(from, to, true); got != byHand[to] {
				t.Errorf("CanFollow(%q, %q, by hand) = %v", from, to, got)
			}
			if got := CanFollow(from, to, false); got != byUs[to] {
				t.Errorf("CanFollow(%q, %q) = %v", from, to, got)
			}
		}
	}
}

func TestParseStatus(t *testing.T) {
	for _, st := range Statuses[:] {
		if got, err := ParseStatus(string(st)); got != st || err != nil {
			t.Errorf("ParseStatus(%q) = %q, %v", st, got, err)
		}
	}
	for in, want := range map[string]string{
		"qeued":     `unknown status "qeued"; it is one of draft, queued, running, done, failed, canceled, dead`,
		"Queued":    `unknown status "Queued"; it is one of draft, queued, running, done, failed, canceled, dead`,
		"cancelled": `unknown status "cancelled"; it is one of draft, queued, running, done, failed, canceled, dead`,
		"runing":    `unknown status "runing"; it is one of draft, queued, running, done, failed, canceled, dead`,
		"banana":    `unknown status "banana"; it is one of draft, queued, running, done, failed, canceled, dead`,
		"":          `unknown status ""; it is one of draft, queued, running, done, failed, canceled, dead`,
	} {
		if got, err := ParseStatus(in); err == nil || err.Error() != want {
			t.Errorf("ParseStatus(%q) = %q, %v; want %s", in, got, err, want)
		}
	}
	if _, err := ParseStatus(strings.Repeat("queued", 1000)); err == nil {
		t.Error("a long word is a status")
	}
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/coordinator/api/client"
	"stint/ledger"
	"stint/state"
)

// Bounds of what a command that was asked for something else tells of findings.
const (
	maxTold = 5
	maxTell = 2 * time.Second
)

// tellFindings says on stderr what is wrong in the ledger of a running master: a
// section that waits for its repair looks like a task that was forgotten.
func (a *app) tellFindings(ctx context.Context) {
	if n := a.notice(); a.quiet || n != nil && n.Findings == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxTell)
	defer cancel()
	_ = a.callRunning(func(c *client.Client) error { // without a master there is nobody to ask
		list, err := c.Findings(ctx)
		for _, f := range list[:min(len(list), maxTold)] {
			a.hint("stint: %s\n", escapeText(oneLine(f.String())))
		}
		if more := len(list) - maxTold; more > 0 {
			a.hint("stint: and %d more: stint fsck\n", more)
		}
		return err
	})
}

// byHand says which fields of a task a person has set last, from the task's
// records: "priority, prompt (seq 12)"; "" if there are none, or if a compaction
// has merged the edit with what others wrote.
func byHand(raw []byte) string {
	doc := ledger.Parse(raw)
	last := map[string]*ledger.Section{} // by key
	var keys []string
	for i := range doc.Sections {
		s := &doc.Sections[i]
		for j := range s.Fields {
			key := string(s.Fields[j].Key)
			if last[key] == nil {
				keys = append(keys, key)
			}
			last[key] = s
		}
	}
	var parts []string
	for i := range doc.Sections {
		s := &doc.Sections[i]
		own := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return last[key] != s || isMark(key) })
		isEdit := s.Value(ledger.KeyBy) == ledger.ByHand && s.Get(ledger.KeyAdopts) != nil // what compaction merged has no adopts
		if isEdit && len(own) > 0 {
			parts = append(parts, fmt.Sprintf("%s (seq %d)", strings.Join(own, ", "), s.Seq))
		}
	}
	return strings.Join(parts, "; ")
}

// isMark reports a key that says how a record came about, or when.
func isMark(key string) bool {
	switch key {
	case ledger.KeySeq, ledger.KeyBy, ledger.KeyAdopts, ledger.KeyEdits, ledger.KeyCopies, ledger.KeyIgnored, state.KeyUpdatedAt:
		return true
	}
	return false
}

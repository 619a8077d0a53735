package reconcile

import (
	"slices"
	"strings"
	"unicode"

	"stint/ledger"
)

// maxReworded is in how many records one save may change a guarded key before it
// is quarantined as the work of a formatter.
const maxReworded = 3

// quarantine finds what a formatter seems to have changed: guarded keys of more than
// three records that are not taken over yet, and then also the fields of others of which
// only the marks are not as they were.
func (p *planner) quarantine(list []*adoption) {
	reworded := map[string]bool{}
	for _, a := range list {
		if a.origin != nil && a.guarded {
			reworded[a.name] = true
		}
	}
	if p.Accept || len(reworded) <= maxReworded {
		return
	}
	line, names := 0, map[string]bool{}
	for _, a := range list {
		if a.origin == nil || !a.guarded && !a.remarked() {
			continue
		}
		if line == 0 {
			line = a.section.Line
		}
		p.Plan.Quarantined[quarantineName(a.origin)], names[a.name] = true, true
	}
	if line > 0 {
		p.findingAt(line, "%s changed in one save (a formatter?); quarantined: stint edit --accept, or undo the change in your editor", ledger.Plural(len(names), "task's prompt", "tasks' prompts"))
	}
}

// remarked reports whether some field differs from what was last seen in blanks and
// punctuation alone.
func (a *adoption) remarked() bool {
	return slices.ContainsFunc(slices.Concat(a.record.Fields, a.ignored), func(f ledger.Pair) bool {
		old, had := a.origin.fields[f.Key]
		return had && old != f.Value && wordsOf(old) == wordsOf(f.Value)
	})
}

// wordsOf returns the letters and digits of a text.
func wordsOf(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
}

func quarantineName(o *origin) string { return o.id + " " + o.name }

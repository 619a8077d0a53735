package task

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"stint/ledger"
	"stint/state"
)

// OneSentence returns a text in one line, of a long one the beginning.
func OneSentence(text string, most int) string {
	line := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// RecordOf returns a record of the task of that id, without fields yet.
func RecordOf(id string) *ledger.Record { return &ledger.Record{Kind: ledger.KindTask, ID: id} }

// AccountRecord returns a record of the account of that name, without fields yet.
func AccountRecord(name string) *ledger.Record {
	return &ledger.Record{Kind: ledger.KindControl, ID: state.ControlAccount + name}
}

// HoldRecord puts the account of a task on hold.
func HoldRecord(t *state.Task, why string) *ledger.Record {
	return AccountRecord(t.AccountName()).Add(state.KeyHold, "true").Add(state.KeyReason, why+"; met by task "+state.ShortID(t.ID))
}

// HeadAndTail returns a text, of a long one only both ends. where says where the whole one is.
func HeadAndTail(text string, most int, where string) string {
	if len(text) <= most {
		return text
	}
	head, tail := most*3/4, most/4
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail > 0 && !utf8.RuneStart(text[len(text)-tail]) {
		tail--
	}
	return fmt.Sprintf("%s\n[… %d bytes are left out here%s …]\n%s", text[:head], len(text)-head-tail, where, text[len(text)-tail:])
}

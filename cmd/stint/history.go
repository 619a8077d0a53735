package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/follow"
	"stint/ledger/journal"
	"stint/state"
)

func (a *app) historyCommand() *cobra.Command {
	var whole, following bool
	var limit int
	c := command("history [OPTIONS] [ID]", "print what happened to tasks, and by whom", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) (err error) {
		if limit < 0 {
			return usage("stint history --help", "--limit %d is negative; 0 is all", limit)
		}
		dir, _, err := a.stateMissing()
		if err != nil {
			return err
		}
		h, err := readChronicle(dir, ledger.TaskFiles, whole)
		if err != nil {
			return err
		}
		id := ""
		if len(args) == 1 {
			none := &task.Error{Code: task.CodeNotFound}
			if id, err = h.find(args[0]); errors.Is(err, none) { // then it may be a job's
				jobs, jerr := readChronicle(dir, ledger.JobFiles, true)
				if jerr != nil {
					return jerr
				}
				if job, jerr := jobs.find(args[0]); !errors.Is(jerr, none) {
					h, id, err = jobs, job, jerr
				}
			}
			if err != nil {
				return err
			}
		}
		for _, f := range h.faults {
			a.hint("stint: %s; more: stint fsck\n", f)
		}
		isOther := func(e event) bool { return id != "" && (e.Kind != h.files.Kind() || e.ID != id) }
		events := slices.DeleteFunc(h.events, isOther)
		if limit > 0 && len(events) > limit {
			events = events[len(events)-limit:]
		}
		for i := range events {
			if err := a.print(events[i], events[i].line()); err != nil {
				return err
			}
		}
		if len(events) == 0 {
			a.hint("stint: no history yet\n")
		}
		if !following {
			return nil
		}
		f := follow.New(durable.OS, filepath.Join(dir, h.files.Journal()), h.last.Seq, nil)
		defer func() { err = errors.Join(err, f.Close()) }()
		for {
			s, err := f.Next(c.Context())
			if isDetached(c.Context()) {
				return &cliError{code: exitInterrupted}
			}
			if err != nil {
				return err
			}
			if h.last = eventOf(s, h.last.At); isOther(h.last) {
				continue
			}
			if err := a.print(h.last, h.last.line()); err != nil {
				return err
			}
		}
	}, a.completeIDs())
	f := c.Flags()
	f.IntVarP(&limit, "limit", "n", 0, "the newest `number` of records; 0: all")
	f.BoolVarP(&following, "follow", "f", false, "also print what follows, until Ctrl-C")
	f.BoolVar(&whole, "archive", false, "also what compaction has moved to archive/")
	return a.withJSON(c)
}

// An event is one record as history tells it.
type event struct {
	Seq    uint64            `json:"seq"`
	At     time.Time         `json:"at,omitzero"` // where it has none: when the record before was written
	By     string            `json:"by"`          // hand, client or master
	Kind   ledger.Kind       `json:"kind"`
	ID     string            `json:"id"`
	Fields map[string]string `json:"fields"` // what the record sets; "" unsets

	keys []string // of Fields, as they stand in the record
}

// eventOf returns the event of a record; before is the time of the one before it.
func eventOf(s *ledger.Section, before time.Time) event {
	e := event{Seq: s.Seq, At: before, By: "master", Kind: s.Kind, ID: string(s.ID), Fields: map[string]string{}}
	for i := range s.Fields {
		key, value := string(s.Fields[i].Key), s.Fields[i].String()
		if key == ledger.KeyBy && value != "" {
			e.By = value
			continue
		}
		if at, err := state.ParseTime(value); key == state.KeyUpdatedAt && err == nil && !at.IsZero() && e.Seq > 0 {
			e.At = at
		}
		if _, twice := e.Fields[key]; !twice {
			e.keys = append(e.keys, key)
		}
		e.Fields[key] = value
	}
	return e
}

// A chronicle is what the files of a state directory tell, in order.
type chronicle struct {
	files  ledger.Files // of which ledger
	events []event
	last   event // of them, or of those that followed
	faults []*ledger.SyntaxError
	whole  bool            // the archive is in it
	told   map[string]bool // seqs, or tasks that were moved out; a compaction that was cut off leaves records in the archive that the next one moves there again
}

// add adds the event of a record, unless it only repeats what is there.
func (h *chronicle) add(s *ledger.Section) (more bool) {
	key := strconv.FormatUint(s.Seq, 10)
	if s.Get(ledger.KeyArchived) != nil {
		key = s.Name() + s.Value(ledger.KeyUpdated)
	}
	if !h.whole || !h.told[key] {
		h.told[key] = true
		h.last = eventOf(s, h.last.At)
		h.events = append(h.events, h.last)
	}
	return true
}

// readChronicle reads the journal, and the archive before it if that is wanted.
func readChronicle(dir string, files ledger.Files, archive bool) (*chronicle, error) {
	h := &chronicle{files: files, whole: archive, told: map[string]bool{}}
	var paths []string
	if archive {
		paths, _ = filepath.Glob(filepath.Join(dir, "archive", strings.TrimSuffix(files.Ledger(), ".md")+"-*.md")) // the pattern is good; names sort by month
	}
	for _, path := range append(paths, filepath.Join(dir, files.Journal())) {
		data, err := journal.ReadLedger(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, &cliError{code: exitFailure, message: "cannot read the history", err: err, try: "stint fsck"}
		}
		for _, f := range ledger.CheckJournal(data, h.add) {
			if f.Torn == 0 {
				f.File = filepath.Base(path)
				h.faults = append(h.faults, f)
			}
		}
	}
	return h, nil
}

// find returns the id of the task or job that ref means: whole, a unique piece, or @last.
func (h *chronicle) find(ref string) (string, error) {
	var ids []string // each once, in the order in which they were made
	known := map[string]bool{}
	for _, e := range h.events {
		if e.Kind == h.files.Kind() && !known[e.ID] {
			known[e.ID] = true
			ids = append(ids, e.ID)
		}
	}
	found := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.Contains(id, ref) })
	switch {
	case known[ref]:
		return ref, nil
	case ref == state.LastRef && len(ids) > 0:
		return ids[len(ids)-1], nil
	case ref == "" || len(found) == 0:
		hint := "stint history --archive " + ref
		if h.whole {
			hint = "stint ls, or stint ls --archive"
		}
		return "", &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("the history has no task %q", ref), Hint: hint}
	case len(found) > 1:
		return "", task.Ambiguous("tasks or jobs", ref, found)
	}
	return found[0], nil
}

// maxValue is how many characters of a value a line of history shows.
const maxValue = 60

// line returns the event for people: status first, then what else changed.
func (e *event) line() string {
	id := e.ID
	if len(id) == 36 && e.Kind != ledger.KindControl {
		id = shortID(id)
	}
	words := []string{fmt.Sprintf("%-19s %6d  %-6s  %-8s", cmp.Or(localTime(e.At), "-"), e.Seq, e.By, id)}
	if status := e.Fields[state.KeyStatus]; status != "" {
		words = append(words, status)
	}
	for _, key := range e.keys {
		if w := e.word(key); w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, "  ")
}

// word returns what a line says about one field; "" where the line has it already, or nobody asks.
func (e *event) word(key string) string {
	value := e.Fields[key]
	switch {
	case key == state.KeyStatus && value != "", key == state.KeyUpdatedAt, key == state.KeyCreatedAt, key == ledger.KeyAdopts:
		return ""
	case value == "":
		return key + " unset"
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return key + ": " + localTime(t)
	}
	lines := strings.Split(strings.TrimSpace(value), "\n")
	text := clip(lines[0], maxValue)
	if len(lines) > 1 && !strings.HasSuffix(text, "…") {
		text += " …"
	}
	return key + ": " + text
}

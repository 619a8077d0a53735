package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/plain"
	"stint/ledger/reconcile"
	"stint/session"
	"stint/state"
	"stint/state/fold"
)

// An applied record is one that a log gave to its fold.
type applied struct {
	at   int            // operations on the disk before
	text string         // the record without its numbers
	last bool           // it ends its change
	hand *ledger.Record // set if it was taken over from a person
}

// A folding is a log that is open on a memFS, and what it has applied.
type folding struct {
	fs     *memFS
	faulty *faultyFS // over fs; nil: nothing fails
	log    *journal.Log

	mu       sync.Mutex
	all      []applied // guarded by mu, as is all below
	archived []string
	gone     []string // what was taken as deleted by a person
	said     []string
}

func (f *folding) options() journal.Options {
	return journal.Options{
		Dir: memDir, FS: f.through(), Locker: &f.mu, Apply: f.apply,
		Rules: reconcile.Rules{Begin: func() (func(*ledger.Section) error, func(*ledger.Record) []ledger.Pair) { return fold.Check, nil }, Guarded: []string{"prompt"}},
		OnDelete: func(gone map[string]bool) []ledger.Record {
			for name := range gone {
				f.gone = append(f.gone, name)
			}
			return nil
		},
		Archived: f.Archive,
		Code: func(c *plain.Coder) {
			plain.List(c, &f.all, func(a *applied) { plain.Numbers(c, &a.at); c.Texts(&a.text); c.Flags(&a.last); code(c, &a.hand) })
			code(c, &f.archived)
		},
		OnRefoldStart: func() { f.all, f.archived = nil, nil },
		OnRefoldEnd:   func() {},
		Now:           november,
		Notify: func(n ledger.Notice) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.said = append(f.said, n.Text)
		},
	}
}

// through returns the file system as the log has it.
func (f *folding) through() durable.FS {
	if f.faulty != nil {
		return f.faulty
	}
	return f.fs
}

func (f *folding) open() (err error) {
	f.all, f.archived, f.gone, f.said = nil, nil, nil, nil
	f.log, err = journal.Open(f.options())
	return err
}

func (f *folding) apply(s *ledger.Section) error {
	a := applied{at: f.fs.ops(), text: textOf(s), last: !bytes.HasSuffix(s.Raw, []byte(" more -->\n"))}
	if s.Get(ledger.KeyAdopts) != nil {
		r := s.Record()
		a.hand = &r
	}
	f.all = append(f.all, a)
	return nil
}

// textOf returns a record without its number, which depends on what was lost before it.
func textOf(s *ledger.Section) string {
	head := bytes.IndexByte(s.Raw, '\n') + 1
	body := head + bytes.IndexByte(s.Raw[head:], '\n') + 1
	end := bytes.LastIndex(s.Raw, []byte("<!-- end "))
	text := make([]byte, 0, len(s.Raw))
	return string(append(append(text, s.Raw[:head]...), s.Raw[body:end]...))
}

// A handEdit is what a person saved, and what must become of it.
type handEdit struct {
	begun int    // operations before the save
	safe  int    // operations after which it must not get lost
	id    string // "": nothing must become of it
	field map[string]string
}

// never is the operation after which an edit is safe that was not synced.
const never = math.MaxInt

// A scene is one run of clients and persons over a file system that records it.
type scene struct {
	folding
	t     testing.TB
	rng   *rand.Rand
	next  int // number of the next task
	edits []handEdit
	maps  []sessionMap // versions of sessions.json
	told  answers
	past  []generation // before compactions
	since int          // operations before the last compaction
}

// answers are what clients were told where the disk may fail.
type answers struct {
	mu        sync.Mutex // guards what follows
	sent      []string   // records of all changes
	kept      []string   // of those that were acknowledged
	refused   []string   // of those of which nothing was kept
	false     []string   // what must not have been said
	compacted bool       // records may have been merged
	down      bool       // there is no log any more: it did not open, or it has stopped
}

// A sessionMap is a version of sessions.json.
type sessionMap struct {
	begun, safe int
	ids         map[string]string // key to session
}

// scenes are what clients and persons do, by name.
var scenes = []struct {
	name string
	play func(*scene)
}{
	{"submit", (*scene).submitSome},
	{"start", (*scene).startSome},
	{"finish", (*scene).finishSome},
	{"retry", (*scene).retrySome},
	{"cancel", (*scene).cancelSome},
	{"session", (*scene).updateSessions},
	{"inplace", (*scene).editInPlace},
	{"rename", (*scene).editByRename},
	{"append", (*scene).appendByHand},
	{"stale", (*scene).saveStale},
	{"compact", (*scene).compactSome},
	{"resume", (*scene).resumeSome},
}

// recorded plays the scene of that name. The same seed gives the same trace: the
// clock is the bubble's, and clients wait for the log to rest.
func recorded(t *testing.T, name string, seed uint64) *scene {
	return played(t, name, seed, nil)
}

// played plays the scene; with faults, calls of the file system fail.
func played(t *testing.T, name string, seed uint64, faults *faultyFS) *scene {
	h := fnv.New64()
	_, _ = h.Write([]byte(name)) // a hash never fails
	s := &scene{t: t, rng: rand.New(rand.NewPCG(seed, h.Sum64()))}
	s.fs = newMemFS()
	if faults != nil {
		s.faulty = faults.on(s.fs)
	}
	for _, c := range scenes {
		if c.name == name {
			synctest.Test(t, func(t *testing.T) {
				s.t = t
				s.start()
				c.play(s)
				s.stop()
			})
			return s
		}
	}
	t.Fatalf("there is no scene %q", name)
	return nil
}

// start opens the log. A disk that fails once gets a second chance.
func (s *scene) start() {
	s.t.Helper()
	kept := s.all
	s.faulty.forget()
	err := s.open()
	if err != nil && s.faulty != nil {
		s.faulty.forget()
		if err = s.open(); err != nil {
			s.told.down = true
			return
		}
	}
	must(s.t, err)
	if s.faulty != nil {
		return
	}
	for i := range kept {
		if kept[i].text != s.all[i].text {
			s.t.Fatalf("a restart gives %q and not %q", s.all[i].text, kept[i].text)
		}
	}
	copy(s.all, kept)        // they were there before
	for i := range s.edits { // what was taken over is durable
		if s.edits[i].id != "" {
			s.edits[i].safe = min(s.edits[i].safe, s.fs.ops())
		}
	}
}

func (s *scene) stop() {
	s.t.Helper()
	if s.log == nil {
		return
	}
	if err := s.log.Close(); err != nil && s.faulty == nil {
		s.t.Fatal(err)
	}
	s.log = nil
}

// change submits one change and waits until the log rests.
func (s *scene) change(records ...*ledger.Record) {
	s.t.Helper()
	s.send(records)
	s.quiet()
}

// send submits one change and notes the answer.
func (s *scene) send(records []*ledger.Record) {
	if s.log == nil {
		return
	}
	err := s.submit(records...)
	if s.faulty == nil {
		if err != nil {
			s.t.Error(err)
		}
		return
	}
	s.told.note(records, err, s.faulty)
}

// submit makes one change; without records one of a task that nobody knows yet.
func (f *folding) submit(records ...*ledger.Record) error {
	if len(records) == 0 {
		records = append(records, record("next", "status", "queued"))
	}
	return f.log.Update(context.Background(), func(tx *ledger.Tx) error {
		for _, r := range records {
			tx.Append(r)
		}
		return nil
	})
}

var errNothing = errors.New("nothing to change")

// quiet waits until the log has appended to tasks.md what it has acknowledged.
func (s *scene) quiet() {
	s.t.Helper()
	if s.log == nil {
		return
	}
	err := s.log.Update(context.Background(), func(*ledger.Tx) error { return errNothing })
	if !errors.Is(err, errNothing) && s.faulty == nil {
		s.t.Fatal(err)
	}
}

// together submits changes that come into one batch, in this order.
func (s *scene) together(changes ...[]*ledger.Record) {
	s.t.Helper()
	if s.log == nil {
		return
	}
	hold := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.log.Update(context.Background(), func(*ledger.Tx) error { <-hold; return errNothing }) // keeps the log busy
	})
	synctest.Wait()
	for _, c := range changes {
		wg.Go(func() { s.send(c) })
		synctest.Wait()
	}
	close(hold)
	wg.Wait()
	s.quiet()
}

// rest lets a second go by, in which tasks.md is synced.
func (s *scene) rest() {
	time.Sleep(1100 * time.Millisecond)
	synctest.Wait()
}

// task returns the first record of a new task.
func (s *scene) task() *ledger.Record {
	s.next++
	return record(fmt.Sprint("t", s.next), "status", "queued", "sessionKey", "web", "workspace", "/home/ana/shop", "priority", "5", "prompt", s.prompt())
}

// prompt returns a hostile text of any length.
func (s *scene) prompt() string {
	text := nasty[s.rng.IntN(len(nasty)-1)] + fmt.Sprint(s.rng.IntN(1000))
	if s.rng.IntN(3) == 0 {
		text += strings.Repeat("\nkeep the diff small, and whatever else there is to say about a task at great length", s.rng.IntN(40))
	}
	return text
}

func (s *scene) last() string { return fmt.Sprint("t", s.next) }

// step is one record about the last task.
func (s *scene) step(fields ...string) *ledger.Record { return record(s.last(), fields...) }

func (s *scene) submitSome() {
	for range 1 + s.rng.IntN(2) {
		s.change(s.task())
	}
	s.together([]*ledger.Record{s.task()}, []*ledger.Record{s.task(), s.task()}, []*ledger.Record{s.task()})
	s.rest()
	s.change(s.task())
}

// resumeSome has logs go on from a cache, and end in disorder after that.
func (s *scene) resumeSome() {
	for range 3 {
		s.change(s.task())
		s.stop()
		s.start()
		if s.faulty == nil && !s.log.Resumed() {
			s.t.Error("a log does not go on from the cache")
		}
	}
	s.together([]*ledger.Record{s.task()}, []*ledger.Record{s.task(), s.task()})
	s.rest()
	s.change(s.task())
}

func (s *scene) startSome() {
	s.change(s.task())
	s.change(s.step("status", "running", "runId", "r1", "attempt", "1"))
	s.change(s.step("codexSessionId", "c1", "sessionId", "s1"))
	s.stop()
	s.start()
	s.change(s.task())
}

func (s *scene) finishSome() {
	s.change(s.task())
	s.change(s.step("status", "running", "runId", "r1", "attempt", "1"))
	done := s.step("status", "failed", "reason", "exit", "exitCode", "1", "result", s.prompt())
	s.change(done, s.task(), s.task())
	s.change(s.step("status", "running", "runId", "r2", "attempt", "1"))
	done = s.step("status", "done", "result", s.prompt())
	s.together([]*ledger.Record{done, s.task()}, []*ledger.Record{s.task(), s.task(), s.task()})
}

func (s *scene) retrySome() {
	s.change(s.task())
	for i := range 2 {
		s.change(s.step("status", "running", "runId", fmt.Sprint("r", i), "attempt", fmt.Sprint(i+1)))
		s.change(s.step("status", "queued", "retries", fmt.Sprint(i+1), "reason", "interrupted", "notBefore", "2026-11-21T03:12:45.123Z"))
		s.rest()
	}
	s.change(s.step("status", "dead", "reason", "exit", "error", s.prompt()))
}

func (s *scene) cancelSome() {
	s.change(s.task())
	first := s.last()
	s.change(s.task())
	s.together([]*ledger.Record{record(first, "status", "canceled", "note", s.prompt())}, []*ledger.Record{s.step("status", "running", "runId", "r1")})
	s.change(s.step("status", "canceled"))
	s.change(record(first, "status", "queued"))
}

func (s *scene) updateSessions() {
	ids := map[string]string{}
	for range 3 {
		s.change(s.task())
		key, id := s.last(), fmt.Sprint("s-", s.rng.IntN(1000))
		s.change(s.step("status", "running", "sessionId", id))
		ids[key] = id
		version := sessionMap{begun: s.fs.ops(), safe: never, ids: maps.Clone(ids)}
		if s.storeSessions(ids) {
			version.safe = s.fs.ops()
		}
		s.maps = append(s.maps, version)
	}
}

// storeSessions writes sessions.json anew and reports whether that went well.
func (s *scene) storeSessions(ids map[string]string) bool {
	var entries []state.Session
	for key, id := range ids {
		entries = append(entries, state.Session{Key: key, Agent: "codex", ID: id})
	}
	err := session.Open(session.Options{Dir: memDir, FS: s.through(), List: func() []state.Session { return entries }, Interval: time.Hour}).Close()
	if err != nil && s.faulty == nil {
		s.t.Error(err)
	}
	return err == nil
}

// buffer is tasks.md as an editor loads it.
func (s *scene) buffer() string {
	text, _ := s.fs.content("tasks.md")
	return text
}

// write writes a text in pieces of that size.
func (s *scene) write(name string, flag int, text string, size int, sync bool) {
	s.t.Helper()
	f, err := s.fs.OpenFile(filepath.Join(memDir, name), os.O_WRONLY|os.O_CREATE|flag, 0)
	for ; err == nil && text != ""; text = text[min(size, len(text)):] {
		_, err = f.Write([]byte(text[:min(size, len(text))]))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	must(s.t, err)
}

// saveInPlace truncates tasks.md and writes it in pieces.
func (s *scene) saveInPlace(text string, sync bool) {
	s.t.Helper()
	s.write("tasks.md", os.O_TRUNC, text, 1+s.rng.IntN(len(text)+1), sync)
}

// saveByRename writes another file, as long as this one is there, and renames it.
func (s *scene) saveByRename(text string, sync bool) {
	s.t.Helper()
	s.write("tasks.md~", 0, text, len(text), sync)
	name := filepath.Join(memDir, "tasks.md")
	must(s.t, s.fs.Rename(name+"~", name))
	if sync {
		must(s.t, s.fs.SyncDir(memDir))
	}
}

// edit is a person's save of text that changes one task.
func (s *scene) edit(save func(string, bool), text, id string, fields ...string) {
	e := handEdit{begun: s.fs.ops(), safe: never, id: id, field: map[string]string{}}
	for i := 0; i < len(fields); i += 2 {
		e.field[fields[i]] = fields[i+1]
	}
	sync := s.rng.IntN(2) == 0
	save(text, sync)
	if sync {
		e.safe = s.fs.ops()
	}
	s.edits = append(s.edits, e)
}

// editWith changes and adds sections while no master runs, and while one does.
func (s *scene) editWith(save func(string, bool)) {
	s.change(s.task())
	s.change(s.task())
	s.quiet()
	s.stop()
	s.edit(save, strings.Replace(s.buffer(), "- priority: 5", "- priority: 9", 1), "t1", "priority", "9")
	s.start()
	s.change(s.task())
	s.stop()
	s.edit(save, s.buffer()+"\n## Task mine\n- status: queued\n- prompt: by hand\n", "mine", "status", "queued", "prompt", "by hand")
	s.start()
	s.change(record("mine", "status", "running"))
}

func (s *scene) editInPlace()  { s.editWith(s.saveInPlace) }
func (s *scene) editByRename() { s.editWith(s.saveByRename) }

// appendByHand adds lines to the end with >>.
func (s *scene) appendByHand() {
	s.change(s.task())
	s.stop()
	s.edit(func(text string, sync bool) {
		s.write("tasks.md", os.O_APPEND, text, len(text), sync)
	}, "\n## Task t1\n- status: canceled\n", "t1", "status", "canceled")
	s.start()
	s.change(s.task())
}

// saveStale saves a buffer that lacks the newest records.
func (s *scene) saveStale() {
	s.change(s.task())
	save := s.saveInPlace
	if s.rng.IntN(2) == 0 {
		save = s.saveByRename
	}
	for range 2 {
		old := s.buffer()
		s.change(s.task())
		s.change(s.step("status", "running", "runId", "r1"))
		s.stop()
		if s.rng.IntN(2) == 0 {
			s.edit(save, old, "")
		} else {
			s.next++
			s.edit(save, old+"\n## Task t"+fmt.Sprint(s.next)+"\n- status: draft\n", s.last(), "status", "draft")
		}
		s.start()
	}
	s.change(s.task())
}

package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/mark"
)

// TestPromise1CrashImages plays scenes on a file system in memory, cuts the power after every operation, and
// lets a log recover what is left. Whatever that is: all that was acknowledged is there, unchanged, once and
// in order; of what was in flight whole changes are there or nothing; nothing else is.
//
//	STINT_TEST_IMAGES=1000000                how many crashes; of fewer than all of each scene, some of each
//	STINT_TEST_SEED=7                        repeats a run
//	STINT_TEST_CRASH=submit:17:7:zero        repeats one crash: scene, operation, seed, mode
func TestPromise1CrashImages(t *testing.T) {
	t.Parallel()
	if one := os.Getenv("STINT_TEST_CRASH"); one != "" {
		replayCrash(t, one)
		return
	}
	c := &crashes{
		want: int64(intFromEnv(t, "STINT_TEST_IMAGES", imagesOfAll)),
		seed: uint64(intFromEnv(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))),
	}
	t.Run("images", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				c.work(t)
			})
		}
	})
	if !t.Failed() {
		t.Logf("crash: images=%d scenarios=%d seeds=%d lost=0 duplicated=0 corrupted=0 seed=%d",
			c.images.Load(), len(crashScenes()), (c.jobs.Load()-1)/int64(len(crashScenes()))+1, c.seed)
	}
}

// intFromEnv returns the number in a variable, or, without it, otherwise, of which -short takes a fortieth.
func intFromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	switch {
	case text == "" && testing.Short():
		return otherwise/40 + 1
	case text == "":
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// recovery is the scene in which the crash comes while a log recovers from another.
const recovery = "recovery"

func crashScenes() []string {
	var names []string
	for _, s := range scenes {
		names = append(names, s.name)
	}
	return append(names, recovery)
}

// The ways in which a recovery can be wrong.
const (
	lost       = "lost"
	duplicated = "duplicated"
	corrupted  = "corrupted"
)

func failed(what, format string, args ...any) error {
	return fmt.Errorf(what+": "+format, args...)
}

// imagesOfAll is about how many crashes all scenes have together.
const imagesOfAll = 5_000

// crashes counts what the workers have done.
type crashes struct {
	want   int64
	seed   uint64
	images atomic.Int64
	jobs   atomic.Int64 // scenes that were begun
	wrong  atomic.Int64
}

func (c *crashes) work(t *testing.T) {
	names, every := crashScenes(), max(1, int(imagesOfAll/max(1, c.want)))
	for c.images.Load() < c.want && !t.Failed() {
		n := c.jobs.Add(1) - 1
		name, seed := names[n%int64(len(names))], c.seed+uint64(n)/uint64(len(names))
		pick := rand.New(rand.NewPCG(seed, uint64(n)))
		cutEverywhere(t, name, seed, func(id string, crash func() error) {
			if pick.IntN(every) > 0 {
				return
			}
			c.images.Add(1)
			if err := crash(); err != nil && c.wrong.Add(1) <= 9 {
				t.Errorf("%v\nrepeat: STINT_TEST_CRASH=%s go test -run TestPromise1CrashImages ./ledger/journal", err, id)
			}
		})
	}
}

func replayCrash(t *testing.T, one string) {
	part := strings.Split(one, ":")
	if len(part) != 4 {
		t.Fatalf("STINT_TEST_CRASH=%s is not scene:operation:seed:mode", one)
	}
	seed, err := strconv.ParseUint(part[2], 10, 64)
	must(t, err)
	found := false
	cutEverywhere(t, part[0], seed, func(id string, crash func() error) {
		if id == one {
			found = true
			err := crash()
			t.Logf("%s: %v", id, err)
			if err != nil {
				t.Fail()
			}
		}
	})
	if !found {
		t.Fatalf("%s: that scene has no such operation or mode", one)
	}
}

// cutEverywhere plays a scene and offers each crash in it, which tells what follows from it.
func cutEverywhere(t *testing.T, name string, seed uint64, offer func(id string, crash func() error)) {
	if name == recovery {
		cutRecovery(t, seed, offer)
		return
	}
	s := recorded(t, name, seed)
	d := &disk{}
	for op := 0; ; op++ {
		for _, m := range modes {
			rng := rand.New(rand.NewPCG(seed, uint64(op)))
			id := fmt.Sprintf("%s:%d:%d:%s", name, op, seed, m.name)
			offer(id, func() error { return s.recover(d.image(m, rng), op) })
		}
		if op == len(s.fs.trace) {
			return
		}
		d.apply(&s.fs.trace[op])
	}
}

// cutRecovery cuts the power in a recovery from a crash, at every operation, and
// once more in the recovery from that.
func cutRecovery(t *testing.T, seed uint64, offer func(id string, crash func() error)) {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := recorded(t, scenes[rng.IntN(len(scenes))].name, seed)
	cut := rng.IntN(len(s.fs.trace) + 1)
	d := &disk{}
	for op := range cut {
		d.apply(&s.fs.trace[op])
	}
	d, trace, err := recoverOn(d, modes[rng.IntN(len(modes))], rng)
	if err != nil {
		t.Errorf("%v\nrepeat: STINT_TEST_CRASH=%s:0:%d:%s", err, recovery, seed, modes[0].name)
		return
	}
	for op := 0; ; op++ {
		for _, m := range modes {
			rng := rand.New(rand.NewPCG(seed, uint64(op)+1))
			id := fmt.Sprintf("%s:%d:%d:%s", recovery, op, seed, m.name)
			offer(id, func() error { return s.recover(d.image(m, rng), cut) })
			offer(id, func() error { return s.crashAgain(d, m, rand.New(rand.NewPCG(^seed, uint64(op)+1)), cut) })
		}
		if op == len(trace) {
			return
		}
		d.apply(&trace[op])
	}
}

// recoverOn lets a log recover from a crash now, and gives the disk as it was
// before and what the recovery did to it.
func recoverOn(d *disk, m mode, rng *rand.Rand) (*disk, []memOp, error) {
	fsys := d.image(m, rng)
	if d = d.clone(); !m.kill {
		d = diskOf(fsys)
	}
	fsys.quiet = false
	f := folding{fs: fsys}
	if err := f.open(); err != nil {
		return nil, nil, failed(corrupted, "after a crash the log does not open: %v", err)
	}
	return d, fsys.trace, f.log.Close()
}

// TestPromise1WhatARestartShowsIsKept: what a log gives to its fold when it opens,
// and what it acknowledges then, survives a power cut, also where its predecessor
// was killed before it had synced what this builds upon.
func TestPromise1WhatARestartShowsIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range scenes {
		s := recorded(t, c.name, 1)
		d := &disk{}
		for op := range s.fs.trace {
			for _, submits := range []bool{false, true} {
				if err := s.shownIsKept(d, submits); err != nil {
					t.Fatalf("%s, killed after operation %d, submits: %v: %v", c.name, op, submits, err)
				}
			}
			d.apply(&s.fs.trace[op])
		}
	}
}

// shownIsKept kills a log now, opens another, lets it acknowledge something or not,
// cuts the power, and compares with what a third one shows.
func (s *scene) shownIsKept(d *disk, submits bool) error {
	fsys := d.image(modes[0], s.rng)
	fsys.quiet = false
	shown, again := folding{fs: fsys}, folding{}
	if err := shown.open(); err != nil {
		return err
	}
	if submits {
		if err := shown.submit(); err != nil {
			return err
		}
	}
	if err := shown.log.Close(); err != nil {
		return err
	}
	after := d.clone()
	for i := range fsys.trace {
		after.apply(&fsys.trace[i])
	}
	again.fs = after.image(modes[1], s.rng)
	_ = again.fs.Remove(memDir + "/" + indexName) // if it is there: what both files have is to be shown
	if err := errors.Join(again.open(), again.log.Close()); err != nil {
		return err
	}
	for i := range shown.all {
		if i >= len(again.all) || shown.all[i].text != again.all[i].text {
			return fmt.Errorf("a restart shows %q, and a power cut takes it back", shown.all[i].text)
		}
	}
	return nil
}

// crashAgain lets a log recover, crash in that, and recover.
func (s *scene) crashAgain(d *disk, m mode, rng *rand.Rand, cut int) error {
	d, trace, err := recoverOn(d, m, rng)
	if err != nil {
		return err
	}
	for op := range rng.IntN(len(trace) + 1) {
		d.apply(&trace[op])
	}
	return s.recover(d.image(modes[rng.IntN(len(modes))], rng), cut)
}

// recover opens a log on what a crash has left and compares with what the
// clients were told up to operation cut.
func (s *scene) recover(fsys *memFS, cut int) error {
	image := fsys.frozen()
	f := folding{fs: fsys}
	err := f.recovered(s, cut)
	if err != nil {
		return fmt.Errorf("%w\nbefore recovery:\n%safter it:\n%s", err, listing(image), listing(fsys.frozen()))
	}
	return nil
}

func listing(names []memName) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "--- %s\n%.6000q\n", n.path, n.node.data)
	}
	zeros := regexp.MustCompile(`(\\x00)+`)
	text := zeros.ReplaceAllStringFunc(b.String(), func(z string) string { return fmt.Sprintf("{%d zeros}", len(z)/4) })
	return strings.ReplaceAll(text, `\n`, "\n")
}

func (f *folding) recovered(s *scene, cut int) error {
	if err := f.open(); err != nil {
		return failed(corrupted, "the log does not open: %v", err)
	}
	if err := f.log.Close(); err != nil {
		return failed(corrupted, "the log does not close: %v", err)
	}
	if err := f.compare(s, cut); err != nil {
		return err
	}
	if err := s.compareSessions(f.fs, cut); err != nil {
		return err
	}
	if err := f.again(); err != nil {
		return err
	}
	return f.alone()
}

// compare holds the fold to what the clients were told (I1, I2, I6, I7).
func (f *folding) compare(s *scene, cut int) error {
	if len(f.gone) > 0 {
		return failed(lost, "taken as deleted by hand: %v", f.gone)
	}
	var all error
	for _, g := range s.generations() {
		if g.from > cut || cut >= g.until {
			continue
		}
		err := f.compareTo(s, g, cut)
		if err == nil {
			return nil
		}
		all = errors.Join(all, err)
	}
	return all
}

// compareTo is compare with what one generation of the journal had.
func (f *folding) compareTo(s *scene, g generation, cut int) error {
	told := 0
	for told < len(g.all) && g.all[told].at <= cut {
		if told == len(f.all) || f.all[told].text != g.all[told].text {
			return failed(lost, "record %d of those that were acknowledged is not there: %q", told+1, g.all[told].text)
		}
		told++
	}
	if archived := f.onlyArchived(); !slices.Equal(archived, g.archived) {
		return failed(lost, "in the archive are %q and not %q", archived, g.archived)
	}
	rest := withoutHand(f.all[told:])
	if err := inFlight(rest, withoutHand(g.all[told:])); err != nil {
		return err
	}
	return s.compareEdits(f.all, g.from, told, cut)
}

func withoutHand(all []applied) []applied {
	var rest []applied
	for _, a := range all {
		if a.hand == nil {
			rest = append(rest, a)
		}
	}
	return rest
}

// inFlight holds got to be whole changes of the batch that was on its way to the
// disk: changes of one batch know nothing of each other.
func inFlight(got, sent []applied) error {
	for i, n := 0, 0; i < len(got); {
		for n < len(sent) && sent[n].at == sent[0].at && sent[n].text != got[i].text {
			for !sent[n].last {
				n++
			}
			n++
		}
		if n == len(sent) || sent[n].at != sent[0].at {
			return failed(corrupted, "nobody submitted this then: %q", got[i].text)
		}
		for ; ; i, n = i+1, n+1 {
			if i == len(got) || got[i].text != sent[n].text {
				return failed(corrupted, "a change is there in part: %q is missing", sent[n].text)
			}
			if sent[n].last {
				i, n = i+1, n+1
				break
			}
		}
	}
	return nil
}

// compareEdits: each edit that was durable was taken over, none twice, and nothing else was.
func (s *scene) compareEdits(all []applied, from, told, cut int) error {
	taken := make([]int, len(s.edits))
	for i, a := range all {
		if a.hand == nil || isForTheRecord(a.hand) {
			continue
		}
		if i >= told && s.isStub(a.hand) {
			continue
		}
		n := s.editOf(a.hand, from, i < told, cut)
		if n < 0 {
			return failed(corrupted, "nobody has made this edit: %q", a.text)
		}
		if taken[n]++; taken[n] > 1 && (i < told || !s.isTorn(cut)) {
			return failed(duplicated, "an edit was taken over twice: %q", a.text)
		}
	}
	for i, n := range taken {
		if e := s.edits[i]; n == 0 && e.safe <= cut && e.id != "" && e.begun >= from {
			return failed(lost, "an edit that was durable was not taken over: %v", e)
		}
	}
	return nil
}

// isForTheRecord reports whether a record changes nothing, but says that a section has been seen.
func isForTheRecord(r *ledger.Record) bool {
	_, ignored := r.Get(ledger.KeyIgnored)
	return ignored && !slices.ContainsFunc(r.Fields, func(f ledger.Pair) bool { return !isEngines(f.Key) })
}

// isStub reports whether a record is nothing but the beginning of a heading that
// stood in tasks.md: what is left of a section that was cut off in its id.
func (s *scene) isStub(r *ledger.Record) bool {
	if slices.ContainsFunc(r.Fields, func(f ledger.Pair) bool { return !isEngines(f.Key) }) {
		return false
	}
	return slices.ContainsFunc(s.all, func(a applied) bool {
		rest, ok := strings.CutPrefix(a.text, "## Task "+r.ID)
		return ok && rest[0] != '\n'
	})
}

// isTorn reports whether tasks.md may be cut off anywhere, because a person's program has not synced it.
func (s *scene) isTorn(cut int) bool {
	return slices.ContainsFunc(s.edits, func(e handEdit) bool { return e.begun <= cut && cut < e.safe })
}

// editOf returns the edit that a record takes over, or -1. What was not synced may
// have been cut off anywhere, sections that were taken over before too.
func (s *scene) editOf(r *ledger.Record, from int, told bool, cut int) int {
	torn := !told && s.isTorn(cut)
	for i, e := range s.edits {
		if e.id == "" || e.begun > cut || e.begun < from && !torn || !(r.ID == e.id || torn && strings.HasPrefix(e.id, r.ID)) {
			continue
		}
		matches := true
		fields := 0
		for _, f := range r.Fields {
			if isEngines(f.Key) {
				continue
			}
			fields++
			want, known := e.field[f.Key]
			matches = matches && known && (f.Value == want || torn && strings.HasPrefix(want, f.Value))
		}
		if matches && (torn || fields == len(e.field)) {
			return i
		}
	}
	return -1
}

// compareSessions: sessions.json is whole, and not older than its last sync.
func (s *scene) compareSessions(fsys *memFS, cut int) error {
	if len(s.maps) == 0 {
		return nil
	}
	var file map[string]struct{ SessionID string }
	if text, ok := fsys.content("sessions.json"); ok {
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			return failed(corrupted, "%v", err)
		}
	}
	have := map[string]string{}
	for key, e := range file {
		have[key] = e.SessionID
	}
	ok := len(have) == 0
	for _, m := range s.maps {
		if m.safe <= cut {
			ok = false
		}
		ok = ok || m.begun <= cut && maps.Equal(have, m.ids)
	}
	if !ok {
		return failed(lost, "sessions.json has %v", have)
	}
	return nil
}

// again: a second recovery changes nothing (I5), and what comes now is kept.
func (f *folding) again() error {
	files := f.fs.frozen()
	before := f.all
	if err := f.open(); err != nil {
		return failed(corrupted, "the log does not open for a second time: %v", err)
	}
	same := f.fs.same(files)
	err := f.submit()
	if err = errors.Join(err, f.log.Close()); err != nil {
		return failed(corrupted, "the log takes nothing after a recovery: %v", err)
	}
	if !same {
		return failed(corrupted, "a second recovery has changed files; before it:\n%s", listing(files))
	}
	if len(f.all) != len(before)+1 {
		return failed(corrupted, "%d records after a recovery, %d after another and one more", len(before), len(f.all))
	}
	for i := range before {
		if before[i].text != f.all[i].text {
			return failed(corrupted, "a second recovery gives %q and not %q", f.all[i].text, before[i].text)
		}
	}
	return nil
}

// alone: tasks.md without the journal gives all that stands in it whole, and if
// nothing in it is damaged, the same tasks.
func (f *folding) alone() error {
	text, _ := f.fs.content("tasks.md")
	records, _ := f.fs.content("journal.md")
	a := folding{fs: &memFS{quiet: true}}
	a.fs.put("tasks.md", text)
	if err := a.open(); err != nil {
		return failed(corrupted, "tasks.md alone: %v", err)
	}
	findings := a.log.Findings()
	if err := a.log.Close(); err != nil {
		return failed(corrupted, "tasks.md alone: %v", err)
	}
	rebuilt, _ := a.fs.content("journal.md")
	in, out, whole := tasksIn(text), tasksIn(rebuilt), tasksIn(records)
	for id := range in {
		if out[id] == nil && len(findings) == 0 {
			return failed(lost, "tasks.md has %s, and the journal that was rebuilt from it does not", id)
		}
	}
	if err := ownSections(text, rebuilt); err != nil {
		return err
	}
	for id, want := range whole {
		if len(findings) == 0 && !maps.Equal(out[id], want) {
			return failed(lost, "tasks.md has no findings, but alone it gives %s as %v and not as %v\n%s", id, out[id], want, rebuilt)
		}
	}
	return nil
}

// ownSections: each section of stint's that is whole is in the rebuilt journal, unless a
// compaction has superseded it.
func ownSections(text, rebuilt string) error {
	have := map[uint64]bool{}
	doc := ledger.Parse([]byte(rebuilt))
	for i := range doc.Sections {
		have[doc.Sections[i].Seq] = true
	}
	doc = ledger.Parse([]byte(text))
	superseded := mark.Superseded(doc.Sections)
	for i := range doc.Sections {
		if s := &doc.Sections[i]; s.Seq > 0 && !have[s.Seq] && !superseded(s.Seq) {
			return failed(lost, "tasks.md has record %d, and the journal that was rebuilt from it does not", s.Seq)
		}
	}
	return nil
}

// tasksIn folds the records of a file that count in the simplest way.
func tasksIn(text string) map[string]map[string]string {
	all := map[string]map[string]string{}
	doc := ledger.Parse([]byte(text))
	superseded := mark.Superseded(doc.Sections)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq > 0 && superseded(s.Seq) {
			continue
		}
		id := string(s.Kind) + " " + string(s.ID)
		if all[id] == nil {
			all[id] = map[string]string{}
		}
		for j := range s.Fields {
			if key := string(s.Fields[j].Key); !isEngines(key) {
				all[id][key] = s.Fields[j].String()
			}
		}
	}
	return all
}

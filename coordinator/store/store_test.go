package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"stint/coordinator/store"
	"stint/ledger"
	"stint/ledger/journal"
)

// notes is a fold: the newest text of each record.
type notes struct {
	text map[string]string
	news int // records that came while the store was open
}

// Archive implements [journal.Fold].
func (*notes) Archive(ledger.ArchiveEntry) {}

// Apply implements [journal.Fold].
func (n *notes) Apply(sec *ledger.Section) error {
	n.text[string(sec.ID)] = sec.Value("text")
	return nil
}

func open(t *testing.T, dir string) *store.Store[*notes] {
	s := store.New(store.Options[*notes]{
		Ledger: journal.Options{Dir: dir},
		New:    func(journal.Reader) *notes { return &notes{text: map[string]string{}} },
		Apply: func(n *notes, sec *ledger.Section, isNews bool) error {
			if isNews {
				n.news++
			}
			return n.Apply(sec)
		},
	})
	must(t, s.Open())
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func note(id, text string) func(*notes, *ledger.Tx) error {
	return func(_ *notes, tx *ledger.Tx) error {
		r := &ledger.Record{Kind: ledger.KindTask, ID: id}
		tx.Append(r.Add("text", text))
		return nil
	}
}

// TestUpdateIsFoldedAndKept: when Update returns, View sees it, and so does the next store
// in that directory, which knows that it is old. An error of the change appends nothing.
func TestUpdateIsFoldedAndKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.Update(t.Context(), note("a", "one")))
	refused := errors.New("refused")
	if err := s.Update(t.Context(), func(n *notes, tx *ledger.Tx) error { return errors.Join(note("a", "two")(n, tx), refused) }); !errors.Is(err, refused) {
		t.Errorf("a change that fails: %v", err)
	}
	for _, news := range []int{1, 0} {
		s.View(func(n *notes) {
			if n.text["a"] != "one" || n.news != news {
				t.Errorf("%+v; want %d news", n, news)
			}
		})
		must(t, s.Close())
		s = open(t, dir)
	}
}

// TestExclusiveSeesAllBeforeIt: each of many decisions over the whole fold has the records of
// those before it.
func TestExclusiveSeesAllBeforeIt(t *testing.T) {
	s := open(t, t.TempDir())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			next := func(n *notes, tx *ledger.Tx) error { return note(string(rune('a'+len(n.text))), "next")(n, tx) }
			if err := s.Exclusive(t.Context(), next); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := store.Read(s, func(fold *notes) int { return len(fold.text) }); got != 20 {
		t.Errorf("%d of 20 decisions are apart", got)
	}
}

// TestFollowAndClose: a follower gets what is durable, in order; a store that is closed says
// so to it and to whoever changes something, and can still be read.
func TestFollowAndClose(t *testing.T) {
	s := open(t, t.TempDir())
	f := s.Follow(0)
	for _, id := range []string{"a", "b"} {
		must(t, s.Update(t.Context(), note(id, "of "+id)))
		if sec, err := f.Next(t.Context()); err != nil || string(sec.ID) != id {
			t.Errorf("followed: %v, %v", sec, err)
		}
	}
	must(t, s.Close())
	<-s.Done()
	_, err := f.Next(context.Background())
	for what, err := range map[string]error{"Next": err, "Update": s.Update(t.Context(), note("c", "")), "Exclusive": s.Exclusive(t.Context(), note("c", ""))} {
		if !errors.Is(err, journal.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
	s.View(func(n *notes) {
		if len(n.text) != 2 || s.Err() != nil {
			t.Errorf("%+v, %v", n, s.Err())
		}
	})
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
	read store.Reader
	text map[string]string
	at   map[string]int64
	news int // records that came while the store was open
}

func open(t *testing.T, dir string) *store.Store[*notes] {
	s := store.New(store.Options[*notes]{
		Ledger: journal.Options{Dir: dir},
		New: func(read store.Reader) *notes {
			return &notes{read: read, text: map[string]string{}, at: map[string]int64{}}
		},
		Apply: func(n *notes, sec *ledger.Section, isNews bool) error {
			n.text[string(sec.ID)], n.at[string(sec.ID)] = sec.Value("text"), sec.Off
			if isNews {
				n.news++
			}
			return nil
		},
		Archived: func(*notes, ledger.ArchiveEntry) {},
	})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
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
	if err := s.Update(t.Context(), note("a", "one")); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := s.Update(t.Context(), func(n *notes, tx *ledger.Tx) error { return errors.Join(note("a", "two")(n, tx), refused) }); !errors.Is(err, refused) {
		t.Errorf("a change that fails: %v", err)
	}
	for _, news := range []int{1, 0} {
		s.View(func(n *notes) {
			sec, err := n.read.SectionAt(n.at["a"])
			if n.text["a"] != "one" || n.news != news || err != nil || sec.Value("text") != "one" {
				t.Errorf("%+v, %v; want %d news", n, err, news)
			}
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
	}
}

// TestExclusiveSeesAllBeforeIt: each of many decisions over the whole fold has the records of
// those before it.
func TestExclusiveSeesAllBeforeIt(t *testing.T) {
	s := open(t, t.TempDir())
	const n = 20
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			err := s.Exclusive(t.Context(), func(fold *notes, tx *ledger.Tx) error {
				return note(string(rune('a'+len(fold.text))), "next")(fold, tx)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := store.Read(s, func(fold *notes) int { return len(fold.text) }); got != n {
		t.Errorf("%d of %d decisions are apart", got, n)
	}
}

// TestFollowAndClose: a follower gets what is durable, in order; a store that is closed says
// so to it and to whoever changes something, and can still be read.
func TestFollowAndClose(t *testing.T) {
	s := open(t, t.TempDir())
	f := s.Follow(0)
	for _, id := range []string{"a", "b"} {
		if err := s.Update(t.Context(), note(id, "of "+id)); err != nil {
			t.Fatal(err)
		}
		if sec, err := f.Next(t.Context()); err != nil || string(sec.ID) != id {
			t.Errorf("followed: %v, %v", sec, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
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

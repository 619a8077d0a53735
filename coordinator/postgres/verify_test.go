package postgres

import (
	"fmt"
	"strings"
	"testing"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

// TestVerifyWithoutTables returns what to do about an empty database.
func TestVerifyWithoutTables(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	if _, err := Verify(t.Context(), w.o, w.read); err == nil || !strings.Contains(err.Error(), "has no tables of stint yet") {
		t.Error("it says", err)
	}
}

// TestVerifyAccounts changes what the mirror says of a held account.
func TestVerifyAccounts(t *testing.T) {
	t.Parallel()
	w, m, stop, _ := followed(t, task.TaskSpec{Prompt: "one"})
	before := w.c.Seq()
	byHand(t, w, "\n## Control account:demo\n- hold: true\n- reason: no money\n")
	until(t, "it is held", func() bool { return w.c.Seq() > before })
	w.settled(m)
	stop()
	w.same()
	for sql, want := range map[string]string{
		"UPDATE accounts SET enabled = FALSE":                  "accounts demo enabled: here true, there false",
		"UPDATE accounts SET held = FALSE":                     "accounts demo held: here true, there false",
		"UPDATE accounts SET reason = NULL":                    `accounts demo reason: here "no money", there null`,
		"UPDATE accounts SET cool_until = '2026-01-02 03:04Z'": `accounts demo cool_until: here null, there "2026-01-02T03:04:00Z"`,
	} {
		w.exec(sql)
		if r := w.verify(); !strings.Contains(fmt.Sprint(r.Differences), want) {
			t.Errorf("%s: verify says %v", sql, r.Differences)
		}
	}
	byHand(t, w, "\n## Control account:demo\n- hold: false\n")
	until(t, "it is changed later", func() bool { return len(w.verify().Differences) == 0 })
}

// A brokenCopy cannot read one task.
type brokenCopy struct {
	VerifySource
	id string
}

// TaskRecord implements Source.
func (b *brokenCopy) TaskRecord(id string) (task.TaskRecord, error) {
	if id == b.id {
		return task.TaskRecord{}, fmt.Errorf("input/output error")
	}
	return b.VerifySource.TaskRecord(id)
}

// TestVerifyUnreadableTask goes on behind a task that cannot be read here.
func TestVerifyUnreadableTask(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	bad := w.submit(task.TaskSpec{Prompt: "one"})
	w.submit(task.TaskSpec{Prompt: "two"})
	m, _ := w.mirror()
	w.settled(m)
	r, err := Verify(t.Context(), w.o, func(upTo uint64) (VerifySource, error) {
		src, err := w.read(upTo)
		return &brokenCopy{src, bad}, err
	})
	if err != nil || r.Tasks != 1 || len(r.Differences) != 1 || !strings.Contains(r.Differences[0].Text, "it cannot be read here: input/output error") {
		t.Errorf("it says %+v, %v", r, err)
	}
}

// TestCompactedSinceRead compacts between the moment at which a ledger is read and the
// writing: it is read again.
func TestCompactedSinceRead(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"once": false, "rebuild": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, postgrestest.Shared(t).Database(t))
			for range 10 {
				w.ended(task.TaskSpec{Prompt: "one", Parallel: true})
			}
			reads := 0
			o := w.o
			o.Anew = anew
			p, err := Once(t.Context(), o, func() (Source, error) {
				src, err := w.readAll()
				if reads++; reads == 1 {
					w.compact()
				}
				return src, err
			})
			if err != nil || p.Seq != w.c.Seq() || reads != 2 {
				t.Errorf("the mirror goes to %d, not to %d, %d reads, %v", p.Seq, w.c.Seq(), reads, err)
			}
			w.same()
		})
	}
}

package tasksfile

import (
	"context"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
)

// syncsFS counts what is synced.
type syncsFS struct {
	durable.FS
	n atomic.Int64
}

type syncsFile struct {
	durable.File
	n *atomic.Int64
}

func (s *syncsFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return syncsFile{f, &s.n}, err
}

func (f syncsFile) Datasync() error {
	f.n.Add(1)
	return f.File.Datasync()
}

// Records are synced within a second, many at once, and without records nothing is done.
func TestTasksFileIsSyncedASecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := &syncsFS{FS: durable.OS}
		tasks := New(fsys, t.TempDir(), "")
		snap, err := tasks.Read(t.Context())
		if done, aerr := tasks.AppendTo(snap, false, nil, 1, 0, ""); err != nil || aerr != nil || !done {
			t.Fatal(err, aerr, done)
		}
		ctx, stop := context.WithCancel(t.Context())
		note := func(n ledger.Notice) { t.Error(n.Text) }
		go tasks.SyncEverySecond(ctx, note)
		want := func(n int64) {
			t.Helper()
			synctest.Wait()
			if got := fsys.n.Load(); got != n {
				t.Errorf("synced %d times, want %d", got, n)
			}
		}
		time.Sleep(time.Minute) // of the bubble
		want(0)
		for range 2 {
			tasks.Append([]byte("some text\n"), 1, 1, note)
			synctest.Wait()
			tasks.Append([]byte("more\n"), 2, 2, note)
			synctest.Wait()
			before := fsys.n.Load()
			time.Sleep(time.Second - 1)
			want(before)
			time.Sleep(time.Minute)
			want(before + 1)
		}
		stop()
	})
}

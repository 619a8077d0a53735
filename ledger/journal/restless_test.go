package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/ledger"
	"stint/ledger/journal"
)

// TestTasksFileNeverRests: who waits for an answer hears that tasks.md is changed all the
// time, and does not wait for as long as that goes on.
func TestTasksFileNeverRests(t *testing.T) {
	waits := map[string]func(ctx context.Context, l *journal.Log) error{
		"reconcile": func(ctx context.Context, l *journal.Log) error { _, err := l.Reconcile(ctx, true); return err },
		"compact": func(ctx context.Context, l *journal.Log) error {
			_, err := l.Compact(ctx, journal.Compaction{})
			return err
		},
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &folding{fs: newMemFS()}
				must(t, f.open())
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				tasks, err := f.fs.OpenFile(filepath.Join(memDir, ledger.TasksName), os.O_WRONLY|os.O_APPEND, 0)
				must(t, err)
				var writing sync.WaitGroup
				writing.Go(func() {
					for ctx.Err() == nil {
						if _, err := tasks.Write([]byte("x")); err != nil {
							t.Error(err)
						}
						time.Sleep(30 * time.Millisecond) // of the bubble
					}
				})
				synctest.Wait()
				begun := time.Now()
				err = wait(t.Context(), f.log)
				var refused *journal.RefusedError
				if took := time.Since(begun); !errors.As(err, &refused) || took > 10*time.Second {
					t.Errorf("after %s: %v", took, err)
				}
				stop()
				writing.Wait()
				if err := errors.Join(tasks.Close(), f.log.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

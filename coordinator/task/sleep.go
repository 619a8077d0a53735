package task

import (
	"context"
	"time"
)

// Sleep waits for d, or for the end of ctx, of which it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

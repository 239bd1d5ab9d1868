// Package pause waits.
package pause

import (
	"context"
	"time"
)

// For waits, and fails with the cause if ctx ends before.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

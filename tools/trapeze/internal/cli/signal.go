package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// WithSignals returns a context that SIGINT and SIGTERM end, with a SignalError
// as its cause. Only the first signal is caught: a second one ends the process.
func WithSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-c:
			signal.Stop(c)
			e := &SignalError{Number: int(syscall.SIGTERM), Name: "SIGTERM"}
			if s == syscall.SIGINT {
				e = &SignalError{Number: int(syscall.SIGINT), Name: "SIGINT (Ctrl-C)"}
			}
			cancel(e)
		case <-ctx.Done():
			signal.Stop(c)
		}
	}()
	return ctx, func() { cancel(nil) }
}

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// caught are the signals that end a command in order.
var caught = map[syscall.Signal]string{
	syscall.SIGHUP:  "SIGHUP (the terminal was closed)",
	syscall.SIGINT:  "SIGINT (Ctrl-C)",
	syscall.SIGTERM: "SIGTERM",
}

// WithSignals returns a context that SIGINT, SIGTERM and, unless nohup has it
// ignored, SIGHUP end, with a SignalError as its cause. Only the first signal is
// caught: a second one ends the process. SIGPIPE no longer ends the process:
// writing to stdout fails instead, so that a command can clean up.
func WithSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	for s := range caught {
		if s != syscall.SIGHUP || !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	// Not ignored: programs that this one starts would ignore it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		select {
		case s := <-c:
			signal.Stop(c)
			number := s.(syscall.Signal)
			cancel(&SignalError{Number: int(number), Name: caught[number]})
		case <-ctx.Done():
			signal.Stop(c)
		}
	}()
	return ctx, func() { cancel(nil) }
}

package shell

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// caught are the signals that end a command in order.
var caught = map[syscall.Signal]string{
	syscall.SIGHUP:  "SIGHUP (the terminal was closed)",
	syscall.SIGINT:  "SIGINT (Ctrl-C)",
	syscall.SIGTERM: "SIGTERM",
}

// repeatTime is the time for which signals count as repeats of the first: timeout(1) signals
// its child and then the group, and the child is a member of that.
const repeatTime = 300 * time.Millisecond

// withSignals returns a context that SIGINT, SIGTERM and, unless nohup has it
// ignored, SIGHUP end, with a SignalError as its cause. What comes within
// repeatTime of the first signal is that signal again; a later one ends the
// process. SIGPIPE no longer ends the process:
// writing to stdout fails instead, so that a command can clean up.
func withSignals(ctx context.Context) (context.Context, context.CancelFunc) {
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
			time.AfterFunc(repeatTime, func() { signal.Stop(c) })
			number := s.(syscall.Signal)
			cancel(&SignalError{Number: int(number), Name: caught[number]})
		case <-ctx.Done():
			signal.Stop(c)
		}
	}()
	return ctx, func() { cancel(nil) }
}

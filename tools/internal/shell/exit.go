package shell

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// Exit codes, as 'help exit-codes' documents them.
const (
	ExitOK       = 0
	ExitFailure  = 1
	ExitUsage    = 2
	ExitDevice   = 3
	ExitPeerLost = 4
	ExitTimeout  = 5
	// exitSignal plus the number of a signal is the code of a command that the
	// signal stopped, as shells have it.
	exitSignal = 128
)

func (p *Program) exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Exit codes of ` + p.Name + `:

    0  all went well
    1  it failed, also because a file or a process that it was told to use is
       not there or is no good; stderr says why
    2  it was called wrongly, whatever files there are: a command or flag that is
       not known, an argument that is missing or out of its range
    3  the device address is bad, or the device cannot be opened
    4  the peer is gone, or was lost in the middle
    5  time ran out before an answer came
  129  hung up (SIGHUP, the terminal was closed)
  130  interrupted (SIGINT, Ctrl-C)
  141  stdout has no reader any more (SIGPIPE)
  143  terminated (SIGTERM)

With --json a command that fails prints an object with the keys error and
exit_code, unless it has printed its own: '` + p.OwnReport + `' has.

Whatever the code, temporary files are removed and connections closed. A second
signal ends the program at once, without that; what comes within 300 ms is still
the first one.`,
	}
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct {
	Number int
	Name   string
}

func (e *SignalError) Error() string { return "stopped by " + e.Name }

// exitCode chooses the code for err. That a signal came explains all others.
func (p *Program) exitCode(ctx context.Context, err error) int {
	var sig *SignalError
	var device *command.DeviceError
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return exitSignal + sig.Number
	case errors.Is(err, option.ErrBad):
		return ExitUsage
	case errors.As(err, &device), errors.Is(err, vfio.ErrBadAddress), errors.Is(err, vfio.ErrUnknownScheme):
		return ExitDevice
	}
	if p.ExitCode != nil {
		if code := p.ExitCode(err); code != 0 {
			return code
		}
	}
	switch {
	case via.Ended(err):
		return ExitPeerLost
	case errors.Is(err, via.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return ExitTimeout
	}
	return ExitFailure
}

// message is the one line about err.
func (p *Program) message(ctx context.Context, err error, code int) string {
	stopped := code > exitSignal
	remark := ""
	if p.Remark != nil {
		remark = p.Remark(err, stopped)
	}
	if stopped {
		return context.Cause(ctx).Error() + remark
	}
	return command.Printable(words.Replace(err.Error())) + limitHint(err) + remark
}

// words are ours in place of Go's. Joined errors have a line each.
var words = strings.NewReplacer("\n", "; ", context.DeadlineExceeded.Error(), "time ran out", context.Canceled.Error(), "canceled",
	os.ErrDeadlineExceeded.Error(), "time ran out")

// Hinted adds what to do about an error, in place of what libraries say of that: the command knows
// more.
func Hinted(err error, hint string) error {
	return &hinted{err, withoutHints(err.Error(), err) + " (" + hint + ")"}
}

type hinted struct {
	error
	text string
}

func (e *hinted) Error() string { return e.text }
func (e *hinted) Unwrap() error { return e.error }

// withoutHints takes the hints of err, and of what it wraps, out of its text.
func withoutHints(text string, err error) string {
	hint := ""
	switch e := err.(type) {
	case *via.Error:
		hint = e.Hint
	case *vfio.Error:
		hint = e.Hint
	}
	if hint != "" {
		text = strings.ReplaceAll(text, " ("+hint+")", "")
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		text = withoutHints(text, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			text = withoutHints(text, inner)
		}
	}
	return text
}

// Package command has what the commands of trapeze share: where they print, how
// they show progress, and the errors from which the exit code follows.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
)

// Env is the part of the program that its commands need. The program
// sets JSON and Progress from its flags before a command runs.
type Env struct {
	Stdin io.Reader
	// Stdout is for results, Stderr for remarks to a person who watches. What is written to Stdout is
	// made Printable; Bytes is Stdout for what is no text.
	Stdout, Stderr, Bytes io.Writer
	// JSON says that a command prints one JSON value on Stdout and nothing else.
	JSON bool
	// Progress is auto, bar, plain or none; empty is none.
	Progress string
	// Bold says that Stdout shows bold text.
	Bold bool
}

// Run makes the RunE of a command from a function that needs only its context and
// its arguments.
func Run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error { return f(c.Context(), args) }
}

// PrintJSON prints the command's one JSON value.
func (e *Env) PrintJSON(v any) error { return WriteJSON(e.Stdout, v) }

// WriteJSON writes v in lines that people can read too, and does not escape what only
// HTML needs escaped.
func WriteJSON(w io.Writer, v any) error {
	j := json.NewEncoder(w)
	j.SetIndent("", "  ")
	j.SetEscapeHTML(false)
	return j.Encode(v)
}

// Print prints a report: as JSON, or with table.
func (e *Env) Print(report any, table func(io.Writer) error) error {
	if e.JSON {
		return e.PrintJSON(report)
	}
	return table(e.Stdout)
}

// Printf prints a report: as JSON, or in the format.
func (e *Env) Printf(report any, format string, a ...any) error {
	return e.Print(report, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format, a...)
		return err
	})
}

// Table prints a line for each of some rows, below a header. Columns end with tabs, and stand as
// tabwriter's flags say.
func Table[T any](w io.Writer, flags uint, header string, rows []T, line func(T) string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', flags)
	fmt.Fprintln(t, header)
	for _, r := range rows {
		fmt.Fprintln(t, line(r))
	}
	return t.Flush()
}

// Note prints a line for a person who watches; never with JSON.
func (e *Env) Note(format string, a ...any) {
	if !e.JSON {
		fmt.Fprintln(e.Stderr, Printable(fmt.Sprintf(format, a...)))
	}
}

// Emphasis returns what switches bold text on and off.
func (e *Env) Emphasis() (on, off string) {
	if !e.Bold {
		return "", ""
	}
	return "\x1b[1m", "\x1b[0m"
}

// Style returns what Progress asks for.
func (e *Env) Style() (progress.Style, error) {
	switch e.Progress {
	case "auto":
		if IsTerminal(e.Stderr) {
			return progress.Bar, nil
		}
		return progress.None, nil
	case "bar":
		return progress.Bar, nil
	case "plain":
		return progress.Plain, nil
	case "none", "":
		return progress.None, nil
	}
	return progress.None, fmt.Errorf("--progress %q: use auto, bar, plain or none", e.Progress)
}

// Meter starts showing the progress of something of total bytes, or of an unknown
// number if total is negative.
func (e *Env) Meter(what string, total int64) *progress.Meter {
	style, what := e.fit(what)
	return progress.New(e.Stderr, style, what, total)
}

// Steps starts showing the progress of a job of total steps.
func (e *Env) Steps(what string, total int) *progress.Meter {
	style, what := e.fit(what)
	return progress.NewSteps(e.Stderr, style, what, total)
}

// fit makes a bar that was not asked for fit the terminal.
func (e *Env) fit(what string) (progress.Style, string) {
	what = Printable(what)
	style, err := e.Style()
	if err != nil { // the program refuses it before any command runs
		return progress.None, what
	}
	if e.Progress != "auto" || !IsTerminal(e.Stderr) {
		return style, what
	}
	columns, _, err := term.GetSize(int(e.Stderr.(*os.File).Fd()))
	if err != nil {
		return style, what
	}
	return progress.Fit(style, what, columns)
}

// Pause waits, and fails with the cause if ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// IsTerminal says whether w is a file that is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Listen opens the address of this host that a flag names, HOST:PORT. What is no such address is an
// option.Error; that the host or the port cannot be had is not.
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, &option.Error{Option: flag, Value: address, Allowed: "HOST:PORT, as in 127.0.0.1:8080"}
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		err = fmt.Errorf("%s: %w: give another address or port", flag, err)
	}
	return l, err
}

// DeviceError is a device whose address is bad or that cannot be opened.
type DeviceError struct{ Err error }

func (e *DeviceError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the device.
func (e *DeviceError) Unwrap() error { return e.Err }

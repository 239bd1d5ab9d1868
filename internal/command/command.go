// Package command has what the commands of trapeze share: where they print, how
// they show progress, and the errors from which the exit code follows.
package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

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
	JSON bool `flag:"json" help:"print the result as JSON on stdout, and nothing else"`
	// Progress is one of the words; empty is none.
	Progress string `flag:"progress" oneof:"auto,bar,plain,none" default:"auto" help:"show progress on stderr: auto (a bar if that is a terminal), bar, plain (lines), none"`
	// Bold says that Stdout shows bold text.
	Bold bool
}

// PrintJSON prints the command's one JSON value, in lines that people can read too. It does not escape what only HTML
// needs escaped.
func (e *Env) PrintJSON(v any) error {
	j := json.NewEncoder(e.Stdout)
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
func (e *Env) Style() progress.Style {
	switch {
	case e.Progress == "bar", e.Progress == "auto" && IsTerminal(e.Stderr):
		return progress.Bar
	case e.Progress == "plain":
		return progress.Plain
	}
	return progress.None
}

// Meter starts showing the progress of something of total bytes, or of an unknown
// number if total is negative.
func (e *Env) Meter(what string, total int64) *progress.Meter {
	return progress.New(e.Stderr, e.Style(), Printable(what), total)
}

// Steps starts showing the progress of a job of total steps.
func (e *Env) Steps(what string, total int) *progress.Meter {
	return progress.NewSteps(e.Stderr, e.Style(), Printable(what), total)
}

// IsTerminal says whether w is a file that is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// DeviceError is a device whose address is bad or that cannot be opened.
type DeviceError struct{ Err error }

func (e *DeviceError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the device.
func (e *DeviceError) Unwrap() error { return e.Err }

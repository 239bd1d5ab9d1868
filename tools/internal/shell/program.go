// Package shell surrounds the commands of the programs: help, completion, JSON, errors, exit codes,
// signals and the version.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// Program is one program: its commands, and what the shell has to know of them.
type Program struct {
	// Name is the word that a user types, as in "trapeze".
	Name string
	// Short, Long and Example are its help, HelpExample the example of its command help.
	Short, Long, Example, HelpExample string
	// Commands makes its commands.
	Commands func(*command.Env) []*cobra.Command
	// Moved has the program that holds each command which this one had before.
	Moved map[string]string
	// Values complete flags, by name, in every command that has them. A shell offers files for
	// other flags.
	Values map[string]Completer
	// Arguments complete the arguments of commands, by path without the program's name. Other
	// commands are offered none.
	Arguments map[string]Completer
	// ExitCode returns the code of an error that only this program knows, and else 0. It may be nil.
	ExitCode func(error) int
	// Remark returns what to add to the line about an error, also when a signal has stopped the
	// command. It may be nil.
	Remark func(err error, stopped bool) string
	// OwnReport names the command that prints an object of its own when it fails.
	OwnReport string
}

// Main runs the program with the arguments and the streams of this process, and returns its exit code.
func (p *Program) Main() int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	return p.run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, true)
}

// helpHelp says of every program what its help and JSON are.
const helpHelp = `Every command takes --json, and prints an object, or an array where its help says
so, on stdout and nothing else; its help has the keys. So does help itself.

JSON keys of help: `

// run is one run of a program.
type run struct {
	*Program
	command.Env
	observed observed
	alone    bool // no other run is in this process
	// started is set when a command has its arguments: errors before that are
	// errors of usage.
	started bool
}

// Run runs the program with args, its name not included, and returns
// its exit code. When ctx ends, so does the command, after cleaning up; and so it
// does when writing to stdout fails with EPIPE. It fails if results could not be
// written, whether the command has noticed or not.
func (p *Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return p.run(ctx, args, stdin, stdout, stderr, false)
}

func (p *Program) run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, alone bool) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &results{Writer: stdout, end: cancel}
	r := &run{Program: p, alone: alone, Env: command.Env{Stdin: stdin, Stdout: printable{out}, Stderr: stderr, Bytes: out, Bold: showsBold(stdout)}}
	root := r.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(r.Stdout)
	root.SetErr(stderr)
	c, limits := root, checkLimits()
	err := limits
	if limits == nil {
		c, err = root.ExecuteContextC(ctx)
		if e := r.observed.end(); err == nil {
			err = e
		}
	}
	used, lost := out.outcome()
	if errors.Is(lost, syscall.EPIPE) {
		// The reader of stdout has closed it, and needs no message: it gets the code of SIGPIPE.
		return exitSignal + int(syscall.SIGPIPE)
	}
	switch {
	case err == nil && lost == nil:
		return ExitOK
	case err == nil:
		err = lost
	case !r.started && limits == nil:
		err = option.Mark(err)
	}
	code := p.exitCode(ctx, err)
	what := p.message(ctx, err, code)
	if code == ExitUsage && !errors.As(err, new(*movedError)) {
		what += " (see '" + c.CommandPath() + " --help')"
	}
	if r.asksJSON(c, args) && !used {
		// An error of writing it would say less than the one that stderr gets.
		_ = r.PrintJSON(errorReport{what, code})
	}
	fmt.Fprintf(stderr, "%s: %s\n", p.Name, what)
	return code
}

// showsBold says whether stdout is a terminal that shows bold text, unless NO_COLOR forbids it
// (no-color.org).
func showsBold(stdout io.Writer) bool {
	return command.IsTerminal(stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// asksJSON says whether command c was to print JSON. Flags behind a bad one have
// not been parsed.
func (r *run) asksJSON(c *cobra.Command, args []string) bool {
	f := c.Flags().Lookup("json")
	return f != nil && f.Value.String() == "true" || !r.started && slices.Contains(args, "--json")
}

func (r *run) root() *cobra.Command {
	root := &cobra.Command{
		Use:           r.Name,
		Short:         r.Short,
		Long:          r.Long + "\n\n" + helpHelp + keys.List(helpReport{}) + ".",
		Example:       r.Example,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	version := root.Flags().Bool("version", false, "print which "+r.Name+" this is, as '"+r.Name+" version' does")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if *version {
			r.started = true
			return r.printVersion()
		}
		return c.Help()
	}
	f := root.PersistentFlags()
	f.BoolVar(&r.JSON, "json", false, "print the result as JSON on stdout, and nothing else")
	f.StringVar(&r.Progress, "progress", "auto", "show progress on stderr: auto (on a terminal, a bar if it is wide enough), bar, plain (lines), none")
	r.observed.register(f)
	root.AddCommand(r.Commands(&r.Env)...)
	root.AddCommand(r.version(), r.exitCodesTopic())
	for _, c := range root.Commands() {
		c.PersistentPreRunE = r.begin
	}
	r.addHelp(root)
	r.addCompletion(root)
	r.addMoved(root)
	refuseUnknown(root)
	wrapExamples(root)
	return root
}

// begin checks what all commands have in common, once the arguments of one are known.
func (r *run) begin(c *cobra.Command, args []string) error {
	if _, err := r.Style(); err != nil {
		return err
	}
	if err := checkEmpty(c, args); err != nil {
		return err
	}
	r.started = true
	if err := r.observed.begin(c, &r.Env); err != nil {
		return err
	}
	if r.alone { // wires and other parts that get no logger of the command
		slog.SetDefault(command.Logger(c.Context(), slog.LevelInfo))
	}
	return nil
}

// movedError refuses a command that another program has.
type movedError struct{ command, program string }

func (e *movedError) Error() string {
	return fmt.Sprintf("%s is a command of %s: run '%[2]s %[1]s'", e.command, e.program)
}

// addMoved has the commands that moved say where they are, whatever arguments and flags they get.
func (r *run) addMoved(root *cobra.Command) {
	for name, program := range r.Moved {
		root.AddCommand(&cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return &movedError{name, program} }})
	}
}

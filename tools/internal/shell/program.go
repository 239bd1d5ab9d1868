// Package shell surrounds the commands of the programs: help, completion, JSON, errors, exit codes,
// signals and the version.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// Program is one program: its commands, and what the shell has to know of them.
type Program struct {
	// Name is the word that a user types, as in "trapeze".
	Name string
	// Short, Long and Example are its help.
	Short, Long, Example string
	// Commands makes its commands.
	Commands func(*command.Env) []*cobra.Command
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

// run is one run of a program.
type run struct {
	*Program
	command.Env
	observed observeFlags
	profiles *http.Server // nil without --pprof
	alone    bool         // no other run is in this process
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
		if r.profiles != nil {
			err = errors.Join(err, r.profiles.Close())
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
	if code == ExitUsage {
		what += " (see '" + c.CommandPath() + " --help')"
	}
	if r.asksJSON(args) && !used {
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
func (r *run) asksJSON(args []string) bool {
	return r.JSON || !r.started && slices.Contains(args, "--json")
}

func (r *run) root() *cobra.Command {
	root := &cobra.Command{
		Use:   r.Name,
		Short: r.Short,
		Long: r.Long + `

Every command takes --json, and prints an object, or an array where its help says
so, on stdout and nothing else; its help has the keys.`,
		Example:       r.Example,
		Version:       command.Built().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetVersionTemplate(r.Name + " {{.Version}}\n")
	cmdtable.Global(root, &r.Env)
	cmdtable.Global(root, &r.observed)
	root.AddCommand(r.Commands(&r.Env)...)
	root.AddCommand(r.version(), r.exitCodesTopic())
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return r.begin(c) }
	r.addHelp(root)
	r.addValues(root)
	return root
}

// begin checks what all commands have in common, once the arguments of one are known.
func (r *run) begin(c *cobra.Command) error {
	if err := c.ValidateFlagGroups(); err != nil {
		return err
	}
	r.started = true
	if err := r.observe(c); err != nil {
		return err
	}
	if r.alone { // wires and other parts that get no logger of the command
		slog.SetDefault(command.Logger(c.Context(), slog.LevelInfo))
	}
	return nil
}

// Package cli is the trapeze command: what it takes, what it prints, and the
// code it ends with.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	// Make "emu:", "pci:" and "vfio-user:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/jsonout"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/lab/benchcmd"
	"github.com/trapeze-nic/trapeze/lab/modelcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
	_ "github.com/trapeze-nic/trapeze/vfio/kernel"
	_ "github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// program is one run of the command.
type program struct {
	stdin    io.Reader
	stdout   *results
	stderr   io.Writer
	json     bool
	progress string
	// started is set when a command has its arguments: errors before that are
	// errors of usage.
	started bool
}

// Run runs the command with args, the program's name not included, and returns
// its exit code. When ctx ends, so does the command, after cleaning up; and so it
// does when writing to stdout fails with EPIPE. It fails if results could not be
// written, whether the command has noticed or not.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &program{stdin: stdin, stdout: &results{Writer: stdout, end: cancel}, stderr: stderr}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(p.stdout)
	root.SetErr(stderr)
	c, limits := root, checkLimits()
	err := limits
	if limits == nil {
		c, err = root.ExecuteContextC(ctx)
	}
	used, lost := p.stdout.outcome()
	if errors.Is(lost, syscall.EPIPE) {
		// Whoever stopped reading knows, as of a program that SIGPIPE ended.
		return exitSignal + int(syscall.SIGPIPE)
	}
	switch {
	case err == nil && lost == nil:
		return ExitOK
	case err == nil:
		err = lost
	case !p.started && limits == nil:
		err = &usageError{err}
	}
	code := exitCode(ctx, err)
	what := message(ctx, err, code)
	if code == ExitUsage {
		what += " (see '" + c.CommandPath() + " --help')"
	}
	if p.asksJSON(c, args) && !used {
		// An error of writing it would say less than the one that stderr gets.
		_ = p.printJSON(errorReport{what, code})
	}
	fmt.Fprintf(stderr, "trapeze: %s\n", what)
	return code
}

// asksJSON says whether command c was to print JSON. Flags behind a bad one have
// not been parsed.
func (p *program) asksJSON(c *cobra.Command, args []string) bool {
	f := c.Flags().Lookup("json")
	return f != nil && f.Value.String() == "true" || !p.started && slices.Contains(args, "--json")
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "trapeze",
		Short: "Messages through programmable NICs, without the kernel",
		Long: `trapeze shows, tests and uses NICs that are driven from user space.

A device is named by an address: emu: for an emulated NIC, with options after a
question mark, as in 'emu:?wire=udp://127.0.0.1:9000'. 'trapeze list' shows
which addresses this machine has.

Every command takes --json, and prints an object, or an array where its help says
so, on stdout and nothing else; its help has the keys. So does help itself.

JSON keys of help: command, usage, summary, description, examples, flags (name,
shorthand, type, default, usage), commands (name, summary).`,
		Example: `  trapeze demo
  trapeze recv --device 'emu:?wire=udp://127.0.0.1:9000' --output out.bin
  trapeze send --device 'emu:?wire=udp://127.0.0.1:9001&peer=127.0.0.1:9000' FILE`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	version := root.Flags().Bool("version", false, "print which trapeze this is, as 'trapeze version' does")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if *version {
			p.started = true
			return p.printVersion()
		}
		return c.Help()
	}
	f := root.PersistentFlags()
	f.BoolVar(&p.json, "json", false, "print the result as JSON on stdout, and nothing else")
	f.StringVar(&p.progress, "progress", "auto", "show progress on stderr: auto (on a terminal, a bar if it is wide enough), bar, plain (lines), none")
	root.AddCommand(p.demo(), p.ping(), p.send(), p.recv(), p.info(), p.emulate(), p.version(), exitCodesTopic())
	root.AddCommand(hostcmd.Commands(p.host())...)
	root.AddCommand(benchcmd.Commands(benchcmd.Env{Stdout: p.stdout, Stderr: p.stderr, JSON: func() bool { return p.json }, Run: p.command,
		Steps: p.steps, UsageError: func(err error) error { return &usageError{err} }})...)
	root.AddCommand(fwcmd.LoadCommand(p.firmware()), fwcmd.Command(p.firmware()))
	model := modelcmd.Env{JSON: func() bool { return p.json }, Steps: p.steps}
	root.AddCommand(p.adopt(modelcmd.Command(model)), p.adopt(modelcmd.PlotCommand(model)))
	p.addHelp(root)
	addCompletion(root)
	p.refuseUnknown(root)
	return root
}

// command makes the RunE of a command.
func (p *program) command(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := p.begin(c, args); err != nil {
			return err
		}
		return f(c.Context(), args)
	}
}

// host is what the commands about this host's PCI functions need.
func (p *program) host() hostcmd.Env {
	return hostcmd.Env{
		Stdout: p.stdout, Stderr: p.stderr, JSON: func() bool { return p.json }, Emphasis: p.emphasis, Run: p.command,
		DeviceError: func(err error) error { return &deviceError{err} },
		UsageError:  func(err error) error { return &usageError{err} },
	}
}

// adopt takes in a command that was made elsewhere.
func (p *program) adopt(c *cobra.Command) *cobra.Command {
	c.PersistentPreRunE = p.begin
	return c
}

// begin checks what all commands have in common, once the arguments of one are known.
func (p *program) begin(c *cobra.Command, args []string) error {
	if _, err := p.progressStyle(); err != nil {
		return err
	}
	if err := checkEmpty(c, args); err != nil {
		return err
	}
	p.started = true
	return nil
}

// progressStyle is what --progress asks for.
func (p *program) progressStyle() (progress.Style, error) {
	switch p.progress {
	case "auto":
		if isTerminal(p.stderr) {
			return progress.Bar, nil
		}
		return progress.None, nil
	case "bar":
		return progress.Bar, nil
	case "plain":
		return progress.Plain, nil
	case "none":
		return progress.None, nil
	}
	return progress.None, fmt.Errorf("--progress %q: use auto, bar, plain or none", p.progress)
}

// meter starts showing the progress of something of total bytes, or of an
// unknown number if total is negative.
func (p *program) meter(what string, total int64) *progress.Meter {
	style, what := p.fit(what)
	return progress.New(p.stderr, style, what, total)
}

// steps is meter for a job of total steps.
func (p *program) steps(what string, total int) *progress.Meter {
	style, what := p.fit(what)
	return progress.NewSteps(p.stderr, style, what, total)
}

// fit returns what --progress asks for, and makes a bar that nobody asked for fit the
// terminal.
func (p *program) fit(what string) (progress.Style, string) {
	style, err := p.progressStyle()
	if err != nil { // refused before any command started
		style = progress.None
	}
	if p.progress != "auto" || !isTerminal(p.stderr) {
		return style, what
	}
	columns, _, err := term.GetSize(int(p.stderr.(*os.File).Fd()))
	if err != nil {
		return style, what
	}
	return progress.Fit(style, what, columns)
}

// note prints a line for a person who watches; never with --json.
func (p *program) note(format string, a ...any) {
	if !p.json {
		fmt.Fprintf(p.stderr, format+"\n", a...)
	}
}

// printJSON prints the command's one object.
func (p *program) printJSON(v any) error { return jsonout.Print(p.stdout, v) }

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Package cli is the trapeze command: what it takes, what it prints, and the
// code it ends with.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	// Make "emu:", "pci:" and "vfio-user:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/benchcmd"
	"github.com/trapeze-nic/trapeze/lab/modelcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/framescmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/memorycmd"
	_ "github.com/trapeze-nic/trapeze/vfio/kernel"
	_ "github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// program is one run of the command.
type program struct {
	command.Env
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
	out := &results{Writer: stdout, end: cancel}
	p := &program{Env: command.Env{Stdin: stdin, Stdout: out, Stderr: stderr, Bold: showsBold(stdout)}}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(p.Stdout)
	root.SetErr(stderr)
	c, limits := root, checkLimits()
	err := limits
	if limits == nil {
		c, err = root.ExecuteContextC(ctx)
	}
	used, lost := out.outcome()
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
		err = option.Mark(err)
	}
	code := exitCode(ctx, err)
	what := message(ctx, err, code)
	if code == ExitUsage {
		what += " (see '" + c.CommandPath() + " --help')"
	}
	if p.asksJSON(c, args) && !used {
		// An error of writing it would say less than the one that stderr gets.
		_ = p.PrintJSON(errorReport{what, code})
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
question mark, as in 'emu:?wire=udp://127.0.0.1:9000'; eth: for one whose wire is
an Ethernet NIC, as in eth:pci:0000:03:00.0. 'trapeze list' shows which addresses
this machine has.

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
	f.BoolVar(&p.JSON, "json", false, "print the result as JSON on stdout, and nothing else")
	f.StringVar(&p.Progress, "progress", "auto", "show progress on stderr: auto (on a terminal, a bar if it is wide enough), bar, plain (lines), none")
	root.AddCommand(p.demo(), p.ping(), p.channel(), p.send(), p.recv(), p.info(), p.emulate(), p.conform(), p.version(), exitCodesTopic())
	root.AddCommand(hostcmd.Commands(&p.Env)...)
	root.AddCommand(benchcmd.Commands(&p.Env)...)
	root.AddCommand(framescmd.Command(&p.Env), memorycmd.Command(&p.Env))
	root.AddCommand(fwcmd.LoadCommand(&p.Env), fwcmd.Command(&p.Env), modelcmd.Command(&p.Env), modelcmd.PlotCommand(&p.Env))
	for _, c := range root.Commands() {
		c.PersistentPreRunE = p.begin
	}
	p.addHelp(root)
	addCompletion(root)
	p.refuseUnknown(root)
	wrapExamples(root)
	return root
}

// begin checks what all commands have in common, once the arguments of one are known.
func (p *program) begin(c *cobra.Command, args []string) error {
	if _, err := p.Style(); err != nil {
		return err
	}
	if err := checkEmpty(c, args); err != nil {
		return err
	}
	p.started = true
	return nil
}

// Disasm checks what the register accessors became: it builds a program with
// them for each architecture, disassembles it and fails unless every accessor
// holds exactly one plain access through its pointer, of the right width and
// order, and every barrier exactly its instruction. Run it inside the module:
//
//	go run ./ci/disasm
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const module = "github.com/trapeze-nic/trapeze/"

// timeout is for one run of the go command; building for another architecture
// for the first time compiles the standard library.
const timeout = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "disasm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("disasm", flag.ContinueOnError)
	f.SetOutput(out)
	verbose := f.Bool("v", false, "print the instructions of the accessors")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	dir, err := os.MkdirTemp("", "disasm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var all []error
	for _, a := range architectures {
		functions, err := disassemble(ctx, dir, a.name)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		problems := a.check(functions)
		for _, p := range problems {
			all = append(all, fmt.Errorf("%s: %w", a.name, p))
		}
		fmt.Fprintf(out, "%s: %d functions checked, %d problems\n", a.name, len(a.rules), len(problems))
		if *verbose {
			for _, r := range a.rules {
				fmt.Fprintf(out, "  %-40s %s\n", r.symbol, strings.Join(functions[r.full()], "; "))
			}
		}
	}
	return errors.Join(all...)
}

// disassemble builds the probe for an architecture and returns the functions in
// it that are ours.
func disassemble(ctx context.Context, dir, goarch string) (map[string][]string, error) {
	program := filepath.Join(dir, "probe-"+goarch)
	if _, err := goCommand(ctx, goarch, "build", "-o", program, module+"ci/disasm/probe"); err != nil {
		return nil, err
	}
	text, err := goCommand(ctx, "", "tool", "objdump", "-gnu", "-s", "^"+module+`internal/(mmio|atomicmem)\.|^main\.publish`, program)
	if err != nil {
		return nil, err
	}
	return parseListing(bytes.NewReader(text))
}

// goCommand runs the go command, for an architecture unless that is empty.
func goCommand(ctx context.Context, goarch string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	if goarch != "" {
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+goarch, "CGO_ENABLED=0")
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// Boot runs tests in virtual machines: for each scenario it starts a Linux
// kernel in QEMU, with devices and an initramfs of statically linked test
// programs, prints what the guest prints, and fails unless the guest says that
// all tests passed. ci/vm/run prepares what it needs and calls it inside the
// module:
//
//	go run ./ci/vm/boot -root DIR -stock DIR -own DIR [SCENARIO...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "boot:", err)
		os.Exit(1)
	}
}

// places are where things are on this machine.
type places struct {
	root       string // of a Debian with QEMU
	stock, own string // folders of kernels, see ci/vm/kernels
	scratch    string
	trapeze    string // our command, linked statically
	ip         string // trapeze-ip, too
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var p places
	f := flag.NewFlagSet("boot", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&p.root, "root", "", "folder of a Debian root with QEMU (see ci/vm/root)")
	f.StringVar(&p.stock, "stock", "", "folder of the stock kernel (see ci/vm/kernels)")
	f.StringVar(&p.own, "own", "", "folder of our own kernel")
	only := f.String("run", "", "run only the tests that match this pattern (go test -run)")
	limit := f.Duration("timeout", 20*time.Minute, "how long one guest may run")
	parallel := f.Int("parallel", 3, "how many guests run at a time")
	if err := f.Parse(args); err != nil {
		return err
	}
	if p.root == "" || p.stock == "" || p.own == "" {
		return errors.New("-root, -stock and -own are needed: ci/vm/run gives them")
	}
	chosen, err := choose(f.Args())
	if err != nil {
		return err
	}
	if p.scratch, err = os.MkdirTemp("", "trapeze-vm"); err != nil {
		return err
	}
	defer os.RemoveAll(p.scratch)
	started := time.Now()
	fmt.Fprintln(out, "building the command and the test programs")
	p.trapeze, p.ip = filepath.Join(p.scratch, "trapeze"), filepath.Join(p.scratch, "trapeze-ip")
	if err := build(ctx, ".", "build", p.trapeze, "cmd/trapeze"); err != nil {
		return err
	}
	if err := build(ctx, "tcpip", "build", p.ip, "cmd/trapeze-ip"); err != nil {
		return err
	}
	programs, err := buildTests(ctx, filepath.Join(p.scratch, "programs"), chosen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "built after %v\n", time.Since(started).Round(time.Second))
	console := &lines{w: out}
	var ended atomic.Int32
	results := runAll(ctx, chosen, *parallel, func(s scenario) error {
		err := runScenario(ctx, p, s.only(*only), programs, *limit, console)
		fmt.Fprintf(console, "== %s has ended, %d of %d have\n", s.name, ended.Add(1), len(chosen))
		return err
	})
	var failed []string
	fmt.Fprintln(out)
	for _, r := range results {
		text := "passed"
		if r.err != nil {
			text = "FAILED: " + r.err.Error()
			failed = append(failed, r.name)
		}
		fmt.Fprintf(out, "%-12s %6.1f s  %s\n", r.name, r.took.Seconds(), text)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d guests failed: %s", len(failed), len(chosen), strings.Join(failed, ", "))
	}
	return ctx.Err()
}

// result is the end of a scenario.
type result struct {
	name string
	took time.Duration
	err  error
}

// runAll runs scenarios, some at a time: a guest waits more than it computes.
// Results are in the order of the scenarios. None is begun after ctx has ended.
func runAll(ctx context.Context, list []scenario, parallel int, run func(scenario) error) []result {
	results := make([]result, len(list))
	turns := make(chan struct{}, max(parallel, 1))
	var wait sync.WaitGroup
	for i, s := range list {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			started := time.Now()
			err := ctx.Err()
			if err == nil {
				err = run(s)
			}
			results[i] = result{s.name, time.Since(started), err}
		})
	}
	wait.Wait()
	return results
}

// lines keeps what several guests print apart: each write is a whole line.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// choose returns the scenarios of the given names, all for none.
func choose(names []string) ([]scenario, error) {
	if len(names) == 0 {
		return scenarios, nil
	}
	var known []string
	var list []scenario
	for _, s := range scenarios {
		known = append(known, s.name)
		if slices.Contains(names, s.name) {
			list = append(list, s)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("no scenario %q: there are %s", n, strings.Join(known, ", "))
		}
	}
	return list, nil
}

// runScenario boots one guest.
func runScenario(ctx context.Context, p places, s scenario, programs map[string]string, limit time.Duration, out io.Writer) error {
	fmt.Fprintf(out, "\n== %s\n", s.name)
	far, err := startFarEnds(ctx, p, &s, out)
	if err != nil {
		return fmt.Errorf("far ends of cables: %w", err)
	}
	defer far.stop()
	image := filepath.Join(p.scratch, s.name+".cpio")
	if err := writeInitramfs(ctx, image, p, s, programs); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	if err := boot(ctx, p, s, image, limit, out); err != nil {
		return err
	}
	return far.check()
}

package conform

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// T is the part of testing.TB that a check needs. Check.Run has one without go test.
type T interface {
	Name() string
	Context() context.Context
	Cleanup(func())
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
}

// grace is the time in which a check must end whose limit is over.
const grace = 10 * time.Second

// Outcome says how a check ended.
type Outcome struct {
	// Failed and Skipped are both false for a check that passed.
	Failed, Skipped bool
	// Stuck says that the check has not ended: it still uses its NICs, so that no
	// other check can run in this process.
	Stuck bool
	// Messages say why it failed or was skipped.
	Messages []string
	Took     time.Duration
}

// Run runs c outside go test, with the NICs that open opens, for at most limit. A
// check that leaves files open or goroutines running fails.
func (c Check) Run(ctx context.Context, limit time.Duration, open Open) Outcome {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	others := runtime.NumGoroutine()
	start := time.Now()
	r := &run{name: c.String(), outcome: &record{}, parent: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(func(t T) { c.check(t, open) })
	}()
	stuck := false
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(min(limit, grace)):
			stuck = true
			r.fail(fmt.Sprintf("%v are over and it has not ended\n%s", limit, goroutines()))
		}
	}
	// Those that are about to end have until ctx ends; those of a check that ends with it, some time more.
	for ended := time.Now(); !stuck && (ctx.Err() == nil || time.Since(ended) < min(limit, grace)) && runtime.NumGoroutine() > others; {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); !stuck && n > others {
		r.fail(fmt.Sprintf("%d goroutines are left, and %d were there before\n%s", n, others, goroutines()))
	}
	r.outcome.mu.Lock()
	defer r.outcome.mu.Unlock()
	o := r.outcome.Outcome
	o.Stuck, o.Took = stuck, time.Since(start)
	return o
}

// run is the T of a check, or of a part of one.
type run struct {
	name     string
	outcome  *record // shared with its parts
	parent   context.Context
	ctx      context.Context // ends before what Cleanup was told is done
	mu       sync.Mutex
	cleanups []func()
}

// record is the outcome so far of a run and its parts.
type record struct {
	mu sync.Mutex
	Outcome
}

// run calls f, which may end by runtime.Goexit, and cleans up after it. That may fail the check too.
func (r *run) run(f func(T)) {
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(r.parent)
	r.guarded(func() { f(r) })
	cancel()
	for clean := r.nextCleanup(); clean != nil; clean = r.nextCleanup() {
		r.guarded(clean)
	}
}

func (r *run) nextCleanup() (f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.cleanups) - 1; last >= 0 {
		f, r.cleanups = r.cleanups[last], r.cleanups[:last]
	}
	return f
}

// guarded calls f on a goroutine of its own, for Fatal ends the goroutine.
func (r *run) guarded(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.fail(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		f()
	}()
	<-done
}

// part is a subtest.
func (r *run) part(name string, f func(T)) {
	p := &run{name: r.name + "/" + name, outcome: r.outcome, parent: r.ctx}
	p.run(f)
}

func (r *run) fail(message string) {
	r.outcome.mu.Lock()
	defer r.outcome.mu.Unlock()
	r.outcome.Failed = true
	r.outcome.Messages = append(r.outcome.Messages, r.name+": "+message)
}

func (r *run) Name() string             { return r.name }
func (r *run) Context() context.Context { return r.ctx }

func (r *run) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Helper does nothing: a message names the line of the check.
func (r *run) Helper() {}

func (r *run) Error(args ...any)                 { r.fail(position() + spaced(args)) }
func (r *run) Errorf(format string, args ...any) { r.fail(position() + fmt.Sprintf(format, args...)) }

func (r *run) Fatal(args ...any) {
	r.fail(position() + spaced(args))
	runtime.Goexit()
}

func (r *run) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func (r *run) Skip(args ...any) {
	r.outcome.mu.Lock()
	r.outcome.Skipped = true
	r.outcome.Messages = append(r.outcome.Messages, spaced(args))
	r.outcome.mu.Unlock()
	runtime.Goexit()
}

// spaced puts spaces between args, as Go's tests do.
func spaced(args []any) string { return strings.TrimSuffix(fmt.Sprintln(args...), "\n") }

// position says in which line of its own a check in Go has failed. A script says where it was.
func position() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/conform.test") || strings.Contains(f.Function, "/conform.Test") {
			return fmt.Sprintf("%s:%d: ", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// goroutines are the stacks of all of them.
func goroutines() []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, true)]
}

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
		r.wantNoGoroutines(ctx, others)
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(min(limit, grace)):
			stuck = true
			r.fail(fmt.Sprintf("%v are over and it has not ended\n%s", limit, goroutines()))
		}
	}
	o := r.outcome.get()
	o.Stuck, o.Took = stuck, time.Since(start)
	return o
}

// run is one run of a check, or of a part of one.
type run struct {
	name     string
	outcome  *record // shared with its parts
	parent   context.Context
	ctx      context.Context // ends before what Cleanup was told is done
	mu       sync.Mutex
	cleanups []func()
	helpers  map[string]bool // functions that called Helper
}

// record has the outcome so far of a run and its parts.
type record struct {
	mu sync.Mutex
	o  Outcome
}

func (r *record) get() Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.o
}

// run calls f, which may end by runtime.Goexit, and cleans up after it.
func (r *run) run(f func(T)) {
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(r.parent)
	// Cleanups may fail the check too.
	r.guarded(func() { f(r) })
	cancel()
	for {
		r.mu.Lock()
		last := len(r.cleanups) - 1
		if last < 0 {
			r.mu.Unlock()
			return
		}
		clean := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.mu.Unlock()
		r.guarded(clean)
	}
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

// wantNoGoroutines fails the check if goroutines are left that were not there before.
// Those that are about to end have until ctx ends.
func (r *run) wantNoGoroutines(ctx context.Context, others int) {
	for runtime.NumGoroutine() > others {
		select {
		case <-ctx.Done():
			r.fail(fmt.Sprintf("%d goroutines are left, and %d were there before\n%s", runtime.NumGoroutine(), others, goroutines()))
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (r *run) fail(message string) {
	r.outcome.mu.Lock()
	defer r.outcome.mu.Unlock()
	r.outcome.o.Failed = true
	r.outcome.o.Messages = append(r.outcome.o.Messages, r.name+": "+message)
}

func (r *run) Name() string             { return r.name }
func (r *run) Context() context.Context { return r.ctx }

func (r *run) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *run) Helper() {
	if name := caller(3); name != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.helpers == nil {
			r.helpers = make(map[string]bool)
		}
		r.helpers[name] = true
	}
}

func (r *run) Error(args ...any)                 { r.fail(r.position() + say(args)) }
func (r *run) Errorf(format string, args ...any) { r.fail(r.position() + fmt.Sprintf(format, args...)) }

func (r *run) Fatal(args ...any) {
	r.fail(r.position() + say(args))
	runtime.Goexit()
}

func (r *run) Fatalf(format string, args ...any) {
	r.fail(r.position() + fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *run) Skip(args ...any) {
	r.outcome.mu.Lock()
	r.outcome.o.Skipped = true
	r.outcome.o.Messages = append(r.outcome.o.Messages, say(args))
	r.outcome.mu.Unlock()
	runtime.Goexit()
}

// say puts spaces between args, as Go's tests do.
func say(args []any) string { return strings.TrimSuffix(fmt.Sprintln(args...), "\n") }

// caller names the function skip frames above.
func caller(skip int) string {
	var pc [1]uintptr
	if runtime.Callers(skip, pc[:]) == 0 {
		return ""
	}
	f, _ := runtime.CallersFrames(pc[:]).Next()
	return f.Function
}

// position says in which line a check has failed: that of the innermost function
// that is no helper.
func (r *run) position() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		f, more := frames.Next()
		if !r.helpers[f.Function] {
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

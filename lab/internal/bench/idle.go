package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// IdlePlace is a way for an application to wait for messages that come rarely.
type IdlePlace string

// Places of an idle application.
const (
	// IdleMemoryInline: sender and waiter are goroutines of one process; a call that polls or waits
	// runs the NICs.
	IdleMemoryInline IdlePlace = "memory-inline"
	// IdleMemoryThread: the same with NICs that have a goroutine of their own each.
	IdleMemoryThread IdlePlace = "memory-thread"
	// IdleSharedInline and IdleSharedThread: sender and waiter are processes, with
	// shared memory in between.
	IdleSharedInline IdlePlace = "shm-inline"
	IdleSharedThread IdlePlace = "shm-thread"
	// IdleKernel has no NIC: a thread that is blocked in read(2) of an eventfd is
	// woken by another. No sleeping thread wakes sooner.
	IdleKernel IdlePlace = "kernel"
	// IdleRuntime has no NIC: a goroutine that waits for an eventfd is woken.
	IdleRuntime IdlePlace = "runtime"
)

// IdlePlaces returns all places.
func IdlePlaces() []IdlePlace {
	return []IdlePlace{IdleKernel, IdleRuntime, IdleMemoryInline, IdleMemoryThread, IdleSharedInline, IdleSharedThread}
}

// IdleTask is one measurement of an idle application.
type IdleTask struct {
	Place IdlePlace
	// Idle is the time that nothing comes at first, 10 ms to 10 minutes.
	Idle time.Duration
	// Pause is the time before each message, 0.1 ms to 10 s; Count is the number of messages, 1 to
	// 1,000,000.
	Pause time.Duration
	Count int
	// Cores of the waiter's and the sender's process, if they are two; none to leave
	// that to the system, which may put the waiter on the core where the sender
	// still runs.
	Cores []int
}

// Validate checks a task. Errors wrap ErrSpec.
func (t *IdleTask) Validate() error {
	known := false
	var names []string
	for _, p := range IdlePlaces() {
		known = known || p == t.Place
		names = append(names, string(p))
	}
	switch {
	case !known:
		return fmt.Errorf("%w: place %q (%s)", ErrSpec, t.Place, strings.Join(names, ", "))
	case t.Idle < 10*time.Millisecond || t.Idle > 10*time.Minute:
		return fmt.Errorf("%w: idle time %v (10ms to 10m)", ErrSpec, t.Idle)
	case t.Pause < 100*time.Microsecond || t.Pause > 10*time.Second:
		return fmt.Errorf("%w: pause %v (100us to 10s)", ErrSpec, t.Pause)
	case t.Count < 1 || t.Count > 1_000_000:
		return fmt.Errorf("%w: %d messages (1 to 1000000)", ErrSpec, t.Count)
	}
	return nil
}

func (t *IdleTask) limit() time.Duration {
	return starting + 2*t.Idle + 2*time.Duration(t.Count)*(t.Pause+time.Millisecond)
}

// IdleResult holds what an idle application costs and how fast it wakes.
type IdleResult struct {
	// Idle is the time that nothing came, IdleCPU the processor time of the waiter's process
	// meanwhile; the sender is in the same process but over shm.
	Idle, IdleCPU time.Duration
	// Waking and WakingCPU are the same for the time in which messages came.
	Waking, WakingCPU time.Duration
	// Latencies in nanoseconds from just before the post, or the signal, until the
	// waiter has the message.
	Latencies *Histogram
}

// idleSpec is one process's part. It crosses to workers as JSON.
type idleSpec struct {
	Task IdleTask
	// Address of the waiter's NIC and of the sender's; a process that has only one
	// of them has one address.
	Waiter, Sender string
	Core           int // -1 for any
}

// RunIdle carries out an IdleTask in processes of its own.
func RunIdle(ctx context.Context, t IdleTask) (r IdleResult, err error) {
	if err := t.Validate(); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.limit(), fmt.Errorf("%s: no result after %v", t.Place, t.limit()))
	defer cancel()
	r, err = t.run(ctx)
	return r, caused(ctx, err)
}

// addresses of the waiter's NIC and the sender's; apart says that they have a
// process each.
func (t *IdleTask) addresses() (p *path, apart bool, err error) {
	wire, placement, ok := strings.Cut(string(t.Place), "-")
	if !ok {
		return &path{}, false, nil
	}
	w := Task{Wire: wire, Placement: placement}
	p, err = wires[wire](&w)
	return p, wire != "memory", err
}

func (t *IdleTask) run(ctx context.Context) (r IdleResult, err error) {
	path, apart, err := t.addresses()
	if err != nil {
		return r, err
	}
	defer path.remove()
	if !apart {
		both, err := startWorker(ctx, job{Idle: &idleSpec{*t, path.echo, path.source, -1}})
		if err != nil {
			return r, err
		}
		return result[IdleResult](both)
	}
	cores := Task{Cores: t.Cores}
	waiter, err := startReady(ctx, job{Idle: &idleSpec{*t, path.echo, "", cores.core(0)}}, "waiter")
	if err != nil {
		return r, err
	}
	sender, err := startWorker(ctx, job{Idle: &idleSpec{*t, "", path.source, cores.core(1)}})
	if err == nil {
		err = sender.end()
	}
	if err != nil {
		waiter.stop()
		return r, err
	}
	return result[IdleResult](waiter)
}

package main

import (
	"context"
	"fmt"
	"time"
)

// A guest's time is counted in what this machine gets done, so that a busy or slow one
// gives it longer: every sampleInterval a fixed piece of work is timed, and that second
// counts as much less as the work took longer than on an idle machine.
const (
	sampleInterval = 2 * time.Second
	workSteps      = 10_000_000
	// idleWork is the time that the work takes on an idle core of the machines that the
	// limits were made on, Xeons and EPYCs of 2020 and later.
	idleWork = 17 * time.Millisecond
	// mostBudget is the greatest multiple of its limit that a guest may run.
	mostBudget = 4
	// lastWords is the time that a guest may take to say what it was doing when its time
	// was up.
	lastWords = 20 * time.Second
)

// work computes for as long as the machine takes: Marsaglia's xorshift, whose result
// keeps the compiler from leaving it out.
func work() uint64 {
	x := uint64(88172645463325252)
	for range workSteps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// budget measures the part of its time that a guest has used.
type budget struct {
	limit   time.Duration // on an idle machine
	used    time.Duration
	ran     time.Duration
	slowest float64 // times that an idle machine takes
	result  uint64  // of the work
}

// spend counts an interval in which the work took so long. It reports whether the time
// is up.
func (p *budget) spend(interval, took time.Duration) bool {
	slow := max(1, float64(took)/float64(idleWork))
	p.slowest = max(p.slowest, slow)
	p.ran += interval
	p.used += time.Duration(float64(interval) / slow)
	return p.used >= p.limit || p.ran >= mostBudget*p.limit
}

func (p *budget) Error() string {
	return fmt.Sprintf("the guest did not end within %v, which count as %v of its %v: this machine was up to %.1f times slower than an idle one",
		p.ran.Round(time.Second), p.used.Round(time.Second), p.limit, p.slowest)
}

// watch calls up when the guest's time is up, unless ctx ends before.
func (p *budget) watch(ctx context.Context, up func()) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		p.result += work()
		now := time.Now()
		if p.spend(now.Sub(last), now.Sub(began)) {
			up()
			return
		}
		last = now
	}
}

// hurry calls kill after lastWords, unless ctx ends before.
func hurry(ctx context.Context, kill func()) {
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		kill()
	}
}

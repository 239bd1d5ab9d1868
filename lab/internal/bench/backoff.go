package bench

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/driver"
)

const (
	// checkEvery is after how many looks in vain a loop looks at clock and context.
	checkEvery = 1 << 10
	// A loop spins for spinning and, so that long messages have come by then,
	// spinningPerByte for each byte of a message: ten times what slow wires take.
	spinning        = 500 * time.Microsecond
	spinningPerByte = 10 * time.Nanosecond
	// A nap is napPart of the time waited so far, from shortestNap to longestNap.
	napPart     = 16
	shortestNap = 100 * time.Microsecond
	longestNap  = time.Millisecond
	// moves is the number of times that a NIC is polled before a nap, to see that nothing moves.
	moves = 64
)

// backOff is called by a loop that waits for a message of n bytes, after each checkEvery
// looks in vain; since is its own, zero at first. It fails with the cause of the end of
// ctx, and returns how many looks there are until the next call.
//
// A loop that spins keeps its core until its time slice is over. If other programs
// want the cores too, each end of a connection is made to wait while the other one
// spins, and a message takes a whole round of all slices. So one that has spun for
// far longer than a message takes between two that run lets others have the core, and
// is back soon when it is free: then both ends are there at the same time again.
//
// A thread of the NIC, of its engine or of a wire over UDP, wants the very core that
// the loop spins on: it is let go first at each call. Naps would have the two wait for
// each other.
func backOff(ctx context.Context, nic *driver.NIC, n int, since *time.Time) (looks int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if !alone(nic.Address()) {
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // always succeeds: sched_yield(2)
		return checkEvery, nil
	}
	now := time.Now()
	if since.IsZero() {
		*since = now
	}
	waited := now.Sub(*since)
	if waited < spinning+time.Duration(n)*spinningPerByte {
		return checkEvery, nil
	}
	for range moves {
		if nic.Poll() {
			return checkEvery, nil // a long message on its way
		}
	}
	time.Sleep(min(max(waited/napPart, shortestNap), longestNap))
	return 1, nil
}

// alone reports whether nothing but the polls of the process drives the NIC at an
// address: it has no thread, and its wire is memory or an interface.
func alone(address string) bool {
	has := func(wire string) bool { return strings.HasPrefix(address, "emu:?wire="+wire) }
	switch {
	case strings.Contains(address, "engine=thread"):
		return false
	case has("afxdp:"): // its usual engine is a thread
		return strings.Contains(address, "engine=inline")
	}
	return slices.ContainsFunc([]string{"mem", "loop", "shm", "memif"}, has)
}

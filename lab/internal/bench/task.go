// Package bench measures messages between two ends: in one process, or in two that are pinned to
// a core each. The command that uses it starts itself again as worker processes, which take their
// part of a Task and give a Side.
package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// Test names a measurement.
type Test string

const (
	// Latency: halves of round trips, one message at a time.
	Latency Test = "latency"
	// Bandwidth: a stream in one direction, with a window of messages under way.
	Bandwidth Test = "bandwidth"
	// Put: halves of round trips of RDMA writes, which each end finds by polling the
	// last byte of its memory.
	Put Test = "put"
	// Get: RDMA reads, one at a time, from the post to the completion.
	Get Test = "get"
	// Fetch: pages from another process's memory, a request and a reply.
	Fetch Test = "fetch"
	// Frames: a stream of frames through a memif with no NIC on top.
	Frames Test = "frames"
	// Idle: messages that come rarely, to an end that sleeps.
	Idle Test = "idle"
)

// tests are the rows of what is measured.
var tests = map[Test]struct {
	least, most int // bytes
	// ways is the number of messages that are timed together, of which a latency is one; 0 for a stream.
	ways uint64
	// window is the usual number of messages under way on a VI; 0 for as many as a cache holds. A round trip
	// needs one, and another that is given back meanwhile; a read is over before the next one.
	window int
}{
	Latency:   {0, datasheet.MaxTransfer, 2, 4},
	Bandwidth: {0, datasheet.MaxTransfer, 0, 0},
	Put:       {1, datasheet.MaxTransfer, 2, 4},
	Get:       {1, datasheet.MaxTransfer, 1, 1},
	Fetch:     {netmem.MinPage, netmem.MaxPage, 1, 1},
	Frames:    {1, wire.MemifDefaultMTU, 0, 1},
	Idle:      {stampSize, stampSize, 0, 4},
}

// Tests returns the names of what "bench" measures.
func Tests() (names []string) {
	for _, t := range []Test{Latency, Bandwidth, Put, Get, Fetch, Frames} {
		names = append(names, string(t))
	}
	return names
}

// oneSided reports whether it is RDMA that is measured.
func (t Test) oneSided() bool { return t == Put || t == Get }

// ErrSpec is wrapped by the errors about values that cannot be measured.
var ErrSpec = errors.New("bad benchmark")

// Task is a measurement of our NICs. Workers read it as JSON.
type Task struct {
	Test Test
	// Wire is one of Wires, or for Idle one of IdleWires.
	Wire string
	// Placement of the engines: default is the wire's usual one, else inline or thread.
	Placement string
	// Bytes of a message; VIs take turns, on each of which Window messages are under way.
	Bytes, VIs, Window int
	// Reliability is a key of levels.
	Reliability string
	// For is the time to measure, after a tenth of that to warm up. Of Idle half is without messages.
	For time.Duration
	// Pause before each message of Idle.
	Pause time.Duration
	// Cores for the echo and the source; none = wherever the system puts them.
	Cores []int
	// Eager says that the NICs have messages and descriptors before they are posted.
	Eager bool
	// Garbage is the number of bytes a second that another goroutine of each worker allocates and drops.
	Garbage int64
	// Beside the VIs of messages in one process are Unused others, the receivers share CQs, and messages come from
	// Regions at each NIC, picked at random.
	Unused, CQs, Regions int
	// Profiles is the folder for profiles of the workers' CPU time, "" for none.
	Profiles string
}

// NewTask makes a task with what is usual, on one reliable VI.
func NewTask(test Test, wire string, bytes int, d time.Duration, cores []int) Task {
	t := Task{Test: test, Wire: wire, Bytes: bytes, Placement: "default", VIs: 1, Reliability: "reliable-delivery", For: d, Cores: cores}
	t.Window = t.UsualWindow()
	return t
}

// UsualWindow is the number of messages that are under way on a VI if nothing else is said. Each has a buffer
// of its own at both ends; more of them than a second-level cache holds would measure the memory instead.
func (t *Task) UsualWindow() int {
	const inCache = 512 << 10
	if w := tests[t.Test].window; w > 0 {
		return w
	}
	n := min(max(inCache/max(t.Bytes, 1), 8), 512)
	if t.Wire == vethLong {
		n *= 2 // a message is two frames there
	}
	return n
}

var levels = map[string]via.Reliability{
	"unreliable": via.Unreliable, "reliable-delivery": via.ReliableDelivery, "reliable-reception": via.ReliableReception,
}

// EachOf returns an error that wraps ErrSpec unless all words are among those allowed.
func EachOf(what string, words, allowed []string) error {
	for _, w := range words {
		if !slices.Contains(allowed, w) {
			return fmt.Errorf("%w: %s %q (%s)", ErrSpec, what, w, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// Validate checks the values of a Task that depend on each other. Errors wrap ErrSpec.
func (t *Task) Validate() error {
	test, known := tests[t.Test]
	if !known {
		return EachOf("test", []string{string(t.Test)}, Tests())
	}
	w, known := wires[t.Wire]
	if !known || !w.has(t.Test) {
		return EachOf("wire of test "+string(t.Test), []string{t.Wire}, wiresOf(t.Test))
	}
	buffers := int64(t.Bytes) * int64(t.VIs) * int64(t.Window)
	switch {
	case t.Bytes < test.least || t.Bytes > test.most:
		return fmt.Errorf("%w: message of %d bytes (%s: %d to %d)", ErrSpec, t.Bytes, t.Test, test.least, test.most)
	case buffers > mostBuffers:
		return fmt.Errorf("%w: %d bytes in all buffers (up to %d)", ErrSpec, buffers, int64(mostBuffers))
	case t.Placement != "default" && !w.placed:
		return fmt.Errorf("%w: placement %q: wire %s has no engine that could be placed", ErrSpec, t.Placement, t.Wire)
	case t.VIs > 1 && (w.socket || t.Test == Fetch || t.Test == Frames || t.Test == Idle):
		return fmt.Errorf("%w: %d VIs (1 for %s over %s)", ErrSpec, t.VIs, t.Test, t.Wire)
	case t.Test == Get && t.Reliability == "unreliable":
		return fmt.Errorf("%w: VIA has no RDMA read on unreliable VIs", ErrSpec)
	case t.Test == Fetch && t.Bytes&(t.Bytes-1) != 0:
		return fmt.Errorf("%w: pages of %d bytes (a power of two)", ErrSpec, t.Bytes)
	}
	return nil
}

// mostBuffers is the number of bytes that all buffers of an end may take.
const mostBuffers = 4 << 30

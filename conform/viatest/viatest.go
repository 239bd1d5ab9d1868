// Package viatest holds the checks that every NIC must pass, whatever stands
// behind it. A back end joins by opening a pair of NICs:
//
//	func TestMyBackend(t *testing.T) {
//		viatest.Run(t, "my back end", func(t *testing.T) (a, b *via.NIC) { … })
//	}
//
// 'trapeze conform' runs the same checks without go test: Checks lists them, and
// Check.Run runs one.
//
// The suite uses package via only, but for FaultChecks, which know frames. It also has
// the helpers that tests and benchmarks of neighbouring packages share: Connect and the
// methods of Pair and End.
package viatest

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/via"
)

// Open opens two NICs that can reach each other. It arranges for both to be closed
// when the check ends (a check may close them before). A check may open several
// pairs, one after the other.
type Open func(t T) (a, b *via.NIC)

// Sections of the suite, in the order in which they run.
var Sections = []string{"layout", "states", "connection", "send-receive", "rdma", "cq", "memory", "reliability", "errors", "limits"}

// Check is one check of the suite.
type Check struct {
	// Section that it belongs to, and its name there.
	Section, Name string
	f             func(T, *Pair)
	reopens       func(T, *Pair, Open) // instead of f
	opens         func(T)              // instead of both
}

var suite = []Check{
	{Section: "layout", Name: "bytes of a descriptor", f: testLayout},
	{Section: "layout", Name: "builder", f: testBuilder},
	{Section: "layout", Name: "built by hand", f: testBuiltByHand},
	{Section: "layout", Name: "completed in place", f: testCompleted},

	{Section: "states", Name: "queues", f: testQueuesByState},
	{Section: "states", Name: "disconnect flushes", f: testDisconnect},
	{Section: "states", Name: "reconnect", f: testReconnect},
	{Section: "states", Name: "destroy", f: testDestroy},
	{Section: "states", Name: "attributes set", f: testSetVIAttributes},
	{Section: "states", Name: "close", reopens: testCloseStates},

	{Section: "connection", Name: "mismatch leaves the request pending", f: testMismatch},
	{Section: "connection", Name: "reject", f: testReject},
	{Section: "connection", Name: "answered once", f: testAnsweredOnce},
	{Section: "connection", Name: "answered too late", f: testAnsweredTooLate},
	{Section: "connection", Name: "time", f: testConnectTime},
	{Section: "connection", Name: "bad arguments", f: testConnectArguments},
	{Section: "connection", Name: "endings", f: testEndings},
	{Section: "connection", Name: "peers", f: testPeers},
	{Section: "connection", Name: "peers fail", f: testPeersFail},

	{Section: "send-receive", Name: "reliable", f: testMessagesReliable},
	{Section: "send-receive", Name: "around the frame", f: testMessagesFrames},
	{Section: "send-receive", Name: "unreliable", f: testMessagesUnreliable},
	{Section: "send-receive", Name: "scatter gather", f: testScatterGather},
	{Section: "send-receive", Name: "immediate data", f: testImmediate},
	{Section: "send-receive", Name: "inline data", f: testInline},
	{Section: "send-receive", Name: "words", f: testUser},
	{Section: "send-receive", Name: "shared receive queue", f: testSharedReceives},
	{Section: "send-receive", Name: "shared receive queue, one VI fails", f: testSharedFailure},
	{Section: "send-receive", Name: "unsignalled", f: testUnsignaled},
	{Section: "send-receive", Name: "batches posted", f: testBatches},
	{Section: "send-receive", Name: "batches taken back", f: testBatchesDone},
	{Section: "send-receive", Name: "waits", f: testWaits},
	{Section: "send-receive", Name: "notices", f: testNotify},
	{Section: "send-receive", Name: "notices cancelled", f: testNotifyCanceled},

	{Section: "rdma", Name: "write", f: testRDMAWrite},
	{Section: "rdma", Name: "write with immediate data", f: testRDMAImmediate},
	{Section: "rdma", Name: "unreliable write", f: testRDMAUnreliable},
	{Section: "rdma", Name: "read", f: testRDMARead},
	{Section: "rdma", Name: "segments", f: testRDMASegments},
	{Section: "rdma", Name: "mixed", f: testRDMAMixed},
	{Section: "rdma", Name: "fence", f: testFence},
	{Section: "rdma", Name: "rights", f: testRDMARights},
	{Section: "rdma", Name: "what the other end allows", f: testRDMAAllowed},
	{Section: "rdma", Name: "refused", f: testRDMARefused},
	{Section: "rdma", Name: "deregistered", f: testRDMADeregistered},
	{Section: "rdma", Name: "flushed", f: testRDMAFlushed},

	{Section: "cq", Name: "completions", f: testCQ},
	{Section: "cq", Name: "not read", f: testCQNotRead},
	{Section: "cq", Name: "resized", f: testCQResize},
	{Section: "cq", Name: "notices", f: testCQNotify},
	{Section: "cq", Name: "file descriptor", f: testCQDescriptor},
	{Section: "cq", Name: "in use", f: testCQInUse},

	{Section: "memory", Name: "registration", f: testRegistration},
	{Section: "memory", Name: "of the program's own", f: testForeignMemory},
	{Section: "memory", Name: "attributes set", f: testSetMemoryAttributes},
	{Section: "memory", Name: "ptag in use", f: testPtagInUse},
	{Section: "memory", Name: "protection", f: testProtection},
	{Section: "memory", Name: "stale handle", f: testStaleHandle},
	{Section: "memory", Name: "taken from a receive", f: testTakenFromReceive},

	{Section: "reliability", Name: "order and flow control", f: testOrder},
	{Section: "reliability", Name: "what was taken", f: testTaken},
	{Section: "reliability", Name: "concurrent VIs", f: testConcurrentVIs},
	{Section: "reliability", Name: "concurrent queues", f: testConcurrentQueues},

	{Section: "errors", Name: "forged descriptors", f: testForged},
	{Section: "errors", Name: "length", f: testLength},
	{Section: "errors", Name: "posted once", f: testPostedOnce},
	{Section: "errors", Name: "posted by many", f: testPostedByMany},
	{Section: "errors", Name: "VI attributes", f: testVIArguments},
	{Section: "errors", Name: "receives needed", f: testNeedReceives},
	{Section: "errors", Name: "nil and foreign objects", f: testForeign},
	{Section: "errors", Name: "use after close", f: testUseAfterClose},
	{Section: "errors", Name: "close wakes waiters", f: testCloseWakes},
	{Section: "errors", Name: "concurrent closes", f: testConcurrentClose},

	{Section: "limits", Name: "attributes", f: testAttributes},
	{Section: "limits", Name: "large messages", f: testMessagesLarge},
	{Section: "limits", Name: "queues full and empty", f: testQueueFull},
	{Section: "limits", Name: "odd depth", f: testBatchesWrap},
	{Section: "limits", Name: "CQ too small", f: testCQTooSmall},
}

// Checks returns the whole suite, section by section.
func Checks() []Check { return suite }

func (c Check) String() string { return c.Section + "/" + c.Name }

// check runs c as t.
func (c Check) check(t T, open Open) {
	checkFiles(t)
	if c.opens != nil {
		c.opens(t)
		return
	}
	p := NewPair(open(t))
	if c.reopens != nil {
		c.reopens(t, p, open)
		return
	}
	c.f(t, p)
}

// NewCheck makes a check of another suite that runs as this one does.
func NewCheck(section, name string, f func(T, *Pair)) Check {
	return Check{Section: section, Name: name, f: f}
}

// Run runs the suite as a subtest of t: all of it, or only the checks that are named, as in
// "states/destroy", where NICs take long to open. open is called once or more for each
// check, with a test of its own.
func Run(t *testing.T, name string, open func(t *testing.T) (a, b *via.NIC), only ...string) {
	RunChecks(t, name, suite, open, only...)
}

// RunChecks is Run for other checks.
func RunChecks(t *testing.T, name string, checks []Check, open func(t *testing.T) (a, b *via.NIC), only ...string) {
	t.Run(name, func(t *testing.T) {
		for _, name := range only {
			if !slices.ContainsFunc(checks, func(c Check) bool { return c.String() == name }) {
				t.Errorf("there is no check %q", name)
			}
		}
		for _, c := range checks {
			if len(only) > 0 && !slices.Contains(only, c.String()) {
				continue
			}
			t.Run(c.String(), func(t *testing.T) {
				c.check(t, func(t T) (a, b *via.NIC) { return open(t.(*testing.T)) })
			})
		}
	})
}

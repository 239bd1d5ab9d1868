// Package viatest holds the tests that every NIC must pass, whatever stands
// behind it. A back end joins by opening a pair of NICs:
//
//	func TestMyBackend(t *testing.T) {
//		viatest.Run(t, "my back end", func(t *testing.T) (a, b *via.NIC) { … })
//	}
//
// The suite uses package via only. It also has the helpers that tests and
// benchmarks of neighbouring packages share: Connect and the methods of Pair
// and End.
package viatest

import (
	"testing"

	"github.com/trapeze-nic/trapeze/via"
)

// Open opens two NICs that can reach each other. It is called once for each
// test and arranges for both to be closed when the test ends (a test may close
// them before).
type Open func(t *testing.T) (a, b *via.NIC)

var suite = []struct {
	name string
	f    func(*testing.T, *Pair)
}{
	{"attributes", testAttributes},
	{"messages/reliable", testMessagesReliable},
	{"messages/around the frame", testMessagesFrames},
	{"messages/unreliable", testMessagesUnreliable},
	{"messages/large", testMessagesLarge},
	{"scatter gather", testScatterGather},
	{"immediate data", testImmediate},
	{"inline data", testInline},
	{"order and flow control", testOrder},
	{"batches/posted", testBatches},
	{"batches/taken back", testBatchesDone},
	{"batches/odd depth", testBatchesWrap},
	{"waits", testWaits},
	{"queues/full and empty", testQueueFull},
	{"queues/by state", testQueuesByState},
	{"queues/disconnect flushes", testDisconnect},
	{"queues/reconnect", testReconnect},
	{"queues/what was taken", testTaken},
	{"queues/endings", testEndings},
	{"connect/mismatch leaves the request pending", testMismatch},
	{"connect/reject", testReject},
	{"connect/answered once", testAnsweredOnce},
	{"connect/answered too late", testAnsweredTooLate},
	{"connect/time", testConnectTime},
	{"connect/bad arguments", testConnectArguments},
	{"cq/completions", testCQ},
	{"cq/not read", testCQNotRead},
	{"cq/too small", testCQTooSmall},
	{"cq/in use", testCQInUse},
	{"memory/registration", testRegistration},
	{"memory/of the program's own", testForeignMemory},
	{"memory/ptag in use", testPtagInUse},
	{"memory/protection", testProtection},
	{"memory/stale handle", testStaleHandle},
	{"descriptors/builder", testBuilder},
	{"descriptors/forged", testForged},
	{"descriptors/length", testLength},
	{"descriptors/posted once", testPostedOnce},
	{"descriptors/posted by many", testPostedByMany},
	{"vi/arguments", testVIArguments},
	{"vi/destroy", testDestroy},
	{"nil and foreign objects", testForeign},
	{"close/use after", testUseAfterClose},
	{"close/wakes waiters", testCloseWakes},
	{"concurrency/VIs", testConcurrentVIs},
	{"concurrency/queues", testConcurrentQueues},
	{"concurrency/close", testConcurrentClose},
}

// Run runs the whole suite as a subtest of t.
func Run(t *testing.T, name string, open Open) {
	t.Run(name, func(t *testing.T) {
		for _, c := range suite {
			t.Run(c.name, func(t *testing.T) {
				checkFiles(t)
				c.f(t, NewPair(open(t)))
			})
		}
		t.Run("close/states", func(t *testing.T) {
			checkFiles(t)
			testCloseStates(t, NewPair(open(t)), open)
		})
	})
}

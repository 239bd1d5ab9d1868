// Package drivertest tests package driver against real back ends: whatever
// gives a pair of NICs on one wire, an emulator in the process, another process
// or hardware, runs the same suite.
package drivertest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/driver"
)

// Patience is far more than anything in the suite takes; what waits longer
// hangs.
const Patience = time.Minute

// Open gives two NICs that reach each other. The suite closes them.
type Open func(t *testing.T) (a, b *driver.NIC)

// Run runs the suite. Every test opens a pair of its own and checks that it
// leaves no file and no goroutine behind.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, a, b *driver.NIC)
	}{
		{"Identity", testIdentity},
		{"Messages", testMessages},
		{"LargeMessage", testLargeMessage},
		{"Batches", testBatches},
		{"CompletionQueue", testCompletionQueue},
		{"SharedCompletionQueue", testSharedCompletionQueue},
		{"Connect", testConnect},
		{"ConnectRefused", testConnectRefused},
		{"ConnectContext", testConnectContext},
		{"Idle", testIdle},
		{"Disconnect", testDisconnect},
		{"PeerDestroyed", testPeerDestroyed},
		{"SendErrors", testSendErrors},
		{"ReceiveTooSmall", testReceiveTooSmall},
		{"Events", testEvents},
		{"WaitContext", testWaitContext},
		{"InUse", testInUse},
		{"CloseStates", nil},
		{"Concurrency", testConcurrency},
		{"Stream", testStream},
	} {
		if c.test == nil {
			t.Run(c.name, func(t *testing.T) { testCloseStates(t, open) })
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, open)
			c.test(t, a, b)
		})
	}
}

// pair opens two NICs that are closed at the end of the test.
func pair(t *testing.T, open Open) (a, b *driver.NIC) {
	t.Helper()
	CheckLeaks(t)
	a, b = open(t)
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

// CheckLeaks fails the test if files or goroutines are left at its end, after
// what is cleaned up later than this call.
func CheckLeaks(t *testing.T) {
	t.Helper()
	// Have the runtime open what it keeps open: its poller.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	before := OpenFiles(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if after := OpenFiles(t); after != before {
			t.Errorf("%d files are open, %d before the test", after, before)
		}
		goleak.VerifyNone(t, ignore)
	})
}

// OpenFiles counts the process's file descriptors.
func OpenFiles(t *testing.T) int {
	t.Helper()
	f, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(f)
}

// Context returns a context that ends with Patience.
func Context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

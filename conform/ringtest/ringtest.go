// Package ringtest holds the checks of rings that every NIC must pass that has them,
// whatever stands behind it. They run as those of viatest do: Run in tests, Checks in
// 'trapeze conform'.
package ringtest

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Section is the name of the suite's section.
const Section = "rings"

var suite = []viatest.Check{
	check("messages", testMessages),
	check("best effort", testBestEffort),
	check("tags", testTags),
	check("payloads without a place", testDiscarded),
	check("full and empty", testFull),
	check("released out of order", testOutOfOrder),
	check("completions", testCompletions),
	check("frames", testFrames),
	check("entries", testEntries),
	check("waits", testWaits),
	check("connection", testConnection),
	check("endings", testEndings),
	check("device memory", testMemory),
	check("calls", testCalls),
	check("calls without a reply", testDeadline),
	check("calls that end", testCallsEnd),
}

// check makes a check that is skipped on NICs without rings.
func check(name string, f func(viatest.T, *viatest.Pair)) viatest.Check {
	return viatest.NewCheck(Section, name, func(t viatest.T, p *viatest.Pair) {
		for _, nic := range []*via.NIC{p.A, p.B} {
			if nic.Driver().Identity().Features&descriptors.FeatureRing == 0 {
				t.Skip("the NIC has no rings")
			}
		}
		f(t, p)
	})
}

// Checks returns the whole suite.
func Checks() []viatest.Check { return suite }

// Run runs the suite as a subtest of t, see viatest.Run.
func Run(t *testing.T, name string, open func(t *testing.T) (a, b *via.NIC), only ...string) {
	viatest.RunChecks(t, name, suite, open, only...)
}

// connect connects a ring of A with one of B.
func connect(t viatest.T, p *viatest.Pair, o *ring.Options) (x, y *ring.Ring) {
	t.Helper()
	ctx := viatest.Context(t)
	l := viatest.Must(ring.Listen(p.B, "rings", o))(t)
	x = viatest.Must(ring.Dial(ctx, p.A, l.Address(), o))(t)
	y = viatest.Must(l.Accept(ctx))(t)
	viatest.OK(t, l.Close())
	t.Cleanup(func() {
		for _, r := range []*ring.Ring{x, y} {
			if err := r.Close(); err != nil && !errors.Is(err, ring.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return x, y
}

// reliable are options of a ring on which nothing is lost.
func reliable() *ring.Options {
	return &ring.Options{Entries: 8, MaxPayload: 4096, Reliability: via.ReliableDelivery}
}

// alloc allocates memory.
func alloc(t viatest.T, nic *via.NIC, size int) *via.Memory {
	t.Helper()
	return viatest.Must(nic.Alloc(viatest.Context(t), size, via.MemoryAttributes{}))(t)
}

// get gets an entry to send with, once there is one.
func get(t viatest.T, r *ring.Ring, p *viatest.Pair) (e *ring.Entry) {
	t.Helper()
	p.Until(t, "an entry to send", func() bool {
		var err error
		if e, err = r.GetSend(); err != nil && err != ring.ErrFull {
			t.Fatal(err)
		}
		return err == nil
	})
	return e
}

// send sends message with f as its payload.
func send(t viatest.T, r *ring.Ring, p *viatest.Pair, message string, f ring.Frame, done func(error)) {
	t.Helper()
	e := get(t, r, p)
	copy(viatest.Must(e.Reserve(len(message)))(t), message)
	viatest.OK(t, e.Attach(f, done))
	viatest.OK(t, r.ReleaseSend(e))
}

// settle waits until all that r has sent is done.
func settle(t viatest.T, p *viatest.Pair, r *ring.Ring) {
	t.Helper()
	p.Until(t, "all to be sent", func() bool {
		r.CheckSent()
		n, _ := r.Driver().Queued()
		return n == 0
	})
}

// receive takes the next message, which must begin with message.
func receive(t viatest.T, r *ring.Ring, p *viatest.Pair, message string) (e *ring.Entry) {
	t.Helper()
	p.Until(t, "a message", func() bool {
		var err error
		if e, err = r.GetRecv(); err != nil && err != ring.ErrEmpty {
			t.Fatal(err)
		}
		return err == nil
	})
	if got := viatest.Must(e.Scan(len(message)))(t); string(got) != message {
		t.Errorf("message %q, want %q", got, message)
	}
	return e
}

package conform

import (
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Rings returns the checks of rings, and of calls over them.
func Rings() Suite { return suite(ringKind, rings) }

var rings = []section{{"rings", []entry{
	{"messages", testRingMessages},
	{"best effort", testRingBestEffort},
	{"last message", testRingLast},
	{"device memory", testRingMemory},
	{"calls", testRingCalls},
	{"calls without a reply", testRingDeadline},
	{"calls that end", testRingCallsEnd},
}}}

// rings connects a ring of A with one of B.
func (w *World) rings(o ring.Options) (x, y *ring.Ring) {
	w.Helper()
	ctx := Context(w)
	l := Must(ring.Listen(w.B, "rings", o))(w)
	x = Must(ring.Dial(ctx, w.A, l.Address().String(), o))(w)
	y = Must(l.Accept(ctx))(w)
	OK(w, l.Close())
	closeAtEnd(w, x, y)
	return x, y
}

// reliableRing are options of a ring on which nothing is lost.
func reliableRing() ring.Options {
	return ring.Options{Entries: 8, MaxPayload: 4096, Reliability: via.ReliableDelivery}
}

// alloc allocates memory.
func (w *World) alloc(nic *via.NIC, size int) *via.Memory {
	w.Helper()
	return Must(nic.Alloc(Context(w), size, via.MemoryAttributes{}))(w)
}

// getEntry gets an entry to send with, once there is one.
func (w *World) getEntry(r *ring.Ring) (e *ring.Entry) {
	w.Helper()
	w.Until("an entry to send", func() bool {
		var err error
		if e, err = r.GetSend(); err != nil && err != via.ErrQueueFull {
			w.Fatal(err)
		}
		return err == nil
	})
	return e
}

// sendMessage sends message with f as its payload.
func (w *World) sendMessage(r *ring.Ring, message string, f ring.Frame, done func(error)) {
	w.Helper()
	e := w.getEntry(r)
	copy(Must(e.Reserve(len(message)))(w), message)
	OK(w, e.Attach(f, done))
	OK(w, r.ReleaseSend(e))
}

// settle waits until all that r has sent is done.
func (w *World) settle(r *ring.Ring) {
	w.Helper()
	w.Until("all to be sent", func() bool {
		r.CheckSent()
		return r.Driver().Send.Queued() == 0
	})
}

// receiveMessage takes the next message, which must begin with message.
func (w *World) receiveMessage(r *ring.Ring, message string) (e *ring.Entry) {
	w.Helper()
	w.Until("a message", func() bool {
		var err error
		if e, err = r.GetRecv(); err != nil && err != via.ErrNotDone {
			w.Fatal(err)
		}
		return err == nil
	})
	wantEqual(w, string(Must(e.Scan(len(message)))(w)), message, "message")
	return e
}

package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// breakBus makes the node's bus give memory in pieces of 64 bytes and refuse
// those that hit names.
func (n *node) breakBus(hit func(iova uint64) bool) {
	n.e.Exclusive(func() {
		n.gen++
		n.pieces = 64
		n.refuse = func(iova uint64, _ bool) bool { return hit(iova) }
	})
}

// TestPartialPacket lets the bus fail in the middle of a message.
func TestPartialPacket(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		s, _ := v.descriptor(200)
		r, _ := p.descriptor(200)
		bad := r.Segments()[0].Address - hostBase + busBase + 128
		w.b.breakBus(func(iova uint64) bool { return iova == bad })
		p.postRecv(r)
		v.postSend(s)
		w.run("the message", func() bool { return r.Status().Done() && s.Status().Done() })
		want := datasheet.StatusProtectionError | datasheet.StatusPartialPacket
		if got := r.Status() & datasheet.StatusErrorMask; got != want {
			t.Fatalf("received %v, want %v", got, want)
		}
		if n := w.b.e.Counter(datasheet.CounterDMAFaults); n == 0 {
			t.Fatal("no DMA fault was counted")
		}
	})
}

// TestRefusedRing has the bus refuse the tokens of a queue: the host gets an
// event for each, and the queue does not stop.
func TestRefusedRing(t *testing.T) {
	w, v, p := pair(t, unreliable)
	ring := datasheet.Reply[datasheet.EndpointReply](do(v.n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: v.id}))
	if ring.SendProducer != 0 {
		t.Fatal("the ring has been used")
	}
	s, _ := v.descriptor(10)
	next, _ := v.descriptor(10)
	// The send ring is the first thing that the test's VI allocates.
	w.a.breakBus(func(iova uint64) bool { return iova == busBase })
	v.postSend(s)
	w.settle()
	if len(w.a.events) != 1 || w.a.events[0].Code != datasheet.EventPostDescriptor {
		t.Fatalf("events %+v", w.a.events)
	}
	w.a.breakBus(func(uint64) bool { return false })
	r, _ := p.descriptor(10)
	p.postRecv(r)
	v.postSend(next)
	w.run("the next message", func() bool { return next.Status().Done() && r.Status().Done() })
	if next.Status().Failed() || r.Status().Failed() {
		t.Fatalf("%v, %v", next.Status(), r.Status())
	}
}

// TestWriteOnlyMemory has the bus let the device write, but not read, what a
// message is to be sent from: leave to write is not leave to read.
func TestWriteOnlyMemory(t *testing.T) {
	w, v, p := pair(t, nil)
	s, out := v.descriptor(100)
	r, in := p.descriptor(100)
	copy(out[0], "secret")
	from := &s.Segments()[0]
	buffer := from.Address - hostBase + busBase
	w.a.e.Exclusive(func() {
		w.a.gen++
		w.a.refuse = func(iova uint64, write bool) bool { return !write && iova == buffer }
	})
	region := do(w.a, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{Address: from.Address, Length: 100, IOVA: buffer})
	from.Handle = datasheet.Reply[datasheet.RegionReply](region).Handle
	p.postRecv(r)
	v.postSend(s)
	w.run("the end of the connection", func() bool { return r.Status().Done() })
	if !r.Status().Failed() || in[0][0] != 0 {
		t.Fatalf("%v: %q got out", r.Status(), in[0][:6])
	}
}

// TestFirstFrameLies sends an unreliable message whose first frame holds more
// than the message, to a bad receive descriptor, and then a good one: the
// descriptor's own error is not forgotten in between.
func TestFirstFrameLies(t *testing.T) {
	w, v, p := pair(t, unreliable)
	bad, _ := p.descriptor(0)
	bad.Control().Length = 5 // not the sum of its segments
	p.postRecv(bad)
	w.a.port.spoil = func(f []byte) [][]byte {
		if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameData {
			h.Extent = 5
		}
		return [][]byte{f}
	}
	long, _ := v.descriptor(10)
	v.postSend(long)
	w.settle()
	w.a.port.spoil = nil
	empty, _ := v.descriptor(0)
	v.postSend(empty)
	w.run("the receive", func() bool { return bad.Status().Done() })
	if bad.Status()&datasheet.StatusErrorMask != datasheet.StatusLengthError {
		t.Fatal(bad.Status())
	}
}

package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// overdue is a world in which a lent message waits on the wire, unread. What was
// lent changes with spend.
type overdue struct {
	w    *world
	v, p *vi
	a, b *lender
	s, r *descriptors.Descriptor
	out  []byte
	in   []byte
}

const overdueSize = 20_000

func newOverdue(t *testing.T, change func(d *descriptors.Descriptor, n *node)) *overdue {
	t.Helper()
	o := &overdue{}
	o.w, o.v, o.p, o.a, o.b = lentPair(t, 8192, nil)
	var out, in [][]byte
	o.s, out = o.v.descriptor(overdueSize)
	o.r, in = o.p.descriptor(overdueSize)
	o.out, o.in = out[0], in[0]
	copy(o.out, pattern(overdueSize, 1))
	if change != nil {
		change(o.s, o.w.a)
	}
	o.p.postRecv(o.r)
	o.w.settle()
	o.v.postSend(o.s)
	for range 4 {
		o.w.a.e.Step() // the peer does not
	}
	if o.a.lent != 3 || o.s.Status().Done() || o.a.revokes != 0 {
		t.Fatalf("%d lent, send %v, %d revoked", o.a.lent, o.s.Status(), o.a.revokes)
	}
	return o
}

func (o *overdue) spend() { copy(o.out, pattern(overdueSize, 2)) }

// TestLoansEnd: memory that is the host's again before the peer has read it does
// not arrive, whatever is in it by then.
func TestLoansEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, o *overdue)
	}{
		{"disconnect", func(t *testing.T, o *overdue) {
			// The reply needs no step of the peer.
			start(o.w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: o.v.id})
			should.Be(t, o.s.Status()&datasheet.StatusFlushed, datasheet.StatusFlushed, "the send: %v", o.s.Status())
		}},
		{"reset", func(_ *testing.T, o *overdue) { o.w.a.e.Reset() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOverdue(t, nil)
			tt.end(t, o)
			should.Be(t, o.a.revokes, 1, "revoked times")
			o.spend()
			dropped := o.w.b.e.Counter(datasheet.CounterFramesDropped)
			o.w.run("the peer's notice", func() bool { return o.r.Status().Done() })
			should.Be(t, o.r.Status().Failed(), true, "a message arrived: %v", o.r.Status())
			if n := o.w.b.e.Counter(datasheet.CounterFramesDropped) - dropped; o.b.void != 3 || n < 3 {
				t.Errorf("%d frames void, %d dropped", o.b.void, n)
			}
		})
	}
	t.Run("while it is read", func(t *testing.T) {
		o := newOverdue(t, nil)
		o.b.reading = func() {
			o.b.reading = nil
			start(o.w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: o.v.id})
			o.spend()
		}
		o.w.run("the peer's notice", func() bool { return o.r.Status().Done() })
		if !o.r.Status().Failed() || o.b.void != 3 {
			t.Errorf("%v, %d frames void", o.r.Status(), o.b.void)
		}
	})
}

// TestLoanOfADeregisteredRegion: the NIC does not have a region read that it does
// not know any more. Messages of other regions are sent again.
func TestLoanOfADeregisteredRegion(t *testing.T) {
	var other uint32
	o := newOverdue(t, func(d *descriptors.Descriptor, n *node) {
		other = n.memory(0, 0)
		d.Segments()[0].Handle = other
	})
	idle := o.w.a.memory(0, 0)
	start(o.w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: idle})
	should.Be(t, o.a.revokes, 0, "loans are revoked for a region that is not lent")
	start(o.w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
	must.Be(t, o.a.revokes, 1, "revoked times")
	o.spend()
	o.w.run("the end of the message", func() bool { return o.s.Status().Done() && o.r.Status().Done() })
	if o.s.Status()&datasheet.StatusProtectionError == 0 || !o.r.Status().Failed() {
		t.Errorf("sent %v, received %v", o.s.Status(), o.r.Status())
	}
	should.Be(t, o.w.a.e.Counter(datasheet.CounterProtectionErrors), 1, "protection errors")
}

// TestRevokedFramesAreSentAgain: a loan that is void for another connection's sake
// costs time, and nothing else.
func TestRevokedFramesAreSentAgain(t *testing.T) {
	o := newOverdue(t, nil)
	o.a.Revoke(0)
	o.w.run("the message", func() bool { return o.s.Status().Done() && o.r.Status().Done() })
	if o.s.Status().Failed() || o.r.Status().Failed() || o.b.void != 3 || o.w.a.e.Counter(datasheet.CounterFramesRetransmitted) != 3 {
		t.Errorf("%v, %v, %d void, %d sent again", o.s.Status(), o.r.Status(), o.b.void, o.w.a.e.Counter(datasheet.CounterFramesRetransmitted))
	}
	mustEqual(t, o.in, pattern(overdueSize, 1))
}

// TestNothingToRevoke: a connection all of whose frames have been acknowledged
// ends without disturbing others.
func TestNothingToRevoke(t *testing.T) {
	w, v, p, a, b := lentPair(t, 8192, nil)
	for i := range 10 {
		mustArrive(t, v, p, 20_000, uint64(i))
		mustArrive(t, p, v, 20_000, uint64(i))
	}
	do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	w.settle()
	if a.lent != 30 || b.lent != 30 || a.revokes+b.revokes != 0 {
		t.Errorf("%d and %d lent, %d and %d times revoked", a.lent, b.lent, a.revokes, b.revokes)
	}
}

// TestLentProtection: what the bus or a region refuses is noticed at either end.
// That every segment is checked before is TestBadSends' and TestBadReceives'.
func TestLentProtection(t *testing.T) {
	t.Run("sender's bus", func(t *testing.T) {
		w, v, p, a, b := lentPair(t, 8192, nil)
		s, _ := v.descriptor(5000)
		r, _ := p.descriptor(5000)
		bad := s.Segments()[0].Address - hostBase + busBase
		w.a.e.Exclusive(func() {
			w.a.gen++
			w.a.refuse = func(iova uint64, write bool) bool { return !write && iova >= bad-bad%64 && iova < bad+5000 }
			w.a.pieces = 64
		})
		p.postRecv(r)
		v.postSend(s)
		w.run("the send", func() bool { return s.Status().Done() })
		if s.Status()&datasheet.StatusProtectionError == 0 || a.lent+b.got != 0 {
			t.Errorf("%v, %d lent", s.Status(), a.lent)
		}
	})
	t.Run("receiver's region", func(t *testing.T) {
		w, v, p, _, b := lentPair(t, 8192, nil)
		s, _ := v.descriptor(16_000)
		r, _ := p.descriptor(16_000)
		other := w.b.memory(0, 0)
		r.Segments()[0].Handle = other
		w.a.port.spoil = func(f []byte) [][]byte {
			if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameData && h.Offset > 0 {
				return nil // for now
			} else if h.Type == datasheet.FrameData {
				h.Flags |= datasheet.FrameAckRequest // and is not repeated
			}
			return [][]byte{f}
		}
		p.postRecv(r)
		w.settle()
		v.postSend(s)
		w.settle()
		do(w.b, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
		w.a.port.spoil = nil
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		if r.Status()&datasheet.StatusProtectionError == 0 || s.Status()&datasheet.StatusRemoteDescriptor == 0 || b.got != 2 {
			t.Errorf("%v, %v, %d borrowed", s.Status(), r.Status(), b.got)
		}
	})
	t.Run("receive too small", func(t *testing.T) {
		w, v, p, _, _ := lentPair(t, 8192, nil)
		s, out := v.descriptor(8000)
		r, in := p.descriptor(4000)
		copy(out[0], pattern(8000, 1))
		p.postRecv(r)
		v.postSend(s)
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		if r.Status()&datasheet.StatusLengthError == 0 || s.Status()&datasheet.StatusRemoteDescriptor == 0 {
			t.Errorf("%v, %v", s.Status(), r.Status())
		}
		should.Same(t, in[0], make([]byte, 4000), "some of it has landed")
	})
	t.Run("receiver's bus", func(t *testing.T) {
		w, v, p, _, _ := lentPair(t, 8192, nil)
		s, _ := v.descriptor(8000)
		r, _ := p.descriptor(8000)
		bad := r.Segments()[0].Address - hostBase + busBase + 6400
		w.b.breakBus(func(iova uint64) bool { return iova == bad })
		p.postRecv(r)
		v.postSend(s)
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		should.Be(t, r.Status()&datasheet.StatusErrorMask, datasheet.StatusProtectionError|datasheet.StatusPartialPacket)
	})
}

package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// spoiltSend is one way to post a bad send, and what becomes of it.
type spoiltSend struct {
	name  string
	spoil func(t *testing.T, v *vi, d *descriptors.Descriptor)
	want  datasheet.Status // error bits
}

var spoiltSends = []spoiltSend{
	{"foreign handle in a segment", func(t *testing.T, v *vi, d *descriptors.Descriptor) { d.Segments()[0].Handle = 0x00f00001 }, datasheet.StatusProtectionError},
	{"stale handle in a segment", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		stale := v.n.memory(0, 0)
		do(v.n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: stale})
		if fresh := v.n.memory(0, 0); fresh == stale {
			t.Fatal("a handle was given out again at once")
		}
		d.Segments()[0].Handle = stale
	}, datasheet.StatusProtectionError},
	{"handle zero", func(t *testing.T, v *vi, d *descriptors.Descriptor) { d.Segments()[0].Handle = 0 }, datasheet.StatusProtectionError},
	{"memory with another protection tag", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		tag := datasheet.Reply[datasheet.PtagBody](do(v.n, datasheet.OpCreatePtag, datasheet.PtagBody{})).Ptag
		d.Segments()[0].Handle = v.n.memory(tag, 0)
	}, datasheet.StatusProtectionError},
	{"segment past the end of its region", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Segments()[0].Address = hostBase + memSize - 1
	}, datasheet.StatusProtectionError},
	{"segment before its region", func(t *testing.T, v *vi, d *descriptors.Descriptor) { d.Segments()[0].Address = hostBase - 1 }, datasheet.StatusProtectionError},
	{"segment that wraps the address space", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Segments()[0].Address = ^uint64(0) - 10
	}, datasheet.StatusProtectionError},
	{"length that is not the total", func(t *testing.T, v *vi, d *descriptors.Descriptor) { d.Control().Length++ }, datasheet.StatusLengthError},
	{"lengths that wrap 32 bits", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Segments()[0].Length, d.Segments()[1].Length, d.Control().Length = 0xffffffff, 101, 100
	}, datasheet.StatusLengthError},
	{"message over the device's limit", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Segments()[0].Length, d.Segments()[1].Length = datasheet.MaxTransfer, 1
		d.Control().Length = datasheet.MaxTransfer + 1
	}, datasheet.StatusLengthError},
	{"too many segments", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Control().SegCount = datasheet.MaxSegments + 1
	}, datasheet.StatusFormatError},
	{"segments past the end of the descriptor's region", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		v.send.tokens[v.send.producer%uint32(len(v.send.tokens))].Handle = datasheet.Reply[datasheet.RegionReply](
			do(v.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
				Address: hostBase, Length: d.Token().Address + 48 - hostBase, IOVA: busBase})).Handle
	}, datasheet.StatusProtectionError},
	{"reserved control bits", func(t *testing.T, v *vi, d *descriptors.Descriptor) { d.Control().Control |= 0x20 }, datasheet.StatusFormatError},
	{"inline data of fewer units than bytes", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Control().Control |= datasheet.ControlInline
	}, datasheet.StatusFormatError},
	{"inline data past the end of the descriptor's region", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Control().Control |= datasheet.ControlInline
		d.Control().Length = 32
		v.send.tokens[v.send.producer%uint32(len(v.send.tokens))].Handle = datasheet.Reply[datasheet.RegionReply](
			do(v.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
				Address: hostBase, Length: d.Token().Address + 48 - hostBase, IOVA: busBase})).Handle
	}, datasheet.StatusProtectionError},
	{"an operation that the device lacks", func(t *testing.T, v *vi, d *descriptors.Descriptor) {
		d.Control().Control |= 3
	}, datasheet.StatusFormatError},
}

// postSpoilt posts a send of two segments that spoil has been at. A token
// handle that spoil has set stays.
func postSpoilt(t *testing.T, v *vi, s spoiltSend) *descriptors.Descriptor {
	t.Helper()
	d, _ := v.descriptor(50, 50)
	at := &v.send.tokens[v.send.producer%uint32(len(v.send.tokens))]
	at.Handle = 0
	s.spoil(t, v, d)
	token := d.Token()
	if at.Handle != 0 {
		token.Handle = at.Handle
	}
	*at = token
	v.send.producer++
	v.n.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellSend, v.send.producer)
	return d
}

func TestBadSends(t *testing.T) {
	for _, s := range spoiltSends {
		t.Run(s.name, func(t *testing.T) {
			levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
				w, v, p := pair(t, change)
				other, peer := w.a.newVI(v.handle, change), w.b.newVI(p.handle, change)
				connect(other, peer)
				r, _ := p.descriptor(1000)
				p.postRecv(r)
				d := postSpoilt(t, v, s)
				w.run("the end of a bad send", func() bool { return d.Status().Done() })
				if got := d.Status() & datasheet.StatusErrorMask; got != s.want {
					t.Errorf("status %v, want %v", d.Status(), s.want)
				}
				w.settle()
				wantState := datasheet.StateError
				if level == datasheet.Unreliable {
					wantState = datasheet.StateConnected
				}
				for _, x := range []*vi{v, p} {
					if st := x.state(); st != wantState {
						t.Errorf("state of %v: %v, want %v", x.n.e.MAC(), st, wantState)
					}
				}
				sent, received, got := message(other, peer, []byte("still there"))
				if sent.Failed() || received.Failed() || string(got) != "still there" {
					t.Errorf("another VI: %v, %v, %q", sent, received, got)
				}
			})
		})
	}
}

func (v *vi) state() datasheet.State {
	v.n.w.t.Helper()
	return datasheet.Reply[datasheet.EndpointReply](do(v.n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: v.id})).State
}

// TestUnwritableDescriptors posts descriptors whose status cannot be written:
// an event says so and the queue goes on.
func TestUnwritableDescriptors(t *testing.T) {
	for _, bad := range []struct {
		name  string
		token func(v *vi, good datasheet.Token) datasheet.Token
	}{
		{"foreign handle", func(v *vi, g datasheet.Token) datasheet.Token { g.Handle ^= 0x100000; return g }},
		{"address outside", func(v *vi, g datasheet.Token) datasheet.Token { g.Address = hostBase + memSize; return g }},
		{"read-only region", func(v *vi, g datasheet.Token) datasheet.Token {
			g.Handle = v.n.memory(0, datasheet.AccessReadOnly)
			return g
		}},
		{"truncated at the end of the region", func(v *vi, g datasheet.Token) datasheet.Token {
			g.Handle = datasheet.Reply[datasheet.RegionReply](do(v.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
				Address: g.Address, Length: 31, IOVA: busBase + g.Address - hostBase})).Handle
			return g
		}},
		{"misaligned", func(v *vi, g datasheet.Token) datasheet.Token { g.Address += 32; return g }},
	} {
		t.Run(bad.name, func(t *testing.T) {
			w, v, p := pair(t, unreliable)
			d, _ := v.descriptor(10)
			v.send.tokens[v.send.producer%uint32(len(v.send.tokens))] = bad.token(v, d.Token())
			v.send.producer++
			v.n.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellSend, v.send.producer)
			w.settle()
			if len(w.a.events) != 1 || w.a.events[0].Code != datasheet.EventPostDescriptor || w.a.events[0].Endpoint != v.id {
				t.Fatalf("events %+v", w.a.events)
			}
			if sent, received, _ := message(v, p, []byte("next")); sent.Failed() || received.Failed() {
				t.Fatalf("the next message: %v, %v", sent, received)
			}
		})
	}
}

func TestBadReceives(t *testing.T) {
	for _, bad := range []struct {
		name  string
		size  int
		spoil func(t *testing.T, p *vi, d *descriptors.Descriptor)
		want  datasheet.Status
	}{
		{"too small", 99, nil, datasheet.StatusLengthError},
		{"no segments", 0, nil, datasheet.StatusLengthError},
		{"foreign handle", 200, func(t *testing.T, p *vi, d *descriptors.Descriptor) { d.Segments()[0].Handle ^= 1 << 21 }, datasheet.StatusProtectionError},
		{"read-only memory", 200, func(t *testing.T, p *vi, d *descriptors.Descriptor) {
			d.Segments()[0].Handle = p.n.memory(0, datasheet.AccessReadOnly)
		}, datasheet.StatusProtectionError},
		{"reserved bits", 200, func(t *testing.T, p *vi, d *descriptors.Descriptor) { d.Control().Control = 0x8000 }, datasheet.StatusFormatError},
		{"inline data", 16, func(t *testing.T, p *vi, d *descriptors.Descriptor) {
			d.Control().Control = datasheet.ControlInline
		}, datasheet.StatusFormatError},
		{"memory that the bus refuses", 200, func(t *testing.T, p *vi, d *descriptors.Descriptor) {
			at := d.Segments()[0].Address - hostBase + busBase
			p.n.e.Exclusive(func() {
				p.n.gen++
				p.n.refuse = func(iova uint64, write bool) bool { return iova == at }
				p.n.pieces = 64
			})
		}, datasheet.StatusProtectionError},
	} {
		t.Run(bad.name, func(t *testing.T) {
			levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
				w, v, p := pair(t, change)
				first, _ := p.descriptor(100)
				r, in := p.descriptor(bad.size)
				after, _ := p.descriptor(100)
				for i := range in[0] {
					in[0][i] = 0xee
				}
				if bad.spoil != nil {
					bad.spoil(t, p, r)
				}
				p.postRecv(first, r, after)
				var sends []*descriptors.Descriptor
				for range 3 {
					s, _ := v.descriptor(100)
					sends = append(sends, s)
				}
				v.postSend(sends...)
				w.run("the bad receive", func() bool { return r.Status().Done() && sends[2].Status().Done() })
				if got := r.Status() & datasheet.StatusErrorMask; got != bad.want {
					t.Errorf("receive: %v, want %v", r.Status(), bad.want)
				}
				for i, b := range in[0] {
					if b != 0xee {
						t.Fatalf("byte %d of a refused receive was written", i)
					}
				}
				if first.Status().Failed() || sends[0].Status().Failed() {
					t.Errorf("the message before: %v, %v", sends[0].Status(), first.Status())
				}
				if level == datasheet.Unreliable {
					w.run("the message after", func() bool { return after.Status().Done() })
					if sends[1].Status().Failed() || sends[2].Status().Failed() || after.Status().Failed() {
						t.Errorf("sends %v, %v, the receive after: %v", sends[1].Status(), sends[2].Status(), after.Status())
					}
					return
				}
				if sends[1].Status() != datasheet.StatusDone|datasheet.StatusRemoteDescriptor {
					t.Errorf("the sender learns %v", sends[1].Status())
				}
				if sends[2].Status() != datasheet.StatusDone|datasheet.StatusFlushed {
					t.Errorf("the send behind it: %v", sends[2].Status())
				}
				if after.Status()&datasheet.StatusFlushed == 0 {
					t.Errorf("the receive behind it: %v", after.Status())
				}
				if v.state() != datasheet.StateError || p.state() != datasheet.StateError {
					t.Errorf("states %v, %v", v.state(), p.state())
				}
			})
		})
	}
}

func TestNoReceivePosted(t *testing.T) {
	w, v, p := pair(t, unreliable)
	s, _ := v.descriptor(5000)
	v.postSend(s)
	w.run("a send", func() bool { return s.Status().Done() })
	w.settle()
	if s.Status().Failed() {
		t.Errorf("the sender learns %v", s.Status())
	}
	if n := w.b.e.Counter(datasheet.CounterReceiveQueueEmpty); n != 1 {
		t.Errorf("%d messages counted as dropped", n)
	}
	if len(w.b.events) != 1 || w.b.events[0].Code != datasheet.EventReceiveQueueEmpty || w.b.events[0].Endpoint != p.id {
		t.Errorf("events %+v", w.b.events)
	}
	if sent, received, _ := message(v, p, pattern(5000, 5)); sent.Failed() || received.Failed() {
		t.Errorf("the next message: %v, %v", sent, received)
	}
}

// TestMemoryTakenAway deregisters the memory of a message that is under way.
func TestMemoryTakenAway(t *testing.T) {
	w, v, p := pair(t, nil)
	s, _ := v.descriptor(500_000)
	other := v.n.memory(0, 0)
	s.Segments()[0].Handle = other
	r, _ := p.descriptor(500_000)
	p.postRecv(r)
	v.postSend(s)
	for range 3 {
		w.a.e.Step()
	}
	if s.Status().Done() {
		t.Fatal("the message is not under way")
	}
	do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
	w.run("the end of the message", func() bool { return s.Status().Done() && r.Status().Done() })
	if s.Status()&datasheet.StatusProtectionError == 0 {
		t.Errorf("the sender learns %v", s.Status())
	}
	if !r.Status().Failed() {
		t.Errorf("the receiver learns %v", r.Status())
	}
}

// TestMemoryTakenAwayBehind deregisters the memory of the second of two messages
// that are under way. The first has done nothing wrong.
func TestMemoryTakenAwayBehind(t *testing.T) {
	w, v, p := pair(t, nil)
	first, _ := v.descriptor(10)
	second, _ := v.descriptor(10)
	other := v.n.memory(0, 0)
	second.Segments()[0].Handle = other
	for range 2 {
		r, _ := p.descriptor(10)
		p.postRecv(r)
	}
	w.settle()
	w.a.port.spoil = losing{datasheet.FrameData: true}.spoil
	v.postSend(first, second)
	w.settle()
	do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
	w.run("the end", func() bool { return second.Status().Done() })
	if got := first.Status() & datasheet.StatusErrorMask; got != datasheet.StatusFlushed {
		t.Errorf("the first: %v", first.Status())
	}
	if got := second.Status() & datasheet.StatusErrorMask; got != datasheet.StatusProtectionError {
		t.Errorf("the second: %v", second.Status())
	}
}

// TestMemoryTakenAwayBeforeArrival deregisters the memory of a receive's second
// segment after the device had time to fetch the descriptor, and before a message
// comes: nothing of it is placed.
func TestMemoryTakenAwayBeforeArrival(t *testing.T) {
	levels(t, func(t *testing.T, _ datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		r, in := p.descriptor(10, 40)
		other := p.n.memory(0, 0)
		r.Segments()[1].Handle = other
		p.postRecv(r)
		w.settle()
		do(w.b, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
		s, out := v.descriptor(50)
		for i := range out[0] {
			out[0][i] = 0xee
		}
		v.postSend(s)
		w.run("the end of the receive", func() bool { return r.Status().Done() })
		if got := r.Status() & (datasheet.StatusErrorMask | datasheet.StatusPartialPacket); got != datasheet.StatusProtectionError {
			t.Errorf("status %v", r.Status())
		}
		for _, b := range in[0] {
			if b != 0 {
				t.Fatalf("% x landed in the first segment", in[0])
			}
		}
	})
}

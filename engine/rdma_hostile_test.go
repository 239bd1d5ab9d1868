package engine_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// hostileRDMA is an impostor at the other end of a VI that lets its peer write and read.
type hostileRDMA struct {
	*impostor
	open, readOnly, local target // memory of p's host
	foreign, gone         target
	read                  *descriptors.Descriptor // of p, under way
	into                  []byte                  // where it goes
	request               uint32                  // its PSN
}

func newHostileRDMA(t testing.TB, options ...option) *hostileRDMA {
	t.Helper()
	return newHostileRDMAOf(t, bothRights, options...)
}

// newHostileRDMAOf makes one whose peer allows what rights say.
func newHostileRDMAOf(t testing.TB, rights datasheet.Access, options ...option) *hostileRDMA {
	t.Helper()
	x := &hostileRDMA{impostor: newImpostor(t, func(n *node, b *datasheet.CreateEndpointBody) {
		b.Rights, b.MaxTransfer = bothRights, 4096
		if n == n.w.b { // it is p's
			b.Rights = rights
		}
	}, options...)}
	x.open, x.readOnly, x.local = x.p.target(4096, bothRights), x.p.target(4096, datasheet.AccessRDMARead), x.p.target(4096, 0)
	x.gone = x.p.target(4096, bothRights)
	do(x.p.n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: x.gone.handle})
	tag := datasheet.Reply[datasheet.PtagBody](do(x.p.n, datasheet.OpCreatePtag, datasheet.PtagBody{})).Ptag
	mem, address, iova := x.p.n.alloc(4096)
	r := do(x.p.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: address, Length: 4096, IOVA: iova, Ptag: tag, Access: bothRights})
	x.foreign = target{mem, address, datasheet.Reply[datasheet.RegionReply](r).Handle}
	x.w.b.port.spoil = func(f []byte) [][]byte {
		if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameReadRequest {
			x.request = h.PSN
		}
		return nil // the impostor has the connection
	}
	var in [][]byte
	x.read, in = x.p.read(target{address: 1000, handle: 5}, 0, 500)
	x.into = in[0]
	x.p.postSend(x.read)
	x.w.settleOnly(x.w.b)
	return x
}

// rdma has an RDMA frame arrive, of length bytes of 7.
func (x *hostileRDMA) rdma(kind datasheet.FrameType, psn uint32, flags datasheet.FrameFlags, extent, offset uint32, length int, e datasheet.Extension) {
	const header = datasheet.HeaderSize + datasheet.ExtensionSize
	b := alignedBytes(header + length)
	for i := range b[header:] {
		b[header+i] = 7
	}
	h := datasheet.HeaderAt(b)
	*h = x.good
	h.Type, h.Flags, h.Length, h.Extent, h.Offset = kind, flags, uint16(length), extent, offset
	h.PSN += psn
	if kind == datasheet.FrameReadResponse {
		h.Ack = x.request + 1
	}
	if kind == datasheet.FrameWrite {
		e.Request += h.PSN - offset // offsets are PSNs further on here
	}
	*datasheet.ExtensionAt(b[datasheet.HeaderSize:]) = e
	x.arrive(b)
}

// untouched checks that nothing was written but to memory that may be.
func (x *hostileRDMA) untouched(t testing.TB) {
	t.Helper()
	for name, m := range map[string]target{"read-only": x.readOnly, "local": x.local, "foreign": x.foreign, "deregistered": x.gone} {
		if !bytes.Equal(m.mem, make([]byte, len(m.mem))) {
			t.Errorf("%s memory was written", name)
		}
	}
}

// TestHostileRDMA: what a peer sends that may not be is counted and refused, and ends at
// most its own connection.
func TestHostileRDMA(t *testing.T) {
	write, request, response := datasheet.FrameWrite, datasheet.FrameReadRequest, datasheet.FrameReadResponse
	at := func(m target, offset uint64) datasheet.Extension {
		return datasheet.Extension{Address: m.address + offset, Handle: m.handle}
	}
	for _, c := range []struct {
		name   string
		send   func(x *hostileRDMA)
		broken bool                // else the frame is only dropped
		event  datasheet.EventCode // if it is broken
	}{
		{"write to another tag's memory", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0, 10, at(x.foreign, 0)) }, true, datasheet.EventRDMAWriteProtection},
		{"write to memory that peers may only read", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0, 10, at(x.readOnly, 0)) }, true, datasheet.EventRDMAWriteProtection},
		{"write to memory without rights", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0, 10, at(x.local, 0)) }, true, datasheet.EventRDMAWriteProtection},
		{"write to deregistered memory", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0, 10, at(x.gone, 0)) }, true, datasheet.EventRDMAWriteProtection},
		{"write past the end", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0, 10, at(x.open, 4087)) }, true, datasheet.EventRDMAWriteProtection},
		{"write whose later frames would be past the end", func(x *hostileRDMA) { x.rdma(write, 0, 0, 1000, 0, 10, at(x.open, 4000)) }, true, datasheet.EventRDMAWriteProtection},
		{"write around the end of addresses", func(x *hostileRDMA) {
			x.rdma(write, 0, 0, 10, 0, 10, datasheet.Extension{Address: ^uint64(4), Handle: x.open.handle})
		}, true, datasheet.EventRDMAWriteProtection},
		{"write to a handle that nobody has", func(x *hostileRDMA) {
			x.rdma(write, 0, 0, 10, 0, 10, datasheet.Extension{Address: x.open.address, Handle: 0xdeadbeef})
		}, true, datasheet.EventRDMAWriteProtection},
		{"write of nothing to handle 0", func(x *hostileRDMA) { x.rdma(write, 0, 0, 0, 0, 0, datasheet.Extension{}) }, true, datasheet.EventRDMAWriteProtection},
		{"write behind its extent", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0, 11, at(x.open, 0)) }, false, 0},
		{"write whose place wraps", func(x *hostileRDMA) { x.rdma(write, 0, 0, 10, 0xffff_fff8, 10, at(x.open, 0)) }, false, 0},
		{"write over the largest transfer", func(x *hostileRDMA) { x.rdma(write, 0, 0, 4097, 0, 10, at(x.open, 0)) }, false, 0},
		{"write that begins later than it does", func(x *hostileRDMA) {
			e := at(x.open, 0)
			e.Request = 1
			x.rdma(write, 0, 0, 10, 0, 10, e)
		}, false, 0},
		{"write far ahead", func(x *hostileRDMA) { x.rdma(write, 1000, 0, 10, 0, 10, at(x.open, 0)) }, false, 0},
		{"write behind a gap", func(x *hostileRDMA) { x.rdma(write, 1, 0, 10, 0, 10, at(x.open, 0)) }, false, 0},
		{"write with immediate data that has no receive", func(x *hostileRDMA) {
			x.rdma(write, 0, datasheet.FrameImmediate, 10, 0, 10, at(x.open, 0))
		}, false, 0},
		{"write to a VI that is not the connection's", func(x *hostileRDMA) {
			x.good.DestinationEndpoint++
			x.rdma(write, 0, 0, 10, 0, 10, at(x.open, 0))
			x.good.DestinationEndpoint = 1 << 30
			x.rdma(write, 0, 0, 10, 0, 10, at(x.open, 0))
			x.good.DestinationEndpoint = x.p.id
		}, false, 0},
		{"write with another key", func(x *hostileRDMA) {
			x.good.Key++
			x.rdma(write, 0, 0, 10, 0, 10, at(x.open, 0))
			x.good.Key--
		}, false, 0},
		{"read of another tag's memory", func(x *hostileRDMA) { x.rdma(request, 0, 0, 10, 0, 0, at(x.foreign, 0)) }, true, datasheet.EventRDMAReadProtection},
		{"read of memory without rights", func(x *hostileRDMA) { x.rdma(request, 0, 0, 10, 0, 0, at(x.local, 0)) }, true, datasheet.EventRDMAReadProtection},
		{"read of deregistered memory", func(x *hostileRDMA) { x.rdma(request, 0, 0, 10, 0, 0, at(x.gone, 0)) }, true, datasheet.EventRDMAReadProtection},
		{"read past the end", func(x *hostileRDMA) { x.rdma(request, 0, 0, 4096, 0, 0, at(x.open, 1)) }, true, datasheet.EventRDMAReadProtection},
		{"read around the end of addresses", func(x *hostileRDMA) {
			x.rdma(request, 0, 0, 4096, 0, 0, datasheet.Extension{Address: ^uint64(0), Handle: x.open.handle})
		}, true, datasheet.EventRDMAReadProtection},
		{"read over the largest transfer", func(x *hostileRDMA) { x.rdma(request, 0, 0, 4097, 0, 0, at(x.open, 0)) }, false, 0},
		{"read with a payload", func(x *hostileRDMA) { x.rdma(request, 0, 0, 10, 0, 10, at(x.open, 0)) }, false, 0},
		{"read from an offset on", func(x *hostileRDMA) { x.rdma(request, 0, 0, 10, 5, 0, at(x.open, 0)) }, false, 0},
		{"read ahead of its turn", func(x *hostileRDMA) { x.rdma(request, 5, 0, 10, 0, 0, at(x.open, 0)) }, false, 0},
		{"response to nothing", func(x *hostileRDMA) {
			x.rdma(response, 0, 0, 500, 0, 100, datasheet.Extension{Request: x.request + 1})
		}, false, 0},
		{"response of another length", func(x *hostileRDMA) {
			x.rdma(response, 0, 0, 501, 0, 100, datasheet.Extension{Request: x.request})
		}, false, 0},
		{"response behind its end", func(x *hostileRDMA) {
			x.rdma(response, 0, 0, 500, 450, 100, datasheet.Extension{Request: x.request})
		}, false, 0},
		{"response with an address", func(x *hostileRDMA) {
			x.rdma(response, 0, 0, 500, 0, 100, datasheet.Extension{Address: x.open.address, Request: x.request})
		}, false, 0},
		{"response of nothing", func(x *hostileRDMA) {
			x.rdma(response, 0, 0, 500, 0, 0, datasheet.Extension{Request: x.request})
		}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			wires(t, func(t *testing.T, options ...option) {
				x := newHostileRDMA(t, options...)
				lossless := len(options) > 0
				dropped := x.w.b.e.Counter(datasheet.CounterFramesDropped)
				c.send(x)
				x.untouched(t)
				if !bytes.Equal(x.open.mem, make([]byte, 4096)) || !bytes.Equal(x.into, make([]byte, 500)) {
					t.Error("something was written")
				}
				state := x.counts().State
				switch {
				case c.broken && (state != datasheet.StateError || len(x.w.b.events) == 0 || x.w.b.events[0].Code != c.event):
					t.Errorf("state %v, events %v", state, x.w.b.events)
				case !c.broken && x.w.b.e.Counter(datasheet.CounterFramesDropped) == dropped:
					t.Error("the frame was not counted")
				case !c.broken && state == datasheet.StateError && !lossless: // there it may be the end
					t.Errorf("state %v, events %v", state, x.w.b.events)
				}
				x.w.b.port.spoil = nil
				x.mustServe(t)
			})
		})
	}
}

// TestRDMAWithoutRight: frames for an operation that the VI does not allow are dropped, though
// the memory allows it: writes of 1 and of 0 bytes, with immediate data too, and reads.
func TestRDMAWithoutRight(t *testing.T) {
	for _, c := range []struct {
		name   string
		rights datasheet.Access // of the VI
		kind   datasheet.FrameType
		flags  datasheet.FrameFlags
		extent uint32
		length int
	}{
		{"write", datasheet.AccessRDMARead, datasheet.FrameWrite, 0, 10, 10},
		{"write of nothing", datasheet.AccessRDMARead, datasheet.FrameWrite, 0, 0, 0},
		{"write with immediate data", datasheet.AccessRDMARead, datasheet.FrameWrite, datasheet.FrameImmediate, 10, 10},
		{"read", datasheet.AccessRDMAWrite, datasheet.FrameReadRequest, 0, 10, 0},
		{"read of nothing", datasheet.AccessRDMAWrite, datasheet.FrameReadRequest, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			wires(t, func(t *testing.T, options ...option) {
				x := newHostileRDMAOf(t, c.rights, options...)
				lossless := len(options) > 0
				d, _ := x.p.remote(16)
				x.p.postRecv(d)
				dropped := x.w.b.e.Counter(datasheet.CounterFramesDropped)
				x.rdma(c.kind, 0, c.flags, c.extent, 0, c.length, datasheet.Extension{Address: x.open.address, Handle: x.open.handle})
				if !bytes.Equal(x.open.mem, make([]byte, 4096)) {
					t.Error("the memory was written")
				}
				if x.w.b.e.Counter(datasheet.CounterFramesDropped) == dropped {
					t.Error("the frame was not dropped")
				}
				if d.Status().Done() && !lossless {
					t.Errorf("a receive was taken: %v", d.Status())
				}
				if state := x.counts().State; state == datasheet.StateError && !lossless { // there it may be the end
					t.Errorf("state %v", state)
				}
				for _, e := range x.w.b.events {
					if e.Code == datasheet.EventRDMAWriteProtection || e.Code == datasheet.EventRDMAReadProtection {
						t.Errorf("event %v", e)
					}
				}
				x.w.b.port.spoil = nil
				x.mustServe(t)
			})
		})
	}
}

// TestUnreliableWriteWithoutRight: the same on an unreliable connection, which goes on.
func TestUnreliableWriteWithoutRight(t *testing.T) {
	for _, rights := range []datasheet.Access{0, datasheet.AccessRDMAWrite} {
		x := newImpostor(t, func(n *node, b *datasheet.CreateEndpointBody) {
			unreliable(b)
			b.Rights = rights
		})
		open := x.p.target(64, bothRights)
		b := alignedBytes(datasheet.HeaderSize + datasheet.ExtensionSize + 8)
		for i := range 8 {
			b[datasheet.HeaderSize+datasheet.ExtensionSize+i] = 7
		}
		h := datasheet.HeaderAt(b)
		*h = x.good
		h.Type, h.Flags, h.Length, h.Extent = datasheet.FrameWrite, datasheet.FrameFirst|datasheet.FrameLast, 8, 8
		*datasheet.ExtensionAt(b[datasheet.HeaderSize:]) = datasheet.Extension{Address: open.address, Handle: open.handle}
		dropped := x.w.b.e.Counter(datasheet.CounterFramesDropped)
		x.arrive(b)
		written, counted := open.mem[0] == 7, x.w.b.e.Counter(datasheet.CounterFramesDropped) != dropped
		if allowed := rights != 0; written != allowed || counted == allowed || len(x.w.b.events) != 0 || x.counts().State == datasheet.StateError {
			t.Errorf("rights %v: written %t, dropped %t, events %v", rights, written, counted, x.w.b.events)
		}
		x.mustServe(t)
	}
}

// TestEndlessReads: a peer that asks and never acknowledges gets MaxReads answers.
func TestEndlessReads(t *testing.T) {
	x := newHostileRDMA(t)
	responses := 0
	x.w.b.port.spoil = func(f []byte) [][]byte {
		if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameReadResponse && h.Offset == 0 && x.w.now == 0 {
			responses++
		}
		return nil
	}
	now := x.w.now
	for i := range uint32(100) {
		x.rdma(datasheet.FrameReadRequest, i, 0, 100, 0, 0, datasheet.Extension{Address: x.open.address, Handle: x.open.handle})
	}
	if x.w.now != now || responses == 0 || responses > datasheet.MaxReads {
		t.Errorf("%d answers to 100 requests", responses)
	}
	x.w.b.port.spoil = nil
	x.mustServe(t)
}

// TestForgedResponse: the right bytes from the peer end a read, once.
func TestForgedResponse(t *testing.T) {
	x := newHostileRDMA(t)
	for i := range uint32(8) { // two times too many
		x.rdma(datasheet.FrameReadResponse, i, 0, 500, i%5*100, 100, datasheet.Extension{Request: x.request})
	}
	x.w.settleOnly(x.w.b)
	if x.read.Status() != datasheet.StatusDone|datasheet.StatusOpRDMARead || !bytes.Equal(x.into, bytes.Repeat([]byte{7}, 500)) {
		t.Errorf("the read: %v", x.read.Status())
	}
	clear(x.into)
	x.rdma(datasheet.FrameReadResponse, 5, 0, 500, 0, 100, datasheet.Extension{Request: x.request})
	if !bytes.Equal(x.into, make([]byte, 500)) {
		t.Error("a response was placed after the read had all")
	}
	x.untouched(t)
	x.w.b.port.spoil = nil
	x.mustServe(t)
}

// FuzzRDMA has a peer send RDMA frames of any content, one after the other.
func FuzzRDMA(f *testing.F) {
	for kind := range uint8(3) {
		f.Add([]byte{kind, 0, 0, 100, 0, 100, 0, 0, 0})
		f.Add([]byte{kind, 0, 4, 100, 0, 50, 0, 0, 0, kind, 1, 4, 100, 50, 50, 0, 0, 0})
		f.Add([]byte{kind, 0, 0, 100, 0, 100, 3, 1, 9, kind, 3, 0, 255, 10, 0, 2, 200, 1})
	}
	const step = 9
	f.Fuzz(func(t *testing.T, script []byte) {
		var options []option
		if len(script)%2 == 1 {
			options = append(options, exactly(nil))
		}
		x := newHostileRDMA(t, append(options, smallMemory)...)
		r, in := x.p.descriptor(20)
		x.p.postRecv(r)
		guard, _, _ := x.p.n.alloc(64)
		for n := 0; len(script) >= step && n < 100; n++ {
			b := script[:step]
			script = script[step:]
			m := [...]target{x.open, x.readOnly, x.local, x.foreign, x.gone}[b[6]%5]
			e := datasheet.Extension{Address: m.address + uint64(int8(b[7]))*64, Handle: m.handle, Request: uint32(int8(b[8]))}
			kind := datasheet.FrameWrite + datasheet.FrameType(b[0]%3)
			if kind == datasheet.FrameReadResponse {
				e = datasheet.Extension{Request: x.request + uint32(int8(b[8]))}
			}
			x.rdma(kind, uint32(int8(b[1])), datasheet.FrameFlags(b[2])&^datasheet.FrameChecksum, uint32(b[3])*20, uint32(b[4]), int(b[5]), e)
		}
		x.untouched(t)
		for i, b := range append(guard, in[0]...) {
			if b != 0 {
				t.Fatalf("byte %d of a receive, or behind it, was written", i)
			}
		}
		x.w.b.port.spoil = nil
		x.mustServe(t)
		if !x.read.Status().Done() {
			t.Error("the read has not ended")
		}
	})
}

package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
		should.Same(t, m.mem, make([]byte, len(m.mem)), "%s memory was written", name)
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
		if len(script)%4 == 3 {
			options = append(options, withSlots)
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
			must.Be(t, b, 0, "byte %d of a receive, or behind it, was written", i)
		}
		x.w.b.port.spoil = nil
		x.mustServe(t)
		should.Be(t, x.read.Status().Done(), true, "the read has not ended")
	})
}

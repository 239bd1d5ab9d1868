package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// These are the limits of the rings here. Device memory is what the programs of a NIC leave.
const (
	ringLog2    = 4
	ringSlots   = 1 << ringLog2
	maxPayload  = 64 << 10
	sramSize    = 1 << 20
	sramFrom    = 4096 + 64
	ringMessage = datasheet.RingMessage
)

// ring is an endpoint of kind Ring, and its device memory as the host sees it.
type ring struct {
	n          *node
	id         uint32
	memory     uint32 // handle of the host's memory
	handle     uint32 // of the device memory
	at         datasheet.EndpointCreated
	send, recv []datasheet.RingSlot
	table      []datasheet.RingPlace
	sent, got  uint32 // posted
	byPath     bool   // they are posted as the driver of this process does it
	vi         vi     // for its path
}

// newRingWorld is a world whose NICs have device memory.
func newRingWorld(t testing.TB, options ...option) *world {
	t.Helper()
	w := newWorld(t, options...)
	for _, n := range []*node{w.a, w.b} {
		n.mapSRAM(sramSize, sramFrom)
	}
	return w
}

// ringBody is what creates a ring.
func ringBody(change func(*datasheet.CreateEndpointBody)) datasheet.CreateEndpointBody {
	body := datasheet.CreateEndpointBody{MaxTransfer: ringMessage + maxPayload, Kind: datasheet.KindRing,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Reliability: datasheet.Unreliable, SendLog2: ringLog2, RecvLog2: ringLog2}
	if change != nil {
		change(&body)
	}
	return body
}

func (n *node) newRing(memory uint32, change func(*datasheet.CreateEndpointBody)) *ring {
	n.w.t.Helper()
	body := ringBody(change)
	at := *datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, body))
	r := &ring{n: n, id: at.Endpoint, vi: vi{n: n, id: at.Endpoint}, memory: memory, handle: at.Handle, at: at,
		send:  datasheet.RingSlotsAt(n.sram[at.Send:][:datasheet.RingSlotSize<<body.SendLog2]),
		recv:  datasheet.RingSlotsAt(n.sram[at.Recv:][:datasheet.RingSlotSize<<body.RecvLog2]),
		table: datasheet.RingPlacesAt(n.sram[at.Table:][:datasheet.RingPlaceSize*datasheet.PayloadEntries])}
	if r.send == nil || r.recv == nil || r.table == nil {
		n.w.t.Fatalf("rings are at %+v", at)
	}
	return r
}

// ringPair is a world with one connected ring at each end.
func ringPair(t testing.TB, change func(*datasheet.CreateEndpointBody), options ...option) (w *world, a, b *ring) {
	t.Helper()
	w = newRingWorld(t, options...)
	a = w.a.newRing(w.a.memory(0, 0), change)
	b = w.b.newRing(w.b.memory(0, 0), change)
	connect(&vi{n: a.n, id: a.id}, &vi{n: b.n, id: b.id})
	return w, a, b
}

// frame takes host memory for a payload.
func (r *ring) frame(size int) (mem []byte, s datasheet.DataSegment) {
	mem, at, _ := r.n.alloc(size)
	return mem, datasheet.DataSegment{Address: at, Handle: r.memory, Length: uint32(size)}
}

// fill puts a message with a payload, if there is one, into a slot that is the host's.
func fill(s *datasheet.RingSlot, message []byte, payload *datasheet.DataSegment, length uint32) {
	copy(s.Message[:], message)
	s.Segments, s.Control, s.Tag, s.Length, s.Payload = 0, datasheet.OpSend, 0, length, datasheet.DataSegment{}
	if payload != nil {
		s.Segments, s.Payload = 1, *payload
	}
	s.StoreStatus(0)
}

// way is the ring's path, as that of a VI.
func (r *ring) way() path { return (&r.vi).way() }

// bell is the offset of one of a ring's doorbells.
func (r *ring) bell(doorbell uint64) uint64 {
	return datasheet.EndpointPage(r.id) + datasheet.DoorbellRing + doorbell
}

// nextSend and nextRecv are the slots that are posted next.
func (r *ring) nextSend() *datasheet.RingSlot { return &r.send[r.sent%uint32(len(r.send))] }
func (r *ring) nextRecv() *datasheet.RingSlot { return &r.recv[r.got%uint32(len(r.recv))] }

// postSend posts the next send slot, postRecv the next receive slot.
func (r *ring) postSend() *datasheet.RingSlot {
	s := r.nextSend()
	if r.sent++; r.byPath {
		r.way().Post(r.sent)
		return s
	}
	r.n.e.Doorbell(datasheet.EndpointPage(r.id)+datasheet.DoorbellRing+datasheet.DoorbellSend, r.sent)
	return s
}

func (r *ring) postRecv() *datasheet.RingSlot {
	s := r.nextRecv()
	if r.got++; r.byPath {
		r.way().PostReceives(r.got)
		return s
	}
	r.n.e.Doorbell(datasheet.EndpointPage(r.id)+datasheet.DoorbellRing+datasheet.DoorbellRecv, r.got)
	return s
}

// receive posts a receive with a frame of the given size, none if that is negative.
func (r *ring) receive(size int) (s *datasheet.RingSlot, frame []byte) {
	var attached *datasheet.DataSegment
	if size >= 0 {
		var d datasheet.DataSegment
		frame, d = r.frame(size)
		attached = &d
	}
	fill(r.nextRecv(), nil, attached, 0)
	return r.postRecv(), frame
}

// transmit sends a message with a payload, none if it is nil, and a tag unless that is zero.
func (r *ring) transmit(message, payload []byte, tag uint32) *datasheet.RingSlot {
	if payload == nil {
		fill(r.nextSend(), message, nil, 0)
	} else {
		frame, d := r.frame(len(payload))
		copy(frame, payload)
		fill(r.nextSend(), message, &d, d.Length)
	}
	if tag != 0 {
		s := r.nextSend()
		s.Control, s.Tag = datasheet.ControlImmediate, tag
	}
	return r.postSend()
}

// place has the payload of messages with tag go to fresh memory, as a host stores it.
func (r *ring) place(tag uint32, size int) (frame []byte) {
	frame, d := r.frame(size)
	r.table[tag%datasheet.PayloadEntries].Store(&datasheet.RingPlace{Address: d.Address, Handle: d.Handle, Length: d.Length, Tag: tag})
	return frame
}

// exchange sends one message and returns the slot that it came to. Both must end.
func exchange(from, to *ring, message, payload []byte, tag uint32, frame int) (*datasheet.RingSlot, []byte) {
	from.n.w.t.Helper()
	r, mem := to.receive(frame)
	s := from.transmit(message, payload, tag)
	from.n.w.run("the end of a ring message", func() bool { return s.LoadStatus().Done() && r.LoadStatus().Done() })
	must.Be(from.n.w.t, s.LoadStatus(), datasheet.StatusDone)
	return r, mem
}

// arrived checks a receive slot.
func arrived(t testing.TB, s *datasheet.RingSlot, message []byte, length, sent, place, tag uint32) {
	t.Helper()
	want := datasheet.StatusDone | datasheet.StatusOpReceive
	if tag != 0 {
		want |= datasheet.StatusImmediate
	}
	if st := s.LoadStatus(); st != want || s.Length != length || s.Sent != sent || s.Place != place || tag != 0 && s.Tag != tag {
		t.Fatalf("%v, %d bytes of %d at place %d, tag %#x; want %v, %d of %d at %d, %#x",
			st, s.Length, s.Sent, s.Place, s.Tag, want, length, sent, place, tag)
	}
	must.Same(t, s.Message[:], message, "the message is not the one that")
}

func (r *ring) destroy() {
	r.n.w.t.Helper()
	do(r.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: r.id})
	do(r.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: r.id})
}

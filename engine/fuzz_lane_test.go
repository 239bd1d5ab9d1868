package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// FuzzLane plays a host that changes its mind and a peer that sends what it likes, to
// four NICs. One takes frames in the lane, and one is on a wire with slots. One has no lane, as a program
// has a say in all frames, and one has a connection that acknowledges. The first three must agree in all
// that their hosts see. So must the last, up to the first frame that it drops or has had
// before: there the connections of the others end.
func FuzzLane(f *testing.F) {
	for _, s := range laneScripts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 120 {
			return
		}
		lane, slots, general, window := newVictim(t, laneVictim), newVictim(t, slotsVictim), newVictim(t, generalVictim), newVictim(t, windowVictim)
		together := true
		for i := 0; i+2 < len(script); i += 3 {
			op := [3]byte(script[i : i+3])
			for _, v := range []*victim{lane, slots, general, window} {
				v.play(op)
			}
			if a, b := lane.seen(), slots.seen(); a != b {
				t.Fatalf("after %v, %d: in the lane\n%s\nwith slots\n%s", op, i/3, a, b)
			}
			if a, b := lane.seen(), general.seen(); a != b {
				t.Fatalf("after %v, %d: in the lane\n%s\nelsewhere\n%s", op, i/3, a, b)
			}
			if together = together && window.refused()+lane.refused() == 0; !together {
				continue
			}
			if a, b := lane.seen(), window.seen(); a != b {
				t.Fatalf("after %v, %d: in the lane\n%s\nwith acknowledgements\n%s", op, i/3, a, b)
			}
		}
	})
}

// laneScripts are operations of three bytes: what, and how. See victim.play.
var laneScripts = [][]byte{
	{},
	{0, 100, 0, 1, 50, 0, 1, 60, 0}, // a message, and one without a receive
	{0, 100, 0, 0, 100, 0, 1, 100, 0, 1, 101, 0},               // one that is too long
	{0, 100, 0, 2, 0, 0, 1, 50, 0},                             // the data's region goes after the receive was fetched
	{0, 100, 0, 2, 1, 0, 1, 50, 0},                             // the descriptors' does
	{0, 100, 0, 2, 0, 0, 3, 0, 0, 1, 50, 0, 0, 9, 0, 1, 9, 0},  // and another takes its place
	{0, 100, 0, 4, 0, 3, 1, 50, 0},                             // a descriptor that is rewritten
	{0, 100, 0, 5, 0, 0, 1, 50, 0},                             // the bus has changed
	{0, 100, 0, 5, 1, 0, 1, 50, 0, 5, 2, 0, 1, 1, 0},           // and refuses
	{0, 100, 0, 0, 200, 0, 1, 50, 1, 1, 50, 0},                 // immediate data
	{0, 255, 0, 6, 90, 0, 6, 90, 0, 6, 0, 0, 0, 5, 0, 1, 5, 0}, // in three frames
	{0, 255, 0, 6, 90, 0, 2, 0, 0, 6, 0, 0},                    // the region goes in the middle
	{0, 10, 0, 7, 30, 0, 1, 10, 0, 7, 30, 0},                   // sends
	{0, 10, 0, 7, 30, 0, 8, 0, 0},                              // a disconnect
	{0, 10, 0, 8, 1, 0, 1, 10, 0},
	{7, 30, 0, 7, 0, 0, 7, 255, 0, 7, 30, 0x40, 7, 20, 0x20, 7, 32, 0x60, 7, 9, 0, 7, 9, 0, 7, 9, 0, 7, 9, 0}, // sends without and with credit
	{7, 30, 0x80, 7, 30, 0x10, 7, 30, 0}, {7, 30, 0x11, 7, 30, 0}, {7, 30, 0x12, 7, 30, 0}, {7, 30, 0x18, 7, 30, 0}, {7, 30, 0x1f, 7, 30, 0},
	{2, 0, 0, 7, 30, 0}, {2, 1, 0, 7, 30, 0}, {2, 0, 0, 3, 0, 0, 7, 30, 0}, {5, 1, 0, 7, 30, 0}, {5, 2, 0, 7, 60, 0, 7, 20, 0x20}, {3, 1, 0, 7, 30, 0},
	{9, 30, 0, 9, 20, 0}, {9, 30, 15}, {9, 30, 0x83, 9, 0, 2}, {9, 30, 0x18}, {9, 30, 0x9f, 7, 30, 0}, {2, 0, 0, 9, 30, 3}, {9, 255, 1, 1, 50, 0}, // runs of them
	{0, 100, 0, 9, 30, 10, 1, 50, 19}, {0, 100, 0, 9, 30, 10, 3, 0, 0, 1, 50, 19}, {0, 100, 0, 9, 30, 10, 2, 0, 0, 1, 50, 19}, // credit for those that wait
	{0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0}, // nothing in it
	{0, 100, 0, 1, 50, 2}, {0, 100, 0, 1, 50, 3}, {0, 100, 0, 1, 50, 4}, {0, 100, 0, 1, 50, 5}, {0, 100, 0, 1, 50, 6},
	{0, 100, 0, 1, 50, 7}, {0, 100, 0, 1, 50, 8}, {0, 100, 0, 1, 50, 9}, {0, 100, 0, 1, 50, 10}, {0, 100, 0, 1, 50, 11},
	{0, 100, 0, 1, 50, 12}, {0, 100, 0, 1, 50, 13}, {0, 100, 0, 1, 50, 14}, {0, 100, 0, 1, 50, 15}, {0, 100, 0, 1, 50, 16},
	{0, 100, 0, 0, 100, 0, 1, 50, 0, 1, 50, 3, 1, 50, 0},
}

// TestRefusedFrameEndsConnection: a data frame of the connection that cannot be taken ends
// it, whether it would go through the lane or not; others do not touch it.
func TestRefusedFrameEndsConnection(t *testing.T) {
	for _, kind := range []victimKind{laneVictim, slotsVictim, generalVictim} {
		for how := range byte(24) {
			x := newVictim(t, kind)
			x.play([3]byte{0, 100, 0})
			x.play([3]byte{1, 50, how})
			state, st := x.p.state(), x.ds[0].Status()
			switch how {
			case 0, 1, 18, 19, 20, 21: // nothing is wrong
				if state != datasheet.StateConnected || !st.Done() || st.Failed() {
					t.Errorf("%d, frame %d: %v, %v", kind, how, state, st)
				}
			case 3, 4, 5, 6, 8, 10, 13, 14, 15, 16, 17, 23:
				if state != datasheet.StateError || st&datasheet.StatusFlushed == 0 || len(x.w.b.events) != 1 {
					t.Errorf("%d, frame %d: %v, %v, %v", kind, how, state, st, x.w.b.events)
				}
			default:
				if state != datasheet.StateConnected || st.Done() {
					t.Errorf("%d, frame %d: %v, %v", kind, how, state, st)
				}
			}
		}
	}
}

// TestStrayFramesEndNothing: a frame that is no frame of ours says nothing about the
// connection that the one before it was of.
func TestStrayFramesEndNothing(t *testing.T) {
	for _, stray := range [][]byte{alignedBytes(0), alignedBytes(10), alignedBytes(60), append(alignedBytes(60), 1, 2, 3), alignedBytes(100), alignedBytes(1500)} {
		for _, sort := range [][2]byte{{8, 6}, {0, 0}, datasheet.EtherType} {
			x := newVictim(t, laneVictim)
			x.play([3]byte{0, 100, 0})
			x.play([3]byte{1, 50, 0})
			frame := alignedBytes(len(stray))
			copy(frame[min(len(frame), 12):], sort[:])
			*x.w.b.port.in = append(*x.w.b.port.in, frame)
			x.w.settleOnly(x.w.b)
			should.Be(t, x.p.state(), datasheet.StateConnected, "%d bytes of type %x", len(stray), sort)
		}
	}
}

// victim is a NIC with one connection, whose peer's frames and whose host's deeds the
// test makes up.
type victim struct {
	// strayed: a frame was sent that may be dropped. A short one cannot say that its message is not the next.
	strayed  bool
	w        *world
	p        *vi
	data     uint32 // handle of the region that data is in
	ds       []*descriptors.Descriptor
	template datasheet.Header
	psn      uint32 // of the next frame
	message  uint32
	part     uint32 // bytes of the message that have been sent in parts
	refuse   bool
	dropped  uint64
	sent     bytes.Buffer // data frames of the NIC
	numbered uint32       // messages in sent
	shorts   *slotted     // the NIC's end, if it has slots
}

type victimKind int

const (
	laneVictim victimKind = iota
	slotsVictim
	generalVictim
	windowVictim
)

func newVictim(t testing.TB, kind victimKind) *victim {
	options := []option{smallMemory}
	if kind != windowVictim {
		options = append(options, exactly(nil))
	}
	if kind == slotsVictim {
		options = append(options, withSlots)
	}
	w, v, p := pair(t, nil, options...)
	x := &victim{w: w, p: p}
	x.register(0)
	if kind == slotsVictim {
		w.a.slots.whole = true // for the template
	}
	if kind == generalVictim {
		w.b.e.Exclusive(func() { w.b.e.SetProcessor(passAll(t), engine.HookFilterReceive.Set(), 0) })
	}
	w.a.port.spoil = func(frame []byte) [][]byte {
		if h := datasheet.HeaderAt(frame); h.Type == datasheet.FrameData {
			x.template = *h
		}
		return [][]byte{frame}
	}
	mustArrive(t, v, p, 1, 1)
	w.settle()
	x.psn, x.message = x.template.PSN+1, 1
	if kind == slotsVictim {
		x.shorts = w.b.slots
	}
	for range 8 {
		r, _ := v.descriptor(4096)
		v.postRecv(r)
	}
	w.settle()
	w.b.calls = kind == laneVictim || kind == slotsVictim
	w.b.port.spoil = func(frame []byte) [][]byte {
		if h := datasheet.HeaderAt(frame); h.Type == datasheet.FrameData {
			x.note(h, frame[datasheet.HeaderSize:])
		}
		return [][]byte{frame}
	}
	if x.shorts != nil {
		x.shorts.seen = func(f shortFrame, payload []byte) {
			h := &datasheet.Header{Flags: datasheet.FrameFirst | datasheet.FrameLast, Message: x.numbered,
				Extent: uint32(len(payload)), Length: uint16(len(payload)), Credit: uint32(f.header >> 48)}
			if f.beside&datasheet.ShortImmediate != 0 {
				h.Flags, h.Immediate = h.Flags|datasheet.FrameImmediate, f.beside.Immediate()
			}
			x.note(h, payload)
		}
	}
	w.b.refuse = func(iova uint64, _ bool) bool { return x.refuse && iova >= busBase+uint64(len(w.b.mem))/2 }
	w.b.brk = uint64(len(w.b.mem)) / 2
	x.dropped = x.drops()
	return x
}

// note keeps what a data frame of the NIC says.
func (x *victim) note(h *datasheet.Header, payload []byte) {
	if h.Flags&datasheet.FrameLast != 0 {
		x.numbered++
	}
	if h.Flags&datasheet.FrameImmediate == 0 {
		h.Immediate = 0 // a whole header has some there, which means nothing
	}
	fmt.Fprintln(&x.sent, h.Flags&^datasheet.FrameAckRequest, h.Message, h.Offset, h.Extent, h.Length, h.Immediate, uint16(h.Credit),
		datasheet.FrameChecksumOf(append(make([]byte, datasheet.HeaderSize), payload...)))
}

func (x *victim) drops() uint64 {
	e := x.w.b.e
	return e.Counter(datasheet.CounterFramesDropped) + e.Counter(datasheet.CounterFramesDuplicate)
}

// refused is how many frames were not taken.
func (x *victim) refused() uint64 { return x.drops() - x.dropped }

// play does one thing and lets the NIC work.
func (x *victim) play(op [3]byte) {
	n := x.w.b
	size := int(op[1])
	switch op[0] % 10 {
	case 0:
		d, buf := x.descriptor(size, op[2])
		clear(buf)
		x.p.postRecv(d)
	case 1:
		x.send(uint32(size), uint32(size), op[2])
		x.message++
	case 2:
		h := x.data
		if op[1]&1 != 0 {
			h = x.p.handle
		}
		start(n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
	case 3:
		if op[1]&1 != 0 {
			x.register(datasheet.AccessReadOnly)
		} else {
			x.register(0)
		}
	case 4:
		if len(x.ds) == 0 {
			return
		}
		d := x.ds[size%len(x.ds)]
		if s := d.Segments(); len(s) > 0 {
			switch op[2] % 4 {
			case 0:
				s[0].Address++
			case 1:
				s[0].Handle++
			case 2:
				s[0].Length--
			default:
				d.Control().SegCount++
			}
		}
	case 5:
		n.e.Exclusive(func() { n.gen++; x.refuse = op[1]&1 != 0; n.pieces = uint64(op[1]) & 2 * 16 })
	case 6:
		// The parts of a message of 200 bytes.
		length := min(max(uint32(size), 1), 200-x.part)
		if size == 0 {
			length = 200 - x.part
		}
		x.send(length, 200, op[2])
		if x.part += length; x.part == 200 {
			x.part = 0
			x.message++
		}
	case 7:
		d, buf := x.descriptor(size, op[2])
		copy(buf, pattern(size, uint64(op[2])))
		if op[2]&0x40 != 0 {
			d.SetImmediate(uint32(op[2]))
		}
		if op[2]&0x20 != 0 && size <= len(d.Inline()) {
			d.Prepare()
			copy(d.Inline(), pattern(size, uint64(op[2])))
			_ = d.SetInline(size)
		}
		if op[2]&0x10 != 0 {
			d.Control().Control ^= 1 << (op[2] & 0xf)
		}
		x.p.postSend(d)
	case 9: // a run of sends by one doorbell, of which one is in two segments
		var run []*descriptors.Descriptor
		for i := range 2 + op[2]%16 {
			d, buf := x.descriptor(size, op[2]&0x80*(i&1))
			copy(buf, pattern(size, uint64(i)))
			run = append(run, d)
		}
		if op[2]&0x10 != 0 {
			run[len(run)/2].Control().Control ^= 1 << (op[2] & 0xf)
		}
		x.p.postSend(run...)
	case 8:
		if op[1]&1 != 0 {
			start(n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: x.p.id})
			break
		}
		h := x.template
		h.Type, h.Flags, h.Length, h.Message, h.Extent, h.Immediate = datasheet.FrameDisconnect, 0, 0, uint32(op[2]), 0, uint32(op[1])
		x.arrive(&h, nil)
	}
	x.w.settleOnly(n)
}

// register registers the half of the memory that data is in.
func (x *victim) register(access datasheet.Access) {
	n, half := x.w.b, uint64(len(x.w.b.mem))/2
	r := do(n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: hostBase + half, Length: half, IOVA: busBase + half, Access: access})
	x.data = datasheet.Reply[datasheet.RegionReply](r).Handle
}

// descriptor makes one over a buffer in the data's region.
func (x *victim) descriptor(size int, how byte) (*descriptors.Descriptor, []byte) {
	n := x.w.b
	mem, address, _ := n.alloc(descriptors.DescriptorBytes(2))
	d := must.Get(descriptors.NewDescriptor(mem, address, x.p.handle))(n.w.t)
	buf, at, _ := n.alloc(size)
	first := size
	if how&0x80 != 0 {
		first = size / 2
	}
	for _, s := range [][2]int{{0, first}, {first, size - first}} {
		if s[1] == 0 && s[0] != 0 {
			continue
		}
		must.OK(n.w.t, d.AddData(at+uint64(s[0]), x.data, uint32(s[1])))
	}
	x.ds = append(x.ds, d)
	return d, buf
}

// send has a data frame arrive, of which how says what is wrong.
func (x *victim) send(length, extent uint32, how byte) {
	h := x.template
	h.Flags &^= datasheet.FrameFirst | datasheet.FrameLast | datasheet.FrameAckRequest
	h.PSN, h.Message, h.Offset, h.Length, h.Extent = x.psn, x.message, 0, uint16(length), extent
	if extent != length {
		h.Offset = x.part
	}
	if h.Offset == 0 {
		h.Flags |= datasheet.FrameFirst
	}
	if h.Offset+length == extent {
		h.Flags |= datasheet.FrameLast
	}
	payload := pattern(int(length), uint64(x.psn-x.template.PSN))
	x.psn++
	switch how % 32 {
	case 1:
		h.Flags, h.Immediate = h.Flags|datasheet.FrameImmediate, 0x1234
	case 2:
		h.Key++
	case 3:
		h.PSN--
	case 4:
		h.PSN++
	case 5:
		h.Message++
	case 6:
		h.Offset++
	case 7:
		h.Extent++
	case 8:
		h.Length++
	case 9:
		h.Source[5]++
	case 10:
		h.Destination[5]++
	case 11:
		h.SourceEndpoint++
	case 12:
		h.DestinationEndpoint++
	case 13:
		h.Ack += 100
	case 14:
		h.Flags |= datasheet.FrameFlagsReserved
	case 15:
		h.Flags |= datasheet.FrameChecksum
	case 16:
		h.Version++
	case 17:
		h.Flags |= datasheet.FrameReference
	case 18:
		payload = append(payload, 1, 2, 3)
	case 19:
		h.Credit += 1 << 30
	case 20:
		h.Ack -= 3
	case 21:
		h.Flags ^= datasheet.FrameFirst | datasheet.FrameLast
	case 22:
		h.Type = datasheet.FrameProbe
	case 23:
		h.Extent = datasheet.MaxTransfer + 1
	}
	switch how % 32 {
	case 0, 1, 2, 3, 4, 12, 13: // a short frame can say so
		if x.shorts != nil && !x.strayed && length == extent && length != 0 {
			beside := datasheet.ShortBeside(uint16(h.Key))
			if h.Flags&datasheet.FrameImmediate != 0 {
				beside = beside.WithImmediate(h.Immediate)
			}
			x.shorts.arrive(shortFrame{packed(h.DestinationEndpoint, h.PSN, h.Ack, h.Credit), beside}, payload)
			x.strayed = how%32 > 1
			return
		}
	}
	x.strayed = x.strayed || how%32 > 1
	x.arrive(&h, payload)
}

func (x *victim) arrive(h *datasheet.Header, payload []byte) {
	frame := alignedBytes(datasheet.HeaderSize + len(payload))
	*datasheet.HeaderAt(frame) = *h
	copy(frame[datasheet.HeaderSize:], payload)
	in := x.w.b.port.in
	*in = append(*in, frame)
}

// seen is what the host sees.
func (x *victim) seen() string {
	n, b := x.w.b, &bytes.Buffer{}
	fmt.Fprintln(b, x.p.state(), n.events)
	b.Write(x.sent.Bytes())
	for i, d := range x.ds {
		c := *d.Control()
		fmt.Fprintln(b, i, d.Status(), c.Length, c.Immediate)
	}
	half := n.mem[len(n.mem)/2:]
	if i := slices.IndexFunc(half, func(c byte) bool { return c != 0 }); i >= 0 {
		fmt.Fprintf(b, "%x", datasheet.FrameChecksumOf(append(make([]byte, datasheet.HeaderSize), half...)))
	}
	return b.String()
}

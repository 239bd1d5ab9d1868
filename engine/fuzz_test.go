package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// smallMemory makes a world cheap enough to build for every input.
func smallMemory(c *engine.Config, p *port) {
	c.Memory.(*node).mem = alignedBytes(256 << 10)
	c.Limits = engine.DefaultLimits()
	c.Limits.Endpoints, c.Limits.CQs = 16, 16
}

// FuzzFrames throws frames at a connected NIC: garbage, and frames that are
// right but for what the fuzzer changes. Nothing may break but the connection.
func FuzzFrames(f *testing.F) {
	f.Add(uint8(0), uint32(0), uint32(0), uint32(0), []byte{})
	f.Add(uint8(1), uint32(0), uint32(0), uint32(100), []byte("payload"))
	f.Add(uint8(1), uint32(63), uint32(1), uint32(5), []byte("hello"))
	f.Add(uint8(2), uint32(1), uint32(0xffffffff), uint32(0), []byte{})
	f.Add(uint8(2), uint32(0), uint32(0x80000000), uint32(0x3ffffff), []byte{})
	f.Add(uint8(4), uint32(0), uint32(0), uint32(0), make([]byte, datasheet.ConnectBodySize))
	f.Add(uint8(7), uint32(0), uint32(0), uint32(0), []byte{})
	f.Add(uint8(0x21), uint32(0), uint32(0), uint32(100), []byte("payload"))
	f.Add(uint8(0xa1), uint32(5), uint32(0), uint32(7)|1<<26, []byte("payload"))
	f.Fuzz(func(t *testing.T, kind uint8, psn, number, extent uint32, payload []byte) {
		w, v, p := pair(t, func(b *datasheet.CreateEndpointBody) {
			if kind&0x80 != 0 {
				b.Reliability = datasheet.Unreliable
			}
		}, smallMemory, inParts(func(p *parts) {
			if kind&0x20 != 0 { // frames arrive bit by bit
				p.pace = func(have, size int) int { return have + 1 + int(psn%97) }
			}
		}))
		r, in := p.descriptor(64)
		guard, _, _ := p.n.alloc(64)
		p.postRecv(r)
		w.settle()
		// A frame of the connection shows its key.
		var key uint32
		w.a.port.spoil = func(b []byte) [][]byte { key = datasheet.HeaderAt(b).Key; return nil }
		d, _ := v.descriptor(1)
		v.postSend(d)
		w.settle()
		w.a.port.spoil = nil
		if len(payload) > 1900 {
			payload = payload[:1900]
		}
		frame := alignedBytes(datasheet.HeaderSize + len(payload))
		copy(frame[datasheet.HeaderSize:], payload)
		h := datasheet.HeaderAt(frame)
		*h = datasheet.Header{Destination: w.b.e.MAC, Source: w.a.e.MAC, EtherType: datasheet.EtherType,
			Version: datasheet.WireVersion, Type: datasheet.FrameType(kind & 0x0f), Flags: datasheet.FrameFlags(extent >> 26),
			Length: uint16(len(payload)), DestinationEndpoint: p.id, SourceEndpoint: v.id, Key: key,
			PSN: key + psn, Ack: psn, Credit: number, Message: number, Extent: extent & 0x3ffffff, Offset: extent & 0xff}
		if kind&0x40 != 0 {
			copy(frame, payload) // not even a header
		}
		*w.b.port.in = append(*w.b.port.in, frame)
		w.settle()
		for i, b := range guard {
			if b != 0 {
				t.Fatalf("byte %d behind the buffer was written", i)
			}
		}
		if r.Status().Done() && int(r.Length()) > len(in[0]) {
			t.Fatalf("%d bytes in a buffer of %d", r.Length(), len(in[0]))
		}
		// The NIC serves others whatever came.
		x, y := w.a.newVI(v.handle, nil), w.b.newVI(p.handle, nil)
		connect(x, y)
		if sent, received, _ := message(x, y, []byte("alive")); sent.Failed() || received.Failed() {
			t.Fatalf("%v, %v", sent, received)
		}
	})
}

// FuzzDescriptors posts whatever the fuzzer writes where a descriptor should
// be, as a send and as a receive.
func FuzzDescriptors(f *testing.F) {
	f.Add(make([]byte, 64), uint32(0), false)
	good := alignedBytes(64)
	*datasheet.ControlAt(good) = datasheet.ControlSegment{SegCount: 1, Length: 5}
	*datasheet.DataSegmentAt(good[32:]) = datasheet.DataSegment{Address: hostBase + 100, Handle: 1 << 20, Length: 5}
	f.Add(good, uint32(0), false)
	f.Add(good, uint32(0), true)
	f.Add(good[:40], uint32(32), true)
	f.Fuzz(func(t *testing.T, image []byte, skew uint32, receive bool) {
		w, v, p := pair(t, unreliable, smallMemory)
		mem, address, _ := v.n.alloc(8192)
		copy(mem, image)
		datasheet.ControlAt(mem).StoreStatus(0)
		token := datasheet.Token{Address: address + uint64(skew), Handle: v.handle}
		if receive {
			v.recv.tokens[0] = token
			v.recv.producer++
			w.a.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellRecv, v.recv.producer)
			d, _ := p.descriptor(5)
			p.postSend(d)
		} else {
			v.send.tokens[0] = token
			v.send.producer++
			w.a.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellSend, v.send.producer)
		}
		w.settle()
		q := datasheet.Reply[datasheet.EndpointReply](do(v.n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: v.id}))
		if q.SendCompleted != v.send.producer || q.RecvCompleted != v.recv.producer {
			t.Fatalf("a descriptor is stuck: %+v", *q)
		}
		x, y := w.a.newVI(v.handle, nil), w.b.newVI(p.handle, nil)
		connect(x, y)
		if sent, received, _ := message(x, y, []byte("alive")); sent.Failed() || received.Failed() {
			t.Fatalf("%v, %v", sent, received)
		}
	})
}

// FuzzCommands has admin commands of any content carried out.
func FuzzCommands(f *testing.F) {
	for op := range uint16(datasheet.OpResizeCQ) + 2 {
		f.Add(op, []byte{1, 0, 0, 0, 1, 0, 0, 0, 1})
		f.Add(op, []byte{2, 0, 0, 0, 1, 0, 0, 0, 2}) // a ring
	}
	ring := alignedBytes(datasheet.AdminEntrySize)
	*datasheet.Body[datasheet.CreateEndpointBody](datasheet.CommandAt(ring)) = ringBody(nil)
	f.Add(uint16(datasheet.OpCreateEndpoint), ring[8:56])
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		w := newRingWorld(t, smallMemory)
		v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
		connect(v, p)
		w.a.newRing(v.handle, nil)
		mem := alignedBytes(datasheet.AdminEntrySize)
		copy(mem[8:], body)
		c := datasheet.CommandAt(mem)
		c.Opcode, c.ID = datasheet.Opcode(op), 60_000
		// The reply may come later or, for a wait of weeks, not at all; the NIC
		// must live on either way.
		v.n.e.Execute(c)
		w.settle()
		x, y := w.a.newVI(v.n.memory(0, 0), nil), w.b.newVI(p.n.memory(0, 0), nil)
		connect(x, y)
		if sent, received, _ := message(x, y, []byte("alive")); sent.Failed() || received.Failed() {
			t.Fatalf("%v, %v", sent, received)
		}
	})
}

// FuzzRawFrames has any frame arrive at endpoints for raw ones, while a program
// answers anything about it.
func FuzzRawFrames(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 1, 2, 3}, uint8(0), uint32(0), uint32(0))
	f.Add([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 1, 2, 3}, uint8(1), uint32(2), uint32(0))
	f.Add([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0}, uint8(2), uint32(2), uint32(1))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 1, 1}, uint8(3), engine.DefaultQueue, engine.DefaultQueue)
	f.Add(make([]byte, 300), uint8(7), uint32(1), uint32(255))
	f.Fuzz(func(t *testing.T, frame []byte, action uint8, to, entry uint32) {
		w, v, p := frames(t, datasheet.EndpointPromiscuous, smallMemory)
		q := w.b.newFrames(p.handle, 0)
		table := q.table(entry%datasheet.PayloadEntries, 64)
		w.b.use(&scripted{
			filter: func(_ engine.Direction, b []byte, number uint32) (engine.Action, uint32, bool) {
				if action&4 != 0 {
					b[len(b)-1] ^= 1
				}
				return engine.Action(action & 3), to, action&8 == 0
			},
			demux: func(b []byte, number uint32) (uint32, uint32, bool) { return to, entry, action&16 == 0 },
		}, engine.HookFilterReceive, engine.HookDemultiplex)
		var ds []*descriptors.Descriptor
		for _, r := range []*vi{p, q} {
			d, _ := r.receiver(128)
			ds = append(ds, d)
		}
		guard, _, _ := p.n.alloc(64)
		b := alignedBytes(len(frame))
		copy(b, frame)
		*w.b.port.in = append(*w.b.port.in, b)
		w.settle()
		done := 0
		for _, d := range ds {
			if d.Status().Done() {
				done++
			}
			if int(d.Length()) > 128 {
				t.Fatalf("%d bytes in a buffer of 128", d.Length())
			}
		}
		if done > 1 {
			t.Fatalf("one frame ended %d receives", done)
		}
		for i, b := range append(guard, table[min(len(frame), 64):]...) {
			if b != 0 {
				t.Fatalf("byte %d behind a buffer was written", i)
			}
		}
		w.b.use(&scripted{})
		d, in := p.receiver(128)
		if !ds[0].Status().Done() {
			d, in = ds[0], nil
		}
		good := rawFrame(station(w.b), 100, 1)
		if sendFrame(v, good); !d.Status().Done() || d.Status().Failed() || in != nil && string(in[:d.Length()]) != string(good) {
			t.Fatalf("the next frame: %v", d.Status())
		}
	})
}

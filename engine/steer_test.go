package engine_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// TestRawFramesSteered: programs say which endpoint takes a raw frame; one that
// cannot is the built-in rule's.
func TestRawFramesSteered(t *testing.T) {
	for _, hook := range []engine.Hook{engine.HookFilterReceive, engine.HookDemultiplex} {
		w, v, p := frames(t, 0)
		q := w.b.newFrames(p.handle, 0)
		gone := w.b.newFrames(p.handle, 0)
		do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: gone.id})
		notRaw := w.b.newVI(p.handle, nil)
		var to uint32
		asked := 0
		s := w.b.use(&scripted{
			filter: func(_ engine.Direction, frame []byte, number uint32) (engine.Action, uint32, bool) {
				if asked++; number != p.id || len(frame) != 200 {
					t.Errorf("asked about %d bytes for endpoint %d", len(frame), number)
				}
				return engine.FrameRedirect, to, true
			},
			demux: func(frame []byte, number uint32) (uint32, uint32, bool) {
				if asked++; number != p.id || len(frame) != 200 {
					t.Errorf("asked about %d bytes for endpoint %d", len(frame), number)
				}
				return to, engine.DefaultQueue, true
			}}, hook)
		wrong := 0
		for _, c := range []struct {
			to    uint32
			taker *vi
			bad   bool
		}{{q.id, q, false}, {p.id, p, false}, {gone.id, p, true}, {notRaw.id, p, true}, {0, p, true}, {1 << 30, p, true}, {q.id, q, false}} {
			to = c.to
			frame := rawFrame(station(w.b), 200, uint64(c.to))
			d, in := c.taker.receiver(200)
			sendFrame(v, frame)
			mustTake(t, d, in, frame)
			if c.bad {
				wrong++
			}
			should.Be(t, s.misled[hook], wrong, "endpoint %d: misled times", c.to)
		}
		should.Be(t, asked, 7, "asked times")
	}
}

// TestRawFramesFiltered: programs drop and change raw frames, but cannot make one of
// ours of them; one that stops has had no say.
func TestRawFramesFiltered(t *testing.T) {
	ours := func(frame []byte) { copy(frame[12:], datasheet.EtherType[:]) }
	other := func(frame []byte) { frame[20] ^= 0xff }
	for _, c := range []struct {
		name    string
		change  func(frame []byte)
		action  engine.Action
		ok      bool
		arrives bool
		changed bool
	}{
		{"pass", nil, engine.FramePass, true, true, false},
		{"drop", nil, engine.FrameDrop, true, false, false},
		{"change", other, engine.FramePass, true, true, true},
		{"forge", ours, engine.FramePass, true, false, true},
		{"stop", other, engine.FramePass, false, true, false},
	} {
		for _, hook := range []engine.Hook{engine.HookFilterTransmit, engine.HookFilterReceive} {
			w, v, p := frames(t, 0)
			n, id := w.a, v.id
			if hook == engine.HookFilterReceive {
				n, id = w.b, p.id
			}
			n.use(&scripted{filter: func(_ engine.Direction, frame []byte, number uint32) (engine.Action, uint32, bool) {
				should.Be(t, number, id, "%s: endpoint", c.name)
				if c.change != nil {
					c.change(frame)
				}
				return c.action, number, c.ok
			}}, hook)
			d, in := p.receiver(200)
			frame := rawFrame(station(w.b), 200, 1)
			if st := sendFrame(v, frame); st.Failed() {
				t.Errorf("%s: sent with %v", c.name, st)
			}
			if d.Status().Done() != c.arrives || c.arrives == (n.e.Counter(datasheet.CounterFramesDropped) == 1) {
				t.Errorf("%s, hook %d: %v, %d dropped", c.name, hook, d.Status(), n.e.Counter(datasheet.CounterFramesDropped))
			}
			if c.arrives {
				if c.changed {
					c.change(frame)
				}
				mustTake(t, d, in, frame)
			}
		}
	}
}

// table sets an entry of v's payload table to fresh memory.
func (v *vi) table(entry uint32, size int) []byte {
	v.n.w.t.Helper()
	mem, address, _ := v.n.alloc(size)
	do(v.n, datasheet.OpSetPayload, datasheet.SetPayloadBody{
		Address: address, Endpoint: v.id, Entry: entry, Handle: v.handle, Length: uint32(size)})
	return mem
}

// byImmediate names the entry that a message's immediate data says, as Trapeze's
// incoming payload table does.
func byImmediate(frame []byte, queue uint32) (uint32, uint32, bool) {
	if h := datasheet.HeaderAt(frame); h.Type == datasheet.FrameData && h.Flags&datasheet.FrameImmediate != 0 {
		return queue, h.Immediate, true
	}
	return queue, engine.DefaultQueue, true
}

// TestPayloadTable: messages go to the entries that the program names, whatever
// order they come in; the receives say how long they were, and stay untouched.
func TestPayloadTable(t *testing.T) {
	for _, reliability := range []datasheet.Reliability{datasheet.Unreliable, datasheet.ReliableDelivery} {
		for name, o := range map[string][]option{
			"plain":  {policies(pipeline.StoreAndForward{}, pipeline.StoreAndForward{})},
			"pieces": {bursts(100), policies(pipeline.Eager{MinPulse: 7}, pipeline.Eager{MinPulse: 7})},
		} {
			t.Run(reliability.String()+", "+name, func(t *testing.T) {
				w, v, p := pair(t, func(b *datasheet.CreateEndpointBody) { b.Reliability = reliability }, o...)
				s := w.b.use(&scripted{demux: byImmediate}, engine.HookDemultiplex)
				const size = 6000 // several frames
				buffers := map[uint32][]byte{0: p.table(0, size), 7: p.table(7, size+1), 255: p.table(255, size)}
				for i, entry := range []uint32{255, 0, 7, 7, 3} {
					d, in := p.receiver(size)
					data := pattern(size, uint64(i))
					m, out := v.descriptor(size)
					copy(out[0], data)
					m.SetImmediate(entry)
					v.postSend(m)
					w.run("the end of a message", func() bool { return m.Status().Done() && d.Status().Done() })
					if st := d.Status(); st.Failed() || d.Length() != size {
						t.Fatalf("entry %d: %v, %d bytes", entry, st, d.Length())
					}
					if immediate, ok := d.Immediate(); !ok || immediate != entry {
						t.Errorf("immediate data %d, want %d", immediate, entry)
					}
					if buf := buffers[entry]; buf != nil {
						mustEqual(t, buf[:size], data)
						mustEqual(t, in, make([]byte, size))
					} else {
						mustEqual(t, in, data) // there is no such entry
					}
				}
				should.Be(t, s.misled[engine.HookDemultiplex], 4, "misled times") // once for each frame
				mustArrive(t, v, p, size, 9)                                      // without an entry
			})
		}
	}
}

// TestPayloadTableOfFrames: raw frames go to entries of the endpoint that takes
// them.
func TestPayloadTableOfFrames(t *testing.T) {
	w, v, p := frames(t, 0)
	q := w.b.newFrames(p.handle, 0)
	buf := q.table(1, 100)
	w.b.use(&scripted{demux: func([]byte, uint32) (uint32, uint32, bool) { return q.id, 1, true }}, engine.HookDemultiplex)
	d, in := q.receiver(0)
	frame := rawFrame(station(w.b), 100, 1)
	sendFrame(v, frame)
	if st := d.Status(); st.Failed() || !st.Done() || d.Length() != 100 {
		t.Fatalf("%v, %d bytes", st, d.Length())
	}
	mustEqual(t, buf, frame)
	mustEqual(t, in, nil)
}

// TestPayloadTableReordered: frames of two messages come in any order.
func TestPayloadTableReordered(t *testing.T) {
	var held [][]byte
	w, v, p := pair(t, nil)
	w.a.port.spoil = func(f []byte) [][]byte {
		if !isData(f) {
			return [][]byte{f}
		}
		if held = append(held, f); len(held) < 4 {
			return nil
		}
		all := held
		held = nil
		slices.Reverse(all)
		return all
	}
	w.b.use(&scripted{demux: byImmediate}, engine.HookDemultiplex)
	const size = 3000 // two frames
	var sends, receives []*descriptors.Descriptor
	var buffers, want [][]byte
	for i := range uint32(2) {
		buffers = append(buffers, p.table(i, size))
		d, _ := p.receiver(size)
		m, out := v.descriptor(size)
		want = append(want, pattern(size, uint64(i)))
		copy(out[0], want[i])
		m.SetImmediate(i)
		sends, receives = append(sends, m), append(receives, d)
	}
	v.postSend(sends...)
	w.run("the end of both messages", func() bool { return receives[1].Status().Done() })
	for i := range buffers {
		mustEqual(t, buffers[i], want[i])
	}
}

// TestPayloadTableEntryFails: an entry that is too small, or whose memory is taken away once it has been used, fails as a
// receive's buffer would.
func TestPayloadTableEntryFails(t *testing.T) {
	const size = 100
	for name, c := range map[string]struct {
		change  func(*datasheet.CreateEndpointBody)
		options []option
		length  int
		want    datasheet.Status
	}{
		"too small":                  {unreliable, nil, size - 1, datasheet.StatusLengthError},
		"unreliable, deregistered":   {unreliable, nil, size, datasheet.StatusProtectionError},
		"exact wire, deregistered":   {nil, []option{exactly(nil)}, size, datasheet.StatusProtectionError},
		"acknowledged, deregistered": {nil, nil, size, datasheet.StatusProtectionError},
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := pair(t, c.change, c.options...)
			w.b.use(&scripted{demux: byImmediate}, engine.HookDemultiplex)
			entry := p.target(c.length, 0)
			do(w.b, datasheet.OpSetPayload, datasheet.SetPayloadBody{Address: entry.address, Endpoint: p.id, Handle: entry.handle, Length: uint32(c.length)})
			send := func() (sent, received datasheet.Status) {
				d, _ := p.receiver(size)
				m, out := v.descriptor(size)
				copy(out[0], pattern(size, 1))
				m.SetImmediate(0)
				v.postSend(m)
				w.run("the end of the message", func() bool { return d.Status().Done() && m.Status().Done() })
				return m.Status(), d.Status()
			}
			if c.length == size {
				if sent, received := send(); sent.Failed() || received.Failed() {
					t.Fatal(sent, received)
				}
				mustEqual(t, entry.mem, pattern(size, 1))
				clear(entry.mem)
				deregister(w.b, entry.handle)
			}
			sent, received := send()
			if received&c.want == 0 || (sent&datasheet.StatusRemoteDescriptor != 0) != (c.change == nil) {
				t.Errorf("%v, %v, want %v", sent, received, c.want)
			}
			mustEqual(t, entry.mem, make([]byte, c.length))
			if c.change != nil {
				mustArrive(t, v, p, size, 2)
			}
		})
	}
}

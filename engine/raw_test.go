package engine_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// station is the address of a world's node a or b.
func station(n *node) []byte { m := n.e.MAC(); return m[:] }

// rawFrame is a frame of n bytes from the node a with EtherType 0x0800.
func rawFrame(to []byte, n int, seed uint64) []byte {
	f := slices.Concat(to, []byte{2, 0, 0, 0, 0, 1}, []byte{8, 0}, pattern(max(n, 14)-14, seed))
	return f[:n]
}

// newFrames creates an endpoint for raw frames.
func (n *node) newFrames(handle uint32, options datasheet.EndpointOptions) *vi {
	n.w.t.Helper()
	return n.newVI(handle, func(b *datasheet.CreateEndpointBody) {
		b.Kind, b.Reliability, b.MaxTransfer, b.Options = datasheet.KindFrame, datasheet.Unreliable, 2048, options
	})
}

// frames is a world with an endpoint for raw frames at each end.
func frames(t testing.TB, options datasheet.EndpointOptions, o ...option) (w *world, v, p *vi) {
	t.Helper()
	w = newWorld(t, o...)
	return w, w.a.newFrames(w.a.memory(0, 0), options), w.b.newFrames(w.b.memory(0, 0), options)
}

// sendFrame sends one frame and returns the status of the send.
func sendFrame(v *vi, frame []byte) datasheet.Status {
	v.n.w.t.Helper()
	s, out := v.descriptor(len(frame))
	copy(out[0], frame)
	v.postSend(s)
	v.n.w.run("the end of a send", func() bool { return s.Status().Done() })
	v.n.w.settle()
	return s.Status()
}

// receiver posts a receive of some bytes.
func (v *vi) receiver(size int) (*descriptors.Descriptor, []byte) {
	d, in := v.descriptor(size)
	v.postRecv(d)
	return d, in[0]
}

// received is how many receives have completed.
func (v *vi) received() uint32 {
	r := do(v.n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: v.id})
	return datasheet.Reply[datasheet.EndpointReply](r).RecvCompleted
}

// mustTake checks that a receive has completed with a frame.
func mustTake(t *testing.T, d *descriptors.Descriptor, in, frame []byte) {
	t.Helper()
	if d.Status().Failed() || !d.Status().Done() {
		t.Fatalf("status %v", d.Status())
	}
	mustEqual(t, in[:d.Length()], frame)
}

// TestRawFrames: frames of all lengths cross as they are, filled up to the
// shortest frame of an Ethernet, whatever decides how their bytes move.
func TestRawFrames(t *testing.T) {
	for name, o := range map[string][]option{
		"plain":       {policies(pipeline.StoreAndForward{}, pipeline.StoreAndForward{})},
		"cut through": {bursts(100), policies(pipeline.Eager{MinPulse: 7}, pipeline.Eager{MinPulse: 7})},
		"in parts":    {inParts(nil), bursts(100), policies(pipeline.Eager{MinPulse: 7}, pipeline.Eager{MinPulse: 7})},
		"checksums":   {func(_ *engine.Config, p *port) { p.checksum = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := frames(t, 0, o...)
			total := uint64(0)
			for i, n := range []int{14, 15, 59, 60, 61, 64, 1000, 1514, 2047, 2048} {
				frame := rawFrame(station(w.b), n, uint64(i))
				d, in := p.receiver(2048)
				if st := sendFrame(v, frame); st.Failed() {
					t.Fatalf("%d bytes: sent with %v", n, st)
				}
				total += uint64(max(n, datasheet.MinFrame))
				mustTake(t, d, in, append(frame, make([]byte, max(0, datasheet.MinFrame-n))...))
			}
			for _, c := range []struct {
				n     *node
				which datasheet.Counter
				want  uint64
			}{
				{w.a, datasheet.CounterFramesSent, 10}, {w.a, datasheet.CounterBytesSent, total},
				{w.a, datasheet.CounterMessagesSent, 10}, {w.b, datasheet.CounterFramesReceived, 10},
				{w.b, datasheet.CounterBytesReceived, total}, {w.b, datasheet.CounterMessagesReceived, 10},
				{w.b, datasheet.CounterFramesDropped, 0},
			} {
				if got := c.n.e.Counter(c.which); got != c.want {
					t.Errorf("%v: %d, want %d", c.which, got, c.want)
				}
			}
		})
	}
}

// TestRawFramesGathered: a frame may come from several buffers and go to several.
func TestRawFramesGathered(t *testing.T) {
	w, v, p := frames(t, 0)
	frame := rawFrame(station(w.b), 100, 1)
	s, out := v.descriptor(3, 0, 57, 40)
	for rest := frame; len(out) > 0; out = out[1:] {
		rest = rest[copy(out[0], rest):]
	}
	d, in := p.descriptor(1, 99, 50)
	p.postRecv(d)
	v.postSend(s)
	w.run("the frame's arrival", func() bool { return d.Status().Done() })
	mustEqual(t, slices.Concat(in...)[:d.Length()], frame)
}

// TestRawFramesFor: who takes a frame depends on whom it is for, and on the age
// of the endpoints.
func TestRawFramesFor(t *testing.T) {
	broadcast, group, other := bytes.Repeat([]byte{255}, 6), []byte{1, 0, 0x5e, 0, 0, 1}, []byte{2, 9, 9, 9, 9, 9}
	w := newWorld(t)
	v := w.a.newFrames(w.a.memory(0, 0), 0)
	h := w.b.memory(0, 0)
	all := []*vi{w.b.newFrames(h, 0), w.b.newFrames(h, 0), w.b.newFrames(h, datasheet.EndpointPromiscuous)}
	arrives := func(to []byte, want int) {
		t.Helper()
		var before []uint32
		for _, p := range all {
			p.receiver(100)
			before = append(before, p.received())
		}
		dropped := w.b.e.Counter(datasheet.CounterFramesDropped)
		if st := sendFrame(v, rawFrame(to, 80, 1)); st.Failed() {
			t.Fatal(st)
		}
		for i, p := range all {
			if n := p.received() - before[i]; (n == 1) != (i == want) {
				t.Errorf("to %x: endpoint %d of %d took %d frames", to, i, len(all), n)
			}
		}
		if got := w.b.e.Counter(datasheet.CounterFramesDropped) - dropped; (got == 1) != (want < 0) {
			t.Errorf("to %x: %d frames dropped", to, got)
		}
	}
	arrives(station(w.b), 0)
	arrives(broadcast, 0)
	arrives(group, 0)
	arrives(other, 2)
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: all[0].id})
	all = all[1:]
	arrives(station(w.b), 0)
	arrives(other, 1)
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: all[1].id})
	all = all[:1]
	arrives(other, -1)
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: all[0].id})
	all = nil
	arrives(station(w.b), -1)
}

// TestRawFramesRefused: what may not be sent ends with a status, and the endpoint
// goes on.
func TestRawFramesRefused(t *testing.T) {
	for name, o := range map[string]option{
		"whole":     policies(pipeline.StoreAndForward{}, pipeline.StoreAndForward{}),
		"in pieces": policies(pipeline.Eager{MinPulse: 1}, pipeline.Eager{MinPulse: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := frames(t, 0, o, bursts(64))
			ours := rawFrame(station(w.b), 100, 1)
			copy(ours[12:], datasheet.EtherType[:])
			for _, c := range []struct {
				name  string
				frame []byte
				want  datasheet.Status
			}{
				{"empty", nil, datasheet.StatusLengthError},
				{"no EtherType", rawFrame(station(w.b), 13, 1), datasheet.StatusLengthError},
				{"too long", rawFrame(station(w.b), 2049, 1), datasheet.StatusLengthError},
				{"our EtherType", ours, datasheet.StatusFormatError},
			} {
				if st := sendFrame(v, c.frame); st&c.want == 0 {
					t.Errorf("%s: %v, want %v", c.name, st, c.want)
				}
			}
			s, out := v.descriptor(100)
			copy(out[0], rawFrame(station(w.b), 100, 1))
			s.SetImmediate(1)
			v.postSend(s)
			w.settle()
			if st := s.Status(); st&datasheet.StatusFormatError == 0 {
				t.Errorf("immediate data: %v", st)
			}
			if n := w.a.e.Counter(datasheet.CounterFramesSent); n != 0 {
				t.Errorf("%d frames left", n)
			}
			d, in := p.receiver(2048)
			good := rawFrame(station(w.b), 300, 2)
			if st := sendFrame(v, good); st.Failed() {
				t.Errorf("a good frame: %v", st)
			}
			mustTake(t, d, in, good)
		})
	}
}

// TestRawFramesWithoutRoom: frames without a receive are dropped and reported by a
// counter only; a receive that is too small fails.
func TestRawFramesWithoutRoom(t *testing.T) {
	w, v, p := frames(t, 0)
	for range 3 {
		sendFrame(v, rawFrame(station(w.b), 100, 1))
	}
	if n := w.b.e.Counter(datasheet.CounterReceiveQueueEmpty); n != 3 || len(w.b.events) != 0 {
		t.Errorf("%d frames without a receive, events %v", n, w.b.events)
	}
	small, in := p.receiver(99)
	sendFrame(v, rawFrame(station(w.b), 100, 1))
	if st := small.Status(); st&datasheet.StatusLengthError == 0 || small.Length() != 0 || !bytes.Equal(in, make([]byte, 99)) {
		t.Errorf("a small receive: %v, %d bytes", st, small.Length())
	}
	short := w.b.newVI(p.handle, func(b *datasheet.CreateEndpointBody) {
		b.Kind, b.Reliability, b.MaxTransfer = datasheet.KindFrame, datasheet.Unreliable, 80
	})
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: p.id})
	d, _ := short.receiver(100)
	sendFrame(v, rawFrame(station(w.b), 81, 1))
	if d.Status().Done() || w.b.e.Counter(datasheet.CounterFramesDropped) != 1 {
		t.Errorf("longer than MaxTransfer: %v", d.Status())
	}
	sendFrame(v, rawFrame(station(w.b), 80, 1))
	if !d.Status().Done() || d.Status().Failed() {
		t.Errorf("of MaxTransfer bytes: %v", d.Status())
	}
}

// TestRawFrameHostile: what comes from the wire may have any length.
func TestRawFrameHostile(t *testing.T) {
	w, _, p := frames(t, datasheet.EndpointPromiscuous)
	d, in := p.receiver(1 << 16)
	for _, n := range []int{0, 1, 13, 2049, 1 << 16, 70_000} {
		f := alignedBytes(n)
		copy(f, rawFrame(station(w.b), min(n, 2048), 1))
		*w.b.port.in = append(*w.b.port.in, f)
	}
	w.settle()
	if d.Status() != 0 || w.b.e.Counter(datasheet.CounterFramesDropped) != 6 {
		t.Errorf("status %v, %d frames dropped", d.Status(), w.b.e.Counter(datasheet.CounterFramesDropped))
	}
	*w.b.port.in = append(*w.b.port.in, append(alignedBytes(0), rawFrame(station(w.b), 14, 1)...))
	w.settle()
	mustTake(t, d, in, rawFrame(station(w.b), 14, 1))
}

// TestRawEndpointCreated: what an endpoint for raw frames may be.
func TestRawEndpointCreated(t *testing.T) {
	w := newWorld(t)
	n := w.a
	_, _, ring := n.alloc(2 * datasheet.TokenSize << queueLog2)
	good := datasheet.CreateEndpointBody{SendIOVA: ring, RecvIOVA: ring + datasheet.TokenSize<<queueLog2, MaxTransfer: 1514,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Kind: datasheet.KindFrame, Reliability: datasheet.Unreliable, SendLog2: queueLog2, RecvLog2: queueLog2}
	for _, c := range []struct {
		name   string
		change func(*datasheet.CreateEndpointBody)
		want   datasheet.Result
	}{
		{"good", func(*datasheet.CreateEndpointBody) {}, datasheet.ResultSuccess},
		{"shortest", func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = 14 }, datasheet.ResultSuccess},
		{"too short", func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = 13 }, datasheet.ResultInvalidMTU},
		{"longer than the wire", func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = 2049 }, datasheet.ResultInvalidMTU},
		{"reliable", func(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }, datasheet.ResultInvalidReliability},
		{"reserved option", func(b *datasheet.CreateEndpointBody) { b.Options = 2 }, datasheet.ResultInvalidParameter},
		{"VI with options", func(b *datasheet.CreateEndpointBody) { b.Kind, b.Options = datasheet.KindVI, 1 }, datasheet.ResultInvalidParameter},
	} {
		b := good
		c.change(&b)
		r := n.wait(start(n, datasheet.OpCreateEndpoint, b))
		if r.Result != c.want {
			t.Errorf("%s: %v, want %v", c.name, r.Result, c.want)
		}
	}
}

// TestRawEndpointEnds: an endpoint for raw frames does not connect, and its queues
// are flushed when it ends.
func TestRawEndpointEnds(t *testing.T) {
	w, v, p := frames(t, 0)
	for range 2 { // open, then idle
		r := w.a.wait(start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: v.id, TimeoutMS: 100,
			RemoteMAC: w.b.e.MAC(), Remote: disc("test")}))
		if r.Result != datasheet.ResultInvalidState {
			t.Errorf("connect request: %v", r.Result)
		}
		d, _ := v.receiver(100)
		do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
		if d.Status()&datasheet.StatusFlushed == 0 {
			t.Errorf("receive after disconnect: %v", d.Status())
		}
	}
	if st := sendFrame(v, rawFrame(station(w.b), 100, 1)); st&datasheet.StatusFlushed == 0 {
		t.Errorf("send after disconnect: %v", st)
	}
	if n := len(*w.a.port.out) + int(w.a.e.Counter(datasheet.CounterFramesSent)); n != 0 {
		t.Errorf("%d frames were sent", n)
	}
	do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id})
	if r := w.b.wait(start(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: p.id})); r.Result != datasheet.ResultInvalidState {
		t.Errorf("destroyed while open: %v", r.Result)
	}
	w.b.e.Reset()
	*w.b.port.in = append(*w.b.port.in, append(alignedBytes(0), rawFrame(station(w.b), 60, 1)...))
	w.settle()
	if n := w.b.e.Counter(datasheet.CounterFramesDropped); n != 1 {
		t.Errorf("%d frames dropped after a reset", n)
	}
}

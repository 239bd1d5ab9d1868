package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// FuzzConnection has the peer of a connected VI send whatever it likes with the right
// key, for as long as it likes, while the VI's host posts, and then ends the
// connection. See connectionFuzz for what must hold, and stepOf for the script.
func FuzzConnection(f *testing.F) {
	// A message of one frame and one of two, at either level.
	plain := []byte{
		opPost, 0, 0, 0, 0, 0, 0,
		opPost, 0, 0, 0, 0, 0, 0,
		3, 0, 0, 40, 0, 40, 0,
		1, 0, 0, 90, 0, 50, 0,
		2, 0, 0, 90, 50, 40, 0,
	}
	for options := range uint8(16) {
		f.Add(options, plain)
	}
	f.Add(uint8(0), []byte{
		opSend, 0, 0, 0, 0, 0, 0,
		opAck, 0, 0, 0, 0, 1, 0, // credit
		opAck, 0, 0, 0, 1, 1, 0, // acknowledges
		opProbe, 0, 0, 0, 0, 0, 0,
		opTime, 0, 0, 0, 0, 0, 255,
		opDisconnect, 0, 0, 0, 0, 0, 0,
	})
	f.Fuzz(func(t *testing.T, options uint8, script []byte) {
		c := newConnectionFuzz(t, options)
		for n := 0; len(script) >= stepSize && n < maxSteps; n++ {
			c.do(stepOf(script))
			c.check()
			script = script[stepSize:]
		}
		c.end()
	})
}

const (
	stepSize = 7
	maxSteps = 300
	maxPosts = 48
	roomSize = 200 // bytes of a receive
	maxMoved = 240 // bytes of the largest message

	fuzzUnreliable = 1 // options
	fuzzParts      = 2
	fuzzWrap       = 4
	fuzzEmpty      = 8 // no receive is there at the beginning
)

// What a step does: the high half of its first byte. What is not named sends a data
// frame with the flags that the low half says.
const (
	opPost       = 0xf0
	opSend       = 0xe0
	opAck        = 0xd0
	opProbe      = 0xc0
	opTime       = 0xb0
	opDisconnect = 0xa0
	opStranger   = 0x90
)

// fuzzStep is a step of a script. PSN and message count from those that would be next,
// so that zeros make sense.
type fuzzStep struct {
	op                     uint8
	flags                  datasheet.FrameFlags
	psn, message           int8
	extent, offset, length uint32
	arg                    uint8
}

func stepOf(b []byte) fuzzStep {
	return fuzzStep{op: b[0] & 0xf0, flags: datasheet.FrameFlags(b[0] & 0xf), psn: int8(b[1]), message: int8(b[2]),
		extent: uint32(b[3]), offset: uint32(b[4]), length: uint32(b[5]), arg: b[6]}
}

// fuzzFrame is a data frame that was sent.
type fuzzFrame struct {
	index                           int
	message, extent, offset, length uint32
}

// at is the byte that it carries to a place of its message: never zero, which is what
// buffers hold before.
func (f *fuzzFrame) at(place uint32) byte { return byte(1 + (uint32(f.index)*37+place)%251) }

// fuzzReceive is a receive that was posted.
type fuzzReceive struct {
	d        *descriptors.Descriptor
	in       []byte
	returned []byte // what it held when it was the host's again
}

// connectionFuzz is a connection with an impostor. Whatever that sends,
//   - a message that is delivered holds at each place a byte that a frame of this
//     message carried there; messages come at most once and in order, on reliable
//     connections all of them;
//   - each descriptor completes once, in order, at the latest when the connection ends;
//   - a buffer that is the host's again is not written, nor is memory around it;
//   - the VI can be destroyed, and the NIC's other connections live.
type connectionFuzz struct {
	t          *testing.T
	x          *impostor
	unreliable bool
	other      [2]*vi // of another connection
	cq         *cq
	guards     [][]byte // behind the buffers

	psn, message uint32 // of the next data frame that keeps the rules
	frames       []fuzzFrame
	receives     []*fuzzReceive
	sends        int
	done         [2]uint32 // completions of sends and receives
	delivered    uint32    // messages; unreliable: number behind the last one
	breakOff     bool      // the frame that is arriving
}

func newConnectionFuzz(t *testing.T, options uint8) *connectionFuzz {
	c := &connectionFuzz{t: t, unreliable: options&fuzzUnreliable != 0}
	how := []option{smallMemory}
	if options&fuzzWrap != 0 {
		how = append(how, func(c *engine.Config, _ *port) { c.Rand = &wrappingKeys{next: 0xffff_ffff} })
	}
	if options&fuzzParts != 0 {
		how = append(how, eagerly, inParts(func(p *parts) {
			p.pace = func(have, _ int) int { return have + 90 }
			p.lie = func(int) (int, bool, bool) { return 0, c.breakOff, c.breakOff }
		}))
	}
	c.x = newImpostor(t, func(n *node, b *datasheet.CreateEndpointBody) {
		b.MaxTransfer = maxMoved
		if c.unreliable {
			b.Reliability = datasheet.Unreliable
		}
		if n == n.w.b {
			c.cq = n.newCQ(queueLog2+1, datasheet.NoVector)
			b.SendCQ, b.RecvCQ = c.cq.id, c.cq.id
		}
	}, how...)
	w := c.x.w
	c.other = [2]*vi{w.a.newVI(c.x.v.handle, nil), w.b.newVI(c.x.p.handle, nil)}
	connect(c.other[0], c.other[1])
	w.settle()
	w.a.port.spoil = func(b []byte) [][]byte { // the peer itself sends nothing
		if h := datasheet.HeaderAt(b); h.SourceEndpoint == c.x.v.id || h.DestinationEndpoint == c.x.p.id {
			return nil
		}
		return [][]byte{b}
	}
	if options&fuzzEmpty == 0 {
		c.post()
		c.post()
	}
	return c
}

func (c *connectionFuzz) post() {
	if len(c.receives) == maxPosts {
		return
	}
	d, in := c.x.p.descriptor(roomSize)
	guard, _, _ := c.x.p.n.alloc(64)
	c.guards = append(c.guards, guard)
	c.receives = append(c.receives, &fuzzReceive{d: d, in: in[0]})
	c.x.p.postRecv(d)
}

// run lets both NICs run until nothing arrives any more.
func (c *connectionFuzz) run() {
	w := c.x.w
	for range 50 {
		w.a.e.Step()
		w.b.e.Step()
		if len(*w.b.port.in) == 0 {
			return
		}
	}
	c.t.Fatalf("%d frames stay on the wire", len(*w.b.port.in))
}

func (c *connectionFuzz) do(s fuzzStep) {
	switch s.op {
	case opPost:
		c.post()
		c.run()
	case opSend:
		if c.sends < maxPosts {
			d, _ := c.x.p.descriptor(int(s.length))
			c.x.p.postSend(d)
			c.sends++
		}
		c.run()
	case opTime:
		for range s.arg / 16 {
			c.x.w.now += 50 * time.Millisecond
			c.run()
		}
	case opAck, opProbe, opDisconnect, opStranger:
		c.control(s)
	default:
		c.data(s)
	}
}

// control sends a frame without payload.
func (c *connectionFuzz) control(s fuzzStep) {
	b := alignedBytes(datasheet.HeaderSize)
	h := datasheet.HeaderAt(b)
	*h = c.x.good
	h.Flags, h.PSN, h.Message = s.flags, h.PSN+c.psn+uint32(s.psn), uint32(s.message)
	h.Ack += s.offset
	h.Credit, h.Extent, h.Offset = s.length, s.extent, uint32(s.arg)
	switch s.op {
	case opAck:
		h.Type = datasheet.FrameAck
	case opProbe:
		h.Type = datasheet.FrameProbe
	case opDisconnect:
		h.Type, h.Immediate = datasheet.FrameDisconnect, uint32(s.arg)
	default:
		h.Type, h.Key = datasheet.FrameType(s.arg), h.Key+uint32(s.message)
	}
	c.arrive(b)
}

// data sends a data frame.
func (c *connectionFuzz) data(s fuzzStep) {
	f := fuzzFrame{len(c.frames), c.message + uint32(s.message), s.extent, s.offset, s.length}
	b := alignedBytes(datasheet.HeaderSize + int(f.length))
	h := datasheet.HeaderAt(b)
	*h = c.x.good
	h.Flags, h.Length, h.PSN = s.flags, uint16(f.length), h.PSN+c.psn+uint32(s.psn)
	h.Message, h.Extent, h.Offset, h.Immediate = f.message, f.extent, f.offset, f.message
	for i := range f.length {
		b[datasheet.HeaderSize+i] = f.at(f.offset + i)
	}
	c.psn++
	if s.flags&datasheet.FrameLast != 0 {
		c.message++
	}
	if c.breakOff = c.x.w.b.parts != nil && s.arg > 250; !c.breakOff {
		c.frames = append(c.frames, f)
	}
	c.arrive(b)
	c.breakOff = false
}

func (c *connectionFuzz) arrive(b []byte) {
	*c.x.w.b.port.in = append(*c.x.w.b.port.in, b)
	c.run()
}

// check takes what has completed since the last look.
func (c *connectionFuzz) check() {
	for e, ok := c.cq.next(); ok; e, ok = c.cq.next() {
		q, d := 0, (*descriptors.Descriptor)(nil)
		if e.Flags&datasheet.CompletionReceive != 0 {
			q = 1
		}
		if e.Endpoint != c.x.p.id || e.Index != c.done[q] || int(e.Index) >= [...]int{c.sends, len(c.receives)}[q] {
			c.t.Fatalf("completion %+v, when %d of %d sends and %d of %d receives had completed",
				e, c.done[0], c.sends, c.done[1], len(c.receives))
		}
		if q == 0 {
			d = c.x.p.send.posted[e.Index]
		} else {
			d = c.receives[e.Index].d
		}
		if uint32(d.Status()) != e.Status || !d.Status().Done() {
			c.t.Fatalf("completion %+v, but the descriptor says %v", e, d.Status())
		}
		if c.done[q]++; q == 1 {
			c.judge(c.receives[e.Index])
		}
	}
}

// judge compares a receive that has completed with what was sent.
func (c *connectionFuzz) judge(r *fuzzReceive) {
	r.returned = append([]byte{}, r.in...)
	if r.d.Status().Failed() {
		return
	}
	length := r.d.Length()
	if length > roomSize {
		c.t.Fatalf("%d bytes in a buffer of %d", length, roomSize)
	}
	immediate, flagged := r.d.Immediate()
	best, found := uint32(0), false
	for i := range c.frames {
		n := c.frames[i].message
		ahead := n - c.delivered
		if c.frames[i].extent != length || int32(ahead) < 0 || !c.unreliable && ahead != 0 || flagged && n != immediate ||
			found && ahead >= best || !c.carried(n, r.in[:length]) {
			continue
		}
		best, found = ahead, true
	}
	if !found {
		c.t.Fatalf("a message of %d bytes was delivered as number %d or later, and nobody sent it: % x", length, c.delivered, r.in[:length])
	}
	c.delivered += best + 1
}

// carried reports whether frames have carried data to its places in message number.
func (c *connectionFuzz) carried(number uint32, data []byte) bool {
	for place := range data {
		sent := false
		for i := range c.frames {
			f := &c.frames[i]
			at := uint32(place)
			if f.message == number && f.extent == uint32(len(data)) && f.offset <= at && at < f.offset+f.length && f.at(at) == data[place] {
				sent = true
				break
			}
		}
		if !sent {
			return false
		}
	}
	return true
}

// end ends the connection, and looks at what is left.
func (c *connectionFuzz) end() {
	if n := c.x.p.query(); n.RecvCompleted != c.done[1] || n.SendCompleted != c.done[0] {
		c.t.Fatalf("the NIC has completed %d sends and %d receives, and reported %d and %d", n.SendCompleted, n.RecvCompleted, c.done[0], c.done[1])
	}
	for _, v := range []*vi{c.x.p, c.x.v} {
		do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	}
	c.run()
	c.check()
	if int(c.done[0]) != c.sends || int(c.done[1]) != len(c.receives) {
		c.t.Fatalf("%d of %d sends and %d of %d receives have completed", c.done[0], c.sends, c.done[1], len(c.receives))
	}
	do(c.x.p.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: c.x.p.id})
	for _, from := range []int{0, 1} {
		sent, received, got := message(c.other[from], c.other[1-from], []byte("alive"))
		if sent.Failed() || received.Failed() || string(got) != "alive" {
			c.t.Fatalf("another connection: %v, %v, %q", sent, received, got)
		}
	}
	for i, r := range c.receives {
		must.Same(c.t, r.in, r.returned, "buffer %d was written when it was the host's again", i)
		must.Same(c.t, c.guards[i], make([]byte, len(c.guards[i])), "memory behind buffer %d was written", i)
	}
}

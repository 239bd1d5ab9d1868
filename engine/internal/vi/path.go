package vi

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

// Path carries the messages of one frame of a VI over a wire that loses nothing: in calls of the host, if that steps
// the engine, and in rounds. A call looks at a descriptor and its memory once. Whatever a call does
// not carry out itself it leaves as it found it, to Transmit and TakeFrame, which end the same. A path lives as
// long as its endpoint.
type Path struct {
	k    *Transport
	Ep   *core.Endpoint
	r    *reliable   // nil without such a connection
	u    *unreliable // nil without such a connection
	line core.Lossless

	// sends has a record for each token of the send queue, at the token's place; nil without tokens. head and next are the
	// numbers of the oldest token under way, and of the one behind the newest.
	sends                    []sent
	head, next               uint32
	looks                    [2]uint32 // calls of Poll, of sends and of receives: each under the lock of its queue
	id                       uint16    // of the endpoint, as frames have it
	tag                      uint16    // of the frames that come
	to                       datasheet.ShortBeside
	peer                     uint64                 // Endpoint of the header
	table                    [2]datasheet.Reference // the extension of a write, and the reference to its bytes
	guardedSend, guardedRecv guardedCalls

	Host
}

// sent is the record of a message that has left by a path.
type sent struct {
	seg    *datasheet.ControlSegment
	stamp  uint64 // of the regions when seg was found
	psn    uint32
	mark   uint32           // of the wire behind it
	number uint32           // of the message, or of the next one
	lent   uint32           // handle of the memory that is lent for it
	op     datasheet.Status // of a send or of an RDMA write
}

// Host has the calls into an engine that its host steps.
type Host struct {
	Mu   *hotlock.Mutex
	Gate *atomic.Uint32 // bits of Gate..., zero most of the time
	// Ring takes what was stored to a doorbell of the path's endpoint. With stored it leaves it to the step under way.
	Ring func(b core.Bell, value uint32, stored bool)
	// Step does a round of the engine, up to a completion of the endpoint's receives or sends.
	Step func(receive, send bool) bool
	// Wake wakes those that wait for something to do.
	Wake func()
	// Guard runs a call that may touch memory of the program's own. If that is gone the device fails.
	Guard func(f func())
}

// guardedCalls are those of one queue that may touch memory of the program's own, made under the host's lock of the queue. What
// they take and return stands beside them: a closure for each call would be an allocation.
type guardedCalls struct {
	producer   uint32
	most       uint32
	what       polled
	post, poll func()
}

// Bits of Host.Gate.
const (
	GateSteps  uint32 = 1 << iota // each Poll is a round: a path does not know all that there is to do
	GatePair                      // a look in vain also steps the NIC at the other end
	GateWakes                     // a goroutine sleeps until something is posted
	GateGuards                    // memory of the program's own may be touched
)

// polled is the outcome of a poll.
type polled uint8

const (
	pollNothing   polled = iota // nothing has come
	pollCompleted               // something that the caller waits for has completed
	pollOther                   // there may be something for a round to do
)

// PathOf returns the path of an endpoint, and makes it at the first call.
func (k *Transport) PathOf(ep *core.Endpoint) *Path {
	p := pathOf(ep)
	if p == nil {
		p = &Path{k: k, Ep: ep, line: k.Lossless, id: uint16(ep.ID)} // of a kind with its own format, if unreliable
		ep.Path = p
	}
	return p
}

// join begins a connection.
func (p *Path) join(k *Transport) {
	remote := &p.Ep.Remote
	p.k, p.tag, p.to, p.peer = k, uint16(remote.OurKey), datasheet.ShortBeside(uint16(remote.TheirKey)), uint64(uint16(remote.Endpoint))
}

// open begins one that is reliable.
func (p *Path) open(r *reliable) {
	p.join(r.nic)
	p.r, p.line = r, r.way.Lossless
	p.head, p.next = p.Ep.Send.Completed, p.Ep.Send.Completed
	if n := int(p.Ep.Send.Mask) + 1; len(p.sends) != n && p.Ep.Kind.Tokens {
		p.sends = make([]sent, n)
	}
}

// pathOf returns the path of an endpoint, nil if it has none.
func pathOf(ep *core.Endpoint) *Path {
	if ep == nil {
		return nil
	}
	p, _ := ep.Path.(*Path)
	return p
}

// pathTo returns the path of the endpoint to which a short frame goes, nil if it has none, or the frame is not its peer's.
func pathTo(c *core.Core, header uint64) *Path {
	if ep := c.Endpoint(uint32(uint16(header))); ep != nil && cameFrom(c, ep) {
		return pathOf(ep)
	}
	return nil
}

// cameFrom reports whether a short frame has come by the way to the peer of an endpoint.
func cameFrom(c *core.Core, ep *core.Endpoint) bool {
	if c.Peers == nil {
		return true
	}
	r := rel(ep)
	return r != nil && r.way != nil && r.way.Lossless == c.Peers.From()
}

// What stands for the handle of lent memory in a message that has failed.
const (
	revoked = ^uint32(0)     // the memory was taken away
	refused = ^uint32(0) - 1 // the peer refused the write
)

// refusedAt takes note that the peer has refused the frame psn.
func (p *Path) refusedAt(psn uint32) {
	for i := p.head; i != p.next; i++ {
		if s := &p.sends[i&p.Ep.Send.Mask]; s.psn == psn && s.op == datasheet.StatusOpRDMAWrite {
			s.lent = refused
		}
	}
}

// writes counts the RDMA writes that have not arrived.
func (p *Path) writes() (n uint32) {
	for i := p.head; i != p.next; i++ {
		if s := &p.sends[i&p.Ep.Send.Mask]; s.op == datasheet.StatusOpRDMAWrite && int32(p.r.Una-s.psn) <= 0 {
			n++
		}
	}
	return n
}

// unreliable is the state of a connected endpoint whose messages are not
// acknowledged.
type unreliable struct {
	out      core.Sending
	nextSend uint32 // number of the next message

	in      core.Receipt     // open from a message's first frame on until its last, or until one is missing
	next    uint32           // number of the first message that has not begun to come
	receive bool             // a receive descriptor is in work
	fetched datasheet.Status // of that descriptor

	core.Liveness
	path *Path // of a queue without tokens, if both ends know short frames
}

// unrel is the state of an endpoint whose messages are not acknowledged, nil if it has none.
func unrel(ep *core.Endpoint) *unreliable {
	u, _ := ep.Conn.(*unreliable)
	return u
}

// put sends a message of a format that is in one or two pieces of memory and fits a frame. Of others, and if the wire
// takes no more, it returns false, and nothing has happened.
func (p *Path) put(header uint64, m *core.Sending) bool {
	k, to, last := p.k, p.to, p.Ep.Send.Posted() == 0
	first, second := k.pieces(m)
	if first == nil || m.Total > p.Ep.MaxPayload {
		return false
	}
	if m.Control.Bits&datasheet.ControlImmediate != 0 {
		to = to.WithImmediate(m.Control.Immediate)
	}
	if _, ok := p.line.PutPair(header, to, first, second, last); !ok {
		return false
	}
	if !last {
		k.Events |= core.Unflushed
	}
	k.Progress++
	k.Count(datasheet.CounterFramesSent, 1)
	k.Count(datasheet.CounterBytesSent, uint64(m.Total))
	return true
}

// pieces are where a sound message of a format stands, nil if that is not known.
func (k *Transport) pieces(m *core.Sending) (first, second []byte) {
	switch {
	case m.Status != 0 || m.Stamp != k.Regions.Stamp:
		return nil, nil
	case m.Total == uint32(len(m.Memory)):
		return m.Memory, nil
	}
	return m.Pieces[0], m.Pieces[1]
}

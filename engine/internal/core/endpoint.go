package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// WindowFrames is the window of the reliability protocol in frames: what the
// selective acknowledgement can express (SPEC.md 8.4).
const WindowFrames = 64

// Endpoint is one VI or ring, or takes and sends raw frames.
type Endpoint struct {
	ID          uint32
	Shortest    uint32 // message, in bytes
	MaxPayload  uint32 // of a frame to the peer, in bytes
	Kind        *Kind
	Delivery    Delivery
	Options     datasheet.EndpointOptions
	Reliability datasheet.Reliability
	KindID      datasheet.Kind // as the peer is told it
	Connects    bool           // to another one
	Bells       Bell           // first of its doorbells in the page; bells, the count, if it has none
	Rights      datasheet.Access
	Ptag        uint32
	MaxTransfer uint32
	State       datasheet.State

	Send, Recv WorkQueue
	Sharers    int // VIs that take their receives from recv
	Listed     events

	Remote  Remote
	Outline datasheet.Header // what the headers of the connection's frames have in common
	Setup   *setup           // while a connection is being set up
	Request *request         // that led to the connection, at the server
	ended   ended            // the last connection

	// Of a connection, set by its delivery.
	Conn  any       // its state
	Flow  *Flow     // of it, if it is acknowledged
	Alive *Liveness // of a peer that answers probes

	Era      uint32           // changes when a connection, or the use for raw frames, ends
	Payloads []Segment        // payload table, nil as long as it is empty
	Allowed  datasheet.Access // what the peer lets this end do
	Own      any              // what its kind has taken for it
	Path     any              // of a VI: that of its messages of one frame
}

// Remote is the other end of a connection.
type Remote struct {
	MAC      datasheet.MAC
	Endpoint uint32
	// TheirKey goes into frames we send, ourKey is expected in frames we get.
	TheirKey, OurKey uint32
}

// ended is the rest of a connection that has ended, so that a peer that missed
// the end can be told.
type ended struct {
	Remote
	id     uint32 // of the endpoint
	reason datasheet.Result
	taken  uint32 // number of the first message that was not taken
	posted uint32 // number behind the last message that the host had posted
	// refused is the PSN of a frame that was not allowed what it wanted.
	refused uint32
	due     bool // the peer has not been told: the wire had no room
}

// endpoints are those that there are, and lists of those for which something is to be
// done.
type endpoints struct {
	Events events
	All    []*Endpoint // by number, nil where there is none
	Living []*Endpoint // those that there are: a few among thousands of numbers
	Takers []*Endpoint // open for raw frames, in the order of their creation
	last   uint32      // number that was given out last

	Ready     list // have something to send
	acks      list // have to acknowledge something, or to tell the peer of the end
	Unsettled list // have been acknowledged, but for settleAll
	Busy      list // have frames under way that may be lost, or wait for credit there
}

func (l *endpoints) clear(n uint32) {
	e := &l.Events
	*l = endpoints{All: make([]*Endpoint, n), Ready: list{e, OnReady, nil}, acks: list{e, OnAcks, nil},
		Unsettled: list{e, OnUnsettled, nil}, Busy: list{e, OnBusy, nil}}
}

func (l *endpoints) Endpoint(id uint32) *Endpoint {
	if id == 0 || id >= uint32(len(l.All)) {
		return nil
	}
	return l.All[id]
}

// Free finds a number below a limit for a new endpoint, zero if there is none. Numbers are not used
// again before all others were, so that a late doorbell or frame seldom meets another
// endpoint.
func (l *endpoints) Free(below uint32) uint32 {
	for range l.All {
		l.last++
		if l.last >= min(below, uint32(len(l.All))) {
			l.last = 1
		}
		if l.All[l.last] == nil {
			return l.last
		}
	}
	return 0
}

// list is a list of endpoints for which something is to be done; each is on it once.
type list struct {
	todo    *events
	bit     events // set in todo while the list has members
	members []*Endpoint
}

// events says what is to be done, a bit for each kind, so that a round need not ask
// each part of the engine. Of an endpoint it says on which lists it is.
type events uint16

const (
	OnReady events = 1 << iota
	OnAcks
	OnUnsettled
	OnBusy
	Suspended   // frames wait for a control program
	Unflushed   // frames were handed to the wire
	Interrupts  // vectors are to be raised
	BrokenQueue // a completion queue has lost an entry
	OnCells     // cells wait to be stored or sent
	CellsFirst  // too many wait to be stored: no frame is taken
	InFlight    // messages have left over a wire that loses nothing
	Leaving     // the wire is busy with what was handed over
)

func (l *list) Add(ep *Endpoint) {
	if ep.Listed&l.bit == 0 {
		ep.Listed |= l.bit
		*l.todo |= l.bit
		l.members = append(l.members, ep)
	}
}

// Keep goes through the list, and leaves on it those for which still answers true. Nothing may be
// added meanwhile.
func (l *list) Keep(still func(ep *Endpoint) bool) {
	keep := l.members[:0]
	for _, ep := range l.members {
		if still(ep) {
			keep = append(keep, ep)
		} else {
			ep.Listed &^= l.bit
		}
	}
	clear(l.members[len(keep):])
	if l.members = keep; len(keep) == 0 {
		*l.todo &^= l.bit
	}
}

// Segment is a data segment that has been copied out of host memory.
type Segment struct {
	Address uint64
	Handle  uint32
	Length  uint32
}

// mayAgree reports whether ep may agree with its peer that nothing is lost on the wire. A
// VI that shares a receive queue drops messages that find no receive. An unreliable ring does so, too, over short frames.
func mayAgree(ep *Endpoint) bool {
	return (ep.Reliability != datasheet.Unreliable || ep.KindID == datasheet.KindRing) && ep.Recv.Source == nil
}

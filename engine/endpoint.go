package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// windowFrames is the window of the reliability protocol in frames: what the
// selective acknowledgement can express (SPEC.md 8.4).
const windowFrames = 64

// endpoint is one VI or ring, or takes and sends raw frames.
type endpoint struct {
	id          uint32
	shortest    uint32 // message, in bytes
	maxPayload  uint32 // of a frame to the peer, in bytes
	kind        *kind
	delivery    delivery
	options     datasheet.EndpointOptions
	reliability datasheet.Reliability
	kindID      datasheet.Kind // as the peer is told it
	connects    bool           // to another one
	bells       bell           // first of its doorbells in the page; bells, the count, if it has none
	rights      datasheet.Access
	ptag        uint32
	maxTransfer uint32
	state       datasheet.State

	send, recv workQueue
	sharers    int // VIs that take their receives from recv
	listed     events

	remote  remote
	outline datasheet.Header // what the headers of the connection's frames have in common
	setup   *setup           // while a connection is being set up
	request *request         // that led to the connection, at the server
	ended   ended            // the last connection

	// Of a connection, set by its delivery.
	conn  any       // its state
	flow  *flow     // of it, if it is acknowledged
	alive *liveness // of a peer that answers probes

	era      uint32           // changes when a connection, or the use for raw frames, ends
	payloads []segment        // payload table, nil as long as it is empty
	allowed  datasheet.Access // what the peer lets this end do
	own      any              // what its kind has taken for it
}

// remote is the other end of a connection.
type remote struct {
	mac      datasheet.MAC
	endpoint uint32
	// theirKey goes into frames we send, ourKey is expected in frames we get.
	theirKey, ourKey uint32
}

// ended is what is left of a connection that has ended, so that a peer that missed
// the end can be told.
type ended struct {
	remote
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
	events events
	all    []*endpoint // by number, nil where there is none
	living []*endpoint // those that there are: a few among thousands of numbers
	takers []*endpoint // open for raw frames, in the order of their creation
	last   uint32      // number that was given out last

	ready     list // have something to send
	acks      list // have to acknowledge something, or to tell the peer of the end
	unsettled list // have been acknowledged, but for settleAll
	busy      list // have frames under way that may be lost, or wait for credit there
}

// enter gives ep, which has a number, its place.
func (l *endpoints) enter(ep *endpoint) {
	l.all[ep.id] = ep
	l.living = append(l.living, ep)
}

func (l *endpoints) clear(n uint32) {
	e := &l.events
	*l = endpoints{all: make([]*endpoint, n), ready: list{e, onReady, nil}, acks: list{e, onAcks, nil},
		unsettled: list{e, onUnsettled, nil}, busy: list{e, onBusy, nil}}
}

// endpoint finds an endpoint by its number.
func (l *endpoints) endpoint(id uint32) *endpoint {
	if id == 0 || id >= uint32(len(l.all)) {
		return nil
	}
	return l.all[id]
}

// free finds a number below a limit for a new endpoint, zero if there is none. Numbers are not used
// again before all others were, so that a late doorbell or frame seldom meets another
// endpoint.
func (l *endpoints) free(below uint32) uint32 {
	for range l.all {
		l.last++
		if l.last >= min(below, uint32(len(l.all))) {
			l.last = 1
		}
		if l.all[l.last] == nil {
			return l.last
		}
	}
	return 0
}

// list is a list of endpoints for which something is to be done; each is on it once.
type list struct {
	todo    *events
	bit     events // set in todo while the list has members
	members []*endpoint
}

// events says what is to be done, a bit for each kind, so that a round need not ask
// each part of the engine. Of an endpoint it says on which lists it is.
type events uint16

const (
	onReady events = 1 << iota
	onAcks
	onUnsettled
	onBusy
	suspended   // frames wait for a control program
	unflushed   // frames were handed to the wire
	interrupts  // vectors are to be raised
	brokenQueue // a completion queue has lost an entry
	onCells     // cells wait to be stored or sent
	cellsFirst  // too many wait to be stored: no frame is taken
	inFlight    // messages have left over a wire that loses nothing
	leaving     // the wire is busy with what was handed over
)

func (l *list) add(ep *endpoint) {
	if ep.listed&l.bit == 0 {
		ep.listed |= l.bit
		*l.todo |= l.bit
		l.members = append(l.members, ep)
	}
}

// keep goes through the list, and leaves on it those for which still answers true. Nothing may be
// added meanwhile.
func (l *list) keep(still func(ep *endpoint) bool) {
	keep := l.members[:0]
	for _, ep := range l.members {
		if still(ep) {
			keep = append(keep, ep)
		} else {
			ep.listed &^= l.bit
		}
	}
	clear(l.members[len(keep):])
	if l.members = keep; len(keep) == 0 {
		*l.todo &^= l.bit
	}
}

// segment is a data segment that has been copied out of host memory.
type segment struct {
	address uint64
	handle  uint32
	length  uint32
}

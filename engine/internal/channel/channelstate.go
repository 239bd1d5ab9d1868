package channel

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// channel is the state of an endpoint of kind Channel besides its connection. What stands in
// device memory is a copy: the host may store to that, and the engine never reads it.
type channel struct {
	page       datasheet.ChannelPage
	mask       uint32    // of an offset in a double page
	span       core.Span // of the control page
	control    *datasheet.ChannelControl
	ends       []uint32
	send, recv doublePage
	tag        uint32 // protection tag
	bells      *core.ChannelBells
	link       *cellLink // while it is connected
	kernel     bool      // channel 0, which has no link of its own

	// The sending half.
	transmit datasheet.TransmitWord
	status   datasheet.SendStatus
	crc      cells.CRC                          // behind its last cell
	under    [datasheet.ChannelPriorities]uint8 // its messages that have not ended
	gone     bool                               // channel 0, and it has been destroyed

	// What is sent on the channel: by itself, or by channel 0.
	posted [datasheet.ChannelPriorities]fifo[message]
	// At most one message is cut into cells, since those of two could not be told apart. It is
	// the oldest of the priority sending. From current up to stop its words are still to go.
	cutter        cells.Cutter
	sending       datasheet.ChannelPriority
	from          *channel
	current, stop uint32
	// headers of its cells, and of the last one of a PDU, with the key's tag.
	header, last cellHead
	frames       uint32 // of cells that were sent for the connection

	// The receiving half.
	receive  datasheet.ReceiveWord
	assembly cells.Assembly
	cutShort bool   // words of the PDU that is arriving were not written
	expect   uint32 // number of the next frame of cells for the connection
	// inbound are the headers of its cells, and of the last one of a PDU.
	inbound [2]cellHead
}

// channelOf is the channel that an endpoint is, nil if there is none.
func channelOf(ep *core.Endpoint) *channel {
	if ep == nil {
		return nil
	}
	ch, _ := ep.Own.(*channel)
	return ch
}

// doublePage is registered memory of the host.
type doublePage struct {
	handle  uint32
	address uint64
}

// view is all of a double page, if that can be reached in one piece; nil if it cannot, or if
// that takes more than a look. Good until the step ends.
func (ch *channel) view(m *core.Regions, d doublePage, write bool) []byte {
	size := uint64(ch.page.Bytes())
	if r, off := m.Reach(d.handle, ch.tag, d.address, size, write); r != nil && r.Eager == nil && r.Epoch == m.Epoch && r.Whole != nil {
		return r.Whole[off : off+size]
	}
	return nil
}

// message is a doorbell that was taken.
type message struct {
	word uint32
	from *channel // whose double page it is in: the channel that it goes on, or channel 0
}

// mostMessages of one priority wait on a channel: its own, those of channel 0, and one that a
// channel 0 had begun which is no more.
const mostMessages = 2*datasheet.ChannelDepth + 1

// fifo is a ring of a fixed size, oldest first.
type fifo[T any] struct {
	ring     []T
	first, n int
}

func (f *fifo[T]) at(i int) *T {
	if i += f.first; i >= len(f.ring) {
		i -= len(f.ring)
	}
	return &f.ring[i]
}

// push adds one; there must be room.
func (f *fifo[T]) push(v T) {
	*f.at(f.n) = v
	f.n++
}

func (f *fifo[T]) pop() {
	clear(f.ring[f.first:][:1]) // what it refers to may go
	if f.first++; f.first == len(f.ring) {
		f.first = 0
	}
	f.n--
}

// resize gives the FIFO another ring, and leaves in it what keep answers true for.
func (f *fifo[T]) resize(size int, keep func(T) bool) {
	to := fifo[T]{ring: make([]T, size)}
	for i := range f.n {
		if v := *f.at(i); keep(v) {
			to.push(v)
		}
	}
	*f = to
}

// cellHead is a copy of what precedes the payload of a cell: the wire may be written by others.
type cellHead struct {
	header [4]byte
	hec    uint8
	tag    [3]byte
}

// cellLink is a peer station with channels. There is one FIFO for each priority, of channels
// that have a message to send, one entry for each message. It has room for all that they may post.
type cellLink struct {
	fifos   [datasheet.ChannelPriorities]fifo[*core.Endpoint]
	members []*core.Endpoint // channels that are connected to the peer
	busy    bool             // on Mover.busy

	Stopped bool          // the peer has said so
	waiting time.Duration // clock.present since which cells wait for its start; zero: none do
	asked   time.Duration // when it was asked last
	holding bool          // this end has told the peer to stop
}

// Mover carries cells: from the channels' double pages into frames, and from frames, by
// way of the receive FIFO, into them. What is next cells.Waiting says.
type Mover struct {
	*core.Core
	config   core.Cells
	Received cellFIFO
	Links    map[datasheet.MAC]*cellLink
	busy     []*cellLink // have messages to send; the first one's turn it is
	// Holding is the number of links that this end has told to stop.
	Holding int
	Levels  Levels // but for those of the receive FIFO, and of stops

	// The frame that is being filled, or waits for room on the wire: the heads and the payloads
	// of its cells.
	head     datasheet.Header
	filled   []cellHead
	payloads [][cells.PayloadSize]byte
	urgent   bool // its last cell was of high priority
	low      bool // it has cells of low priority
	ahead    lowFlight
	tries    int // to send it, in a row
}

// lowFlight marks the frames under way at low priority, over a wire that loses nothing: an urgent
// cell, which cannot overtake it there, meets no more than the last frames. On other wires the
// peer's stop bounds that alone.
type lowFlight struct {
	wire  uint32    // to which the marks belong
	marks [2]uint32 // behind the last frames with cells of low priority, the older one at first
	first int
}

// full reports whether the peer has not taken the older of the last frames yet.
func (f *lowFlight) full(wire core.Lossless) bool {
	if wire == nil {
		return false
	}
	taken := wire.Taken()
	if number := wire.Wire(); number != f.wire {
		*f = lowFlight{wire: number, marks: [2]uint32{taken, taken}}
	}
	if int32(taken-f.marks[f.first]) >= 0 {
		return false
	}
	wire.AwaitTaken()
	return true
}

// note takes note of a frame that has been committed.
func (f *lowFlight) note(wire core.Lossless) {
	if wire != nil {
		f.marks[f.first] = wire.Mark()
		f.first = 1 - f.first
	}
}

// cellFIFO is the receive FIFO: cells that have come and are not stored yet, of all channels
// in their order.
type cellFIFO struct {
	Config   core.Cells
	ring     []arrival                 // nil as long as there was no channel
	payloads [][cells.PayloadSize]byte // of the cells in ring
	first, N int
	Highest  int // value of n
}

// arrival is a cell in the receive FIFO.
type arrival struct {
	ep    *core.Endpoint
	era   uint32 // of ep when it came
	last  bool   // of its PDU
	stamp uint64 // when it came, in units of the clock of SPEC.md 2.6
}

// of reports whether the cell is of the same connection as another.
func (a *arrival) of(other *arrival) bool { return a.ep == other.ep && a.era == other.era }

// high reports whether there is more in it than peers should have sent.
func (f *cellFIFO) high() bool { return f.N > f.Config.Stop && !f.Config.NeverStop }

// push makes room for one with a copy of payload at the end; there must be some.
func (f *cellFIFO) push(payload *[cells.PayloadSize]byte) *arrival {
	at := f.first + f.N
	if at >= len(f.ring) {
		at -= len(f.ring)
	}
	f.N++
	f.Highest = max(f.Highest, f.N)
	f.payloads[at] = *payload
	return &f.ring[at]
}

// oldest is the cell that pop takes first.
func (f *cellFIFO) oldest() *arrival { return &f.ring[f.first] }

// has reports whether cells wait in it that came on the connection of ep.
func (f *cellFIFO) has(ep *core.Endpoint) bool {
	for i := range f.N {
		if a := &f.ring[(f.first+i)%len(f.ring)]; a.ep == ep && a.era == ep.Era {
			return true
		}
	}
	return false
}

// run returns the payloads of the oldest cell and of those behind it that belong to the same
// PDU and lie behind it in memory, most at least one, and the last one of these cells.
func (f *cellFIFO) run(most int) ([][cells.PayloadSize]byte, *arrival) {
	in := f.ring[f.first:min(f.first+min(f.N, most), len(f.ring))]
	n := 1
	for n < len(in) && !in[n-1].last && in[n].of(&in[0]) {
		n++
	}
	return f.payloads[f.first : f.first+n], &in[n-1]
}

// pop takes out cells of a run.
func (f *cellFIFO) pop(n int) {
	for i := range n {
		f.ring[f.first+i].ep = nil
	}
	if f.first += n; f.first == len(f.ring) {
		f.first = 0
	}
	f.N -= n
}

// Levels say how full the FIFOs of channels are (SPEC.md 2.12). The highest ones are those
// since Reset.
type Levels struct {
	Channels int // endpoints of that kind
	// Transmit is the number of messages that have been taken and have not ended, by priority.
	Transmit, TransmitHighest [datasheet.ChannelPriorities]int
	// Receive is the number of cells in the receive FIFO, which holds ReceiveSize.
	Receive, ReceiveHighest, ReceiveSize int
	StoppedBy                            int // peer stations that have said stop
	Stopped                              int // peer stations that were told to stop
}

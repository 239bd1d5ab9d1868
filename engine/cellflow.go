package engine

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/cells"
)

// cellFIFO is the receive FIFO: cells that have come and are not stored yet, of all channels
// in their order.
type cellFIFO struct {
	config   Cells
	ring     []arrival                 // nil as long as there was no channel
	payloads [][cells.PayloadSize]byte // of the cells in ring
	first, n int
	highest  int // value of n
}

// arrival is a cell in the receive FIFO.
type arrival struct {
	ep    *endpoint
	era   uint32 // of ep when it came
	last  bool   // of its PDU
	stamp uint64 // when it came, in units of the clock of SPEC.md 2.6
}

// of reports whether the cell is of the same connection as another.
func (a *arrival) of(other *arrival) bool { return a.ep == other.ep && a.era == other.era }

func (f *cellFIFO) open() {
	if f.ring == nil {
		f.ring, f.payloads = make([]arrival, f.config.FIFO), make([][cells.PayloadSize]byte, f.config.FIFO)
	}
}

func (f *cellFIFO) clear() { *f = cellFIFO{config: f.config} }

// high reports whether there is more in it than peers should have sent.
func (f *cellFIFO) high() bool { return f.n > f.config.Stop && !f.config.NeverStop }

// push makes room for one with a copy of payload at the end; there must be some.
func (f *cellFIFO) push(payload *[cells.PayloadSize]byte) *arrival {
	at := f.first + f.n
	if at >= len(f.ring) {
		at -= len(f.ring)
	}
	f.n++
	f.highest = max(f.highest, f.n)
	f.payloads[at] = *payload
	return &f.ring[at]
}

// oldest is the cell that pop takes first.
func (f *cellFIFO) oldest() *arrival { return &f.ring[f.first] }

// run returns the payloads of the oldest cell and of those behind it that belong to the same
// PDU and lie behind it in memory, most at least one, and the last one of these cells.
func (f *cellFIFO) run(most int) ([][cells.PayloadSize]byte, *arrival) {
	in := f.ring[f.first:min(f.first+min(f.n, most), len(f.ring))]
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
	f.n -= n
}

// stop takes note of what a peer has said about its receive FIFO.
func (w *cellMover) stop(l *cellLink, stopped bool) {
	if stopped {
		w.count(descriptors.CounterStopsTaken, 1)
	}
	if l.stopped = stopped; !stopped {
		l.waiting = 0
	}
	if l.busy {
		w.events |= onCells
	}
}

// say sends a frame of no payload to the peer of a link, in the name of any of its channels.
// It returns false if the wire takes no more now.
func (w *cellMover) say(l *cellLink, what descriptors.FrameType) bool {
	buf := w.tx.reserve(descriptors.HeaderSize)
	if buf == nil {
		return false
	}
	h := descriptors.HeaderAt(buf)
	*h = l.members[0].outline
	h.Type = what
	w.tx.launch(buf)
	return true
}

// signal tells peers that were to stop that they may go on, once there is room.
func (w *cellMover) signal() {
	if w.received.n > w.config.Start || w.holding == 0 {
		return
	}
	for _, l := range w.links {
		if l.holding && w.say(l, descriptors.FrameCellStart) {
			l.holding = false
			w.holding--
		}
	}
}

// repeat answers a peer that asks, as it may have missed what it was told last.
func (w *cellMover) repeat(ep *endpoint) {
	what := descriptors.FrameCellStart
	if ep.channel.link.holding {
		what = descriptors.FrameCellStop
	}
	w.say(ep.channel.link, what) // if there is no room the peer asks again
}

// tick looks after peers that have said stop. One that still says so after the dead time, or
// nothing, is as good as dead: its channels end.
func (w *cellMover) tick() {
	for _, l := range w.busy {
		switch {
		case !l.stopped || len(l.members) == 0:
		case l.waiting == 0:
			l.waiting = max(w.present(), 1)
			l.asked = w.now
		case w.present()-l.waiting > w.timing.Dead:
			for len(l.members) > 0 {
				w.conns.fail(l.members[0], descriptors.StatusTransportError, descriptors.ResultConnectionLost, true)
			}
		case w.now-l.asked >= w.timing.Retransmit:
			l.asked = w.now
			w.tx.sendAck(l.members[0], descriptors.FrameProbe)
		}
	}
}

// lowFlight is what is under way at low priority, over a wire that loses nothing: an urgent
// cell, which cannot overtake it there, meets no more than the last frames. On other wires the
// peer's stop bounds that alone.
type lowFlight struct {
	wire  uint32    // to which the marks belong
	marks [2]uint32 // behind the last frames with cells of low priority, the older one at first
	first int
}

// full reports whether the peer has not taken the older of the last frames yet.
func (f *lowFlight) full(wire Lossless) bool {
	if wire == nil {
		return false
	}
	taken := wire.Taken()
	if number := wire.Wire(); number != f.wire {
		*f = lowFlight{wire: number, marks: [2]uint32{taken, taken}}
	}
	return int32(taken-f.marks[f.first]) < 0
}

// note takes note of a frame that has been committed.
func (f *lowFlight) note(wire Lossless) {
	if wire != nil {
		f.marks[f.first] = wire.Mark()
		f.first = 1 - f.first
	}
}

package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// cellFIFO is the receive FIFO: cells that have come and are not stored yet, of all channels
// in their order.
type cellFIFO struct {
	config   Cells
	ring     []arrival // nil as long as there was no channel
	first, n int
	highest  int // value of n
}

func (f *cellFIFO) open() {
	if f.ring == nil {
		f.ring = make([]arrival, f.config.FIFO)
	}
}

func (f *cellFIFO) clear() { f.ring, f.first, f.n, f.highest = nil, 0, 0, 0 }

// high reports whether there is more in it than peers should have sent.
func (f *cellFIFO) high() bool { return f.n > f.config.Stop && !f.config.NeverStop }

// push makes room for one at the end; there must be some.
func (f *cellFIFO) push() *arrival {
	at := f.first + f.n
	if at >= len(f.ring) {
		at -= len(f.ring)
	}
	f.n++
	f.highest = max(f.highest, f.n)
	return &f.ring[at]
}

// oldest is the cell that pop takes.
func (f *cellFIFO) oldest() *arrival { return &f.ring[f.first] }

func (f *cellFIFO) pop() {
	if f.first++; f.first == len(f.ring) {
		f.first = 0
	}
	f.n--
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

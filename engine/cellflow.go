package engine

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// stop takes note of what a peer has said about its receive FIFO.
func (w *cellMover) stop(l *cellLink, stopped bool) {
	if stopped {
		w.count(datasheet.CounterStopsTaken, 1)
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
func (w *cellMover) say(l *cellLink, what datasheet.FrameType) bool {
	buf := w.tx.reserve(&l.members[0].remote.mac, datasheet.HeaderSize)
	if buf == nil {
		return false
	}
	h := datasheet.HeaderAt(buf)
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
		if l.holding && w.say(l, datasheet.FrameCellStart) {
			l.holding = false
			w.holding--
		}
	}
}

// repeat answers a peer that asks, as it may have missed what it was told last.
func (w *cellMover) repeat(ep *endpoint) {
	what := datasheet.FrameCellStart
	if channelOf(ep).link.holding {
		what = datasheet.FrameCellStop
	}
	w.say(channelOf(ep).link, what) // if there is no room the peer asks again
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
				w.conns.fail(l.members[0], datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
			}
		case w.now-l.asked >= w.timing.Retransmit:
			l.asked = w.now
			w.tx.sendAck(l.members[0], datasheet.FrameProbe)
		}
	}
}

package channel

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// stop takes note of what a peer has said about its receive FIFO.
func (w *Mover) stop(l *cellLink, stopped bool) {
	if stopped {
		w.Count(datasheet.CounterStopsTaken, 1)
	}
	if l.Stopped = stopped; !stopped {
		l.waiting = 0
	}
	if l.busy {
		w.Events |= core.OnCells
	}
}

// say sends a frame of no payload to the peer of a link, in the name of any of its channels.
// It returns false if the wire takes no more now.
func (w *Mover) say(l *cellLink, what datasheet.FrameType) bool {
	buf := w.Tx.Reserve(&l.members[0].Remote.MAC, datasheet.HeaderSize)
	if buf == nil {
		return false
	}
	h := datasheet.HeaderAt(buf)
	*h = l.members[0].Outline
	h.Type = what
	w.Tx.Launch(buf)
	return true
}

// signal tells peers that were to stop that they may go on, once there is room.
func (w *Mover) signal() {
	if w.Received.N > w.config.Start || w.Holding == 0 {
		return
	}
	for _, l := range w.Links {
		if l.holding && w.say(l, datasheet.FrameCellStart) {
			l.holding = false
			w.Holding--
		}
	}
}

// repeat answers a peer that asks, as it may have missed what it was told last.
func (w *Mover) repeat(ep *core.Endpoint) {
	what := datasheet.FrameCellStart
	if channelOf(ep).link.holding {
		what = datasheet.FrameCellStop
	}
	w.say(channelOf(ep).link, what) // if there is no room the peer asks again
}

// Ask asks a peer for an answer that has not taken what cells of low priority wait for. The engine does
// not look for a while at how far the wire is: the answer wakes its thread.
func (w *Mover) Ask() {
	for _, l := range w.busy {
		if l.fifos[datasheet.PriorityLow].n == 0 || !w.ahead.full(w.Lossless) {
			continue
		}
		if ep := l.members[0]; ep.Alive != nil && ep.Alive.Pending == 0 {
			w.Conns.Probe(ep, ep.Alive)
			w.Tx.Flush()
		}
	}
}

// Tick looks after peers that have said stop. One that still says so after the dead time, or
// nothing, is as good as dead: its channels end.
func (w *Mover) Tick() {
	for _, l := range w.busy {
		switch {
		case !l.Stopped || len(l.members) == 0:
		case l.waiting == 0:
			l.waiting = max(w.Present(), 1)
			l.asked = w.Now
		case w.Present()-l.waiting > w.Timing.Dead:
			for len(l.members) > 0 {
				w.Conns.Fail(l.members[0], datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
			}
		case w.Now-l.asked >= w.Timing.Retransmit:
			l.asked = w.Now
			w.Tx.SendAck(l.members[0], datasheet.FrameProbe)
		}
	}
}

package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// cellBudget bounds the cells that one round stores and sends.
const cellBudget = 256

// A frame of cells is lost if a wire with many ends has no room for it cellTries times in a row. The
// channels of other peers wait for it. A peer that polls has taken some frames by then.
const cellTries = 64

func (w *cellMover) clear() {
	w.links, w.busy, w.holding = map[datasheet.MAC]*cellLink{}, nil, 0
	w.filled, w.payloads, w.urgent, w.low, w.tries, w.ahead, w.levels = nil, nil, false, false, 0, lowFlight{}, CellLevels{}
	w.received.clear()
	w.hold()
}

// hold has the engine take no frames while the receive FIFO is too full.
func (w *cellMover) hold() {
	if w.events &^= cellsFirst; w.received.high() {
		w.events |= cellsFirst
	}
}

// join makes a channel that has been connected one of its peer's link.
func (w *cellMover) join(ep *endpoint) {
	l := w.links[ep.remote.mac]
	if l == nil {
		l = &cellLink{}
		w.links[ep.remote.mac] = l
	}
	l.members = append(l.members, ep)
	for p := range l.fifos {
		if room := len(l.members)*(datasheet.ChannelDepth+1) + datasheet.ChannelDepth; len(l.fifos[p].ring) < room {
			l.fifos[p].resize(2*room, func(*endpoint) bool { return true })
		}
	}
	channelOf(ep).link = l
	w.received.open()
	if w.filled == nil {
		w.payloads = make([][cells.PayloadSize]byte, min(w.config.PerFrame, int(w.maxPayload)/datasheet.CellSize))
		w.filled = make([]cellHead, 0, len(w.payloads))
	}
}

// leave undoes join.
func (w *cellMover) leave(ep *endpoint) {
	l := channelOf(ep).link
	channelOf(ep).link = nil
	for p := range l.fifos {
		if channelOf(ep).posted[p].n == 0 {
			continue
		}
		w.levels.Transmit[p] -= int(channelOf(ep).posted[p].n)
		l.fifos[p].resize(len(l.fifos[p].ring), func(other *endpoint) bool { return other != ep })
	}
	l.members = slices.DeleteFunc(l.members, func(other *endpoint) bool { return other == ep })
	if len(l.members) == 0 {
		delete(w.links, ep.remote.mac)
		if l.holding {
			w.holding--
		}
	}
}

// post takes a word of a send doorbell.
func (w *cellMover) post(ep *endpoint, p datasheet.ChannelPriority, word uint32) {
	ch := channelOf(ep)
	ch.status.Stores[p]++
	to := ep
	if ch.status.Result[p] = ch.refusal(p, word); ch.kernel && ch.status.Result[p] == datasheet.ChannelTaken {
		to, word, ch.status.Result[p] = w.address(ch, word)
	}
	if ch.status.Result[p] != datasheet.ChannelTaken {
		ch.status.Ended[p]++
		ch.showStatus()
		return
	}
	ch.under[p]++
	channelOf(to).posted[p].push(word, ch)
	w.levels.posted(p)
	ch.showStatus()
	l := channelOf(to).link
	l.fifos[p].push(to)
	if !l.busy {
		l.busy = true
		w.busy = append(w.busy, l)
	}
	w.events |= onCells
}

// run stores and sends cells, one after the other, until nothing waits that may go or the budget is
// used up. Of low priority it sends no more than a frame to each peer: while that is under way
// an urgent cell waits. It reports whether there were any.
func (w *cellMover) run() bool { return w.runUpTo(w.config.PerFrame) }

// runUpTo is run that sends no more than so many cells of low priority to each peer.
func (w *cellMover) runUpTo(most int) bool {
	before := w.progress
	turns := len(w.busy)
	low := most
	room := w.launch()
	for budget := cellBudget; budget > 0; {
		if w.bells.last.Load() != 0 {
			w.bells.takeLinked() // something urgent, perhaps
		}
		var l *cellLink
		waiting := cells.Waiting{Received: w.received.n > 0, Stopped: !room}
		if turns > 0 {
			l = w.busy[0]
			waiting.High, waiting.Low = l.fifos[datasheet.PriorityHigh].n > 0, l.fifos[datasheet.PriorityLow].n > 0 && low > 0 && !w.ahead.full(w.lossless)
			waiting.Stopped = waiting.Stopped || l.stopped
		}
		// The answer is the same for the cells that follow, until something changes of what
		// was asked: fill and store stop there.
		switch waiting.Next() {
		case cells.Receive:
			budget -= w.store(budget)
			continue
		case cells.High:
			budget -= w.fill(l, datasheet.PriorityHigh, budget)
			room = !w.full() || w.launch()
			continue
		case cells.Low:
			if w.urgent {
				budget--
				room = w.launch() // what is urgent leaves now
				continue
			}
			n := w.fill(l, datasheet.PriorityLow, min(low, budget))
			low, budget = low-n, budget-n
			room = !w.full() || w.launch()
			continue
		}
		budget--
		room = w.launch()
		if turns == 0 || !room {
			break
		}
		w.rotate()
		turns--
		low = most
	}
	w.launch()
	w.signal()
	if w.events &^= onCells; w.received.n > 0 || len(w.busy) > 0 || len(w.filled) > 0 || w.holding > 0 {
		w.events |= onCells
	}
	return w.progress != before
}

// rotate makes it the next link's turn. A link without messages has none.
func (w *cellMover) rotate() {
	l := w.busy[0]
	w.busy = append(w.busy[:0], w.busy[1:]...)
	if l.busy = l.fifos[datasheet.PriorityHigh].n+l.fifos[datasheet.PriorityLow].n > 0; l.busy {
		w.busy = append(w.busy, l)
		return
	}
	l.waiting = 0
}

// full reports whether the frame has no room for another cell.
func (w *cellMover) full() bool { return len(w.filled) == len(w.payloads) }

// cellRun is how many cells are cut before the next look at the doorbells.
const cellRun = 8

// fill puts cells into the frame: those of the oldest message of a priority. If that is of a
// channel of which a message of low priority is under way, they are of that. It ends with the
// message, with the frame, after most cells, which are at least one, and within cellRun cells of
// a store to a doorbell, which may be urgent. It returns how many cells there were.
func (w *cellMover) fill(l *cellLink, p datasheet.ChannelPriority, most int) (n int) {
	ep := l.fifos[p].ring[l.fifos[p].first]
	ch := channelOf(ep)
	if len(w.filled) == 0 {
		w.head = ep.outline
		w.head.Type, w.head.PSN = datasheet.FrameCells, ch.frames
		ch.frames++
	}
	w.urgent = p == datasheet.PriorityHigh
	w.low = w.low || !w.urgent
	if !ch.cutter.Active() {
		ch.begin(p)
	}
	which, from := ch.sending, ch.from
	var view []byte
	if !from.gone {
		view = from.view(&w.regions, from.send, false)
	}
	for ended := false; ; {
		at := len(w.filled)
		var cut int
		cut, ended = ch.cut(&w.regions, view, w.payloads[at:min(at+min(most-n, cellRun), len(w.payloads))])
		for range cut {
			w.filled = append(w.filled, ch.header)
		}
		n += cut
		if ended {
			w.filled[len(w.filled)-1] = ch.last
			l.fifos[which].pop()
			w.levels.Transmit[which]--
			from.showSent()
			break
		}
		if n == most || w.full() || w.bells.last.Load() != 0 {
			from.showCell()
			break
		}
	}
	w.progress += uint64(n)
	w.count(datasheet.CounterCellsSent, uint64(n))
	return n
}

// launch sends the frame, if it has any cells. It returns false if the wire takes no more now.
func (w *cellMover) launch() bool {
	if len(w.filled) == 0 {
		return true
	}
	n := len(w.filled) * datasheet.CellSize
	buf := w.tx.reserve(&w.head.Destination, datasheet.HeaderSize+n)
	if buf == nil {
		if w.tries++; w.peers == nil || w.tries < cellTries {
			return false
		}
		w.count(datasheet.CounterCellsDropped, uint64(len(w.filled)))
		w.filled, w.urgent, w.low, w.tries = w.filled[:0], false, false, 0
		return true
	}
	w.tries = 0
	w.head.Length = uint16(n)
	*datasheet.HeaderAt(buf) = w.head
	out := datasheet.CellsAt(buf[datasheet.HeaderSize:])
	for i, head := range w.filled {
		c := &out[i]
		c.Header, c.HEC, c.Tag, c.Payload = head.header, head.hec, head.tag, w.payloads[i]
	}
	w.tx.launch(buf)
	if w.low {
		w.ahead.note(w.lossless)
	}
	w.filled, w.urgent, w.low = w.filled[:0], false, false
	return true
}

// take has the cells of a frame wait in the receive FIFO.
func (w *cellMover) take(ep *endpoint, h *datasheet.Header, payload []byte) verdict {
	ch := channelOf(ep)
	if len(payload) == 0 || len(payload)%datasheet.CellSize != 0 || int32(h.PSN-ch.expect) < 0 {
		return refused // no cells, or a copy of a frame, or one that was overtaken
	}
	ch.expect = h.PSN + 1
	stamp := uint64(w.read() / datasheet.ClockResolution)
	var before cellHead // of the cell before, for whom that was
	var to *endpoint
	var last bool
	arrived := datasheet.CellsAt(payload)
	for i := range arrived {
		c := cellHead{arrived[i].Header, arrived[i].HEC, arrived[i].Tag}
		switch {
		case c == ch.inbound[0], c == ch.inbound[1]: // as mostly: of the channel that the frame names
			to, last = ep, c == ch.inbound[1]
		case i == 0 || c != before:
			to, last = w.receiver(c, h)
		}
		before = c
		switch {
		case to == nil:
			w.count(datasheet.CounterCellsDropped, 1)
		case w.received.n == len(w.received.ring):
			w.count(datasheet.CounterCellsDropped, 1)
			channelOf(to).drop()
		default:
			*w.received.push(&arrived[i].Payload) = arrival{to, to.era, last, stamp}
		}
	}
	w.events |= onCells
	w.hold()
	if l := ch.link; w.received.high() && !l.holding && w.say(l, datasheet.FrameCellStop) {
		l.holding = true
		w.holding++
		w.count(datasheet.CounterChannelStops, 1)
	}
	return taken
}

// receiver is the channel that a cell in a frame is for, nil if there is none.
func (w *cellMover) receiver(c cellHead, h *datasheet.Header) (to *endpoint, last bool) {
	b := [cells.HeaderSize]byte{c.header[0], c.header[1], c.header[2], c.header[3], c.hec}
	head, err := cells.ParseHeader(&b)
	if err != nil || !head.User() || head.VPI != 0 {
		return nil, false
	}
	ep := w.endpoint(uint32(head.VCI))
	if channelOf(ep) == nil || ep.state != datasheet.StateConnected || ep.remote.mac != h.Source ||
		c.tag != cellTag(ep.remote.ourKey) {
		return nil, false
	}
	return ep, head.Last()
}

// store takes cells out of the receive FIFO and puts them where they belong: the oldest, and
// those behind it that are of the same channel, most at least one. It returns how many.
func (w *cellMover) store(most int) (n int) {
	f := &w.received
	first := *f.oldest()
	ep := first.ep
	ch := channelOf(ep)
	// The host may have made room after the last look, and before its peer sent the cell.
	if word := ch.bells.takeReceive(); word != 0 {
		w.bells.rangChannel(ep.id, bellReceive, word)
	}
	view, gone := ch.view(&w.regions, ch.recv, true), ep.era != first.era
	atOnce := most
	if ch.spaced() {
		atOnce = 1
	}
	stored, shown := 0, true
	for n < most && f.n > 0 && f.oldest().of(&first) {
		run, last := f.run(min(atOnce, most-n))
		took := len(run)
		if !gone {
			var reached bool
			took, reached = ch.store(&w.regions, view, run, last)
			if reached {
				stored += took
			}
			if shown = last.last && took == len(run); shown {
				ch.showReceived()
			}
		}
		f.pop(took)
		n += took
	}
	w.hold()
	if !shown {
		ch.showReceived()
	}
	w.count(datasheet.CounterCellsReceived, uint64(stored))
	w.count(datasheet.CounterCellsDropped, uint64(n-stored)) // the connection has ended, or the memory is gone
	w.progress += uint64(n)
	return n
}

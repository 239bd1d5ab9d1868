package channel

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// cellBudget bounds the cells that one round stores and sends.
const cellBudget = 256

// A frame of cells is lost if a wire with many ends has no room for it cellTries times in a row. The
// channels of other peers wait for it. A peer that polls has taken some frames by then.
const cellTries = 64

func (w *Mover) Clear() {
	w.Links, w.busy, w.Holding = map[datasheet.MAC]*cellLink{}, nil, 0
	w.filled, w.payloads, w.urgent, w.low, w.tries, w.ahead, w.Levels = nil, nil, false, false, 0, lowFlight{}, Levels{}
	w.Received = cellFIFO{Config: w.config}
	w.hold()
}

// hold has the engine take no frames while the receive FIFO is too full.
func (w *Mover) hold() {
	if w.Events &^= core.CellsFirst; w.Received.high() {
		w.Events |= core.CellsFirst
	}
}

// join makes a channel that has been connected one of its peer's link.
func (w *Mover) join(ep *core.Endpoint) {
	l := w.Links[ep.Remote.MAC]
	if l == nil {
		l = &cellLink{}
		w.Links[ep.Remote.MAC] = l
	}
	l.members = append(l.members, ep)
	for p := range l.fifos {
		if room := len(l.members)*(datasheet.ChannelDepth+1) + datasheet.ChannelDepth; len(l.fifos[p].ring) < room {
			l.fifos[p].resize(2*room, func(*core.Endpoint) bool { return true })
		}
	}
	channelOf(ep).link = l
	if w.Received.ring == nil {
		w.Received.ring, w.Received.payloads = make([]arrival, w.config.FIFO), make([][cells.PayloadSize]byte, w.config.FIFO)
	}
	if w.filled == nil {
		w.payloads = make([][cells.PayloadSize]byte, min(w.config.PerFrame, int(w.MaxPayload)/datasheet.CellSize))
		w.filled = make([]cellHead, 0, len(w.payloads))
	}
}

func (w *Mover) leave(ep *core.Endpoint) {
	l := channelOf(ep).link
	channelOf(ep).link = nil
	for p := range l.fifos {
		if channelOf(ep).posted[p].n == 0 {
			continue
		}
		w.Levels.Transmit[p] -= channelOf(ep).posted[p].n
		l.fifos[p].resize(len(l.fifos[p].ring), func(other *core.Endpoint) bool { return other != ep })
	}
	l.members = slices.DeleteFunc(l.members, func(other *core.Endpoint) bool { return other == ep })
	if len(l.members) == 0 {
		delete(w.Links, ep.Remote.MAC)
		if l.holding {
			w.Holding--
		}
	}
}

// post takes a word of a send doorbell.
func (w *Mover) post(ep *core.Endpoint, p datasheet.ChannelPriority, word uint32) {
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
	channelOf(to).posted[p].push(message{word, ch})
	w.Levels.Transmit[p]++
	w.Levels.TransmitHighest[p] = max(w.Levels.TransmitHighest[p], w.Levels.Transmit[p])
	ch.showStatus()
	l := channelOf(to).link
	l.fifos[p].push(to)
	if !l.busy {
		l.busy = true
		w.busy = append(w.busy, l)
	}
	w.Events |= core.OnCells
}

// Run stores and sends cells, one after the other, until nothing waits that may go or the budget is
// used up. Of low priority it sends no more than a frame to each peer: while that is under way
// an urgent cell waits. It reports whether there were any.
func (w *Mover) Run() bool { return w.RunUpTo(w.config.PerFrame) }

// RunUpTo is run that sends no more than so many cells of low priority to each peer.
func (w *Mover) RunUpTo(most int) bool {
	before := w.Progress
	turns := len(w.busy)
	low := most
	room := w.launch()
	for budget := cellBudget; budget > 0; {
		if w.Bells.Last.Load() != 0 {
			w.Bells.TakeLinked() // something urgent, perhaps
		}
		var l *cellLink
		waiting := cells.Waiting{Received: w.Received.N > 0, Stopped: !room}
		if turns > 0 {
			l = w.busy[0]
			waiting.High, waiting.Low = l.fifos[datasheet.PriorityHigh].n > 0, l.fifos[datasheet.PriorityLow].n > 0 && low > 0 && !w.ahead.full(w.Lossless)
			waiting.Stopped = waiting.Stopped || l.Stopped
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
	if w.Events &^= core.OnCells; w.Received.N > 0 || len(w.busy) > 0 || len(w.filled) > 0 || w.Holding > 0 {
		w.Events |= core.OnCells
	}
	return w.Progress != before
}

// rotate makes it the next link's turn. A link without messages has none.
func (w *Mover) rotate() {
	l := w.busy[0]
	w.busy = append(w.busy[:0], w.busy[1:]...)
	if l.busy = l.fifos[datasheet.PriorityHigh].n+l.fifos[datasheet.PriorityLow].n > 0; l.busy {
		w.busy = append(w.busy, l)
		return
	}
	l.waiting = 0
}

// full reports whether the frame has no room for another cell.
func (w *Mover) full() bool { return len(w.filled) == len(w.payloads) }

// cellRun is the number of cells that are cut before the next look at the doorbells.
const cellRun = 8

// fill puts cells into the frame: those of the oldest message of a priority. If that is of a
// channel of which a message of low priority is under way, they are of that. It ends with the
// message, with the frame, after most cells, which are at least one, and within cellRun cells of
// a store to a doorbell, which may be urgent. It returns how many cells there were.
func (w *Mover) fill(l *cellLink, p datasheet.ChannelPriority, most int) (n int) {
	ep := *l.fifos[p].at(0)
	ch := channelOf(ep)
	if len(w.filled) == 0 {
		w.head = ep.Outline
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
		view = from.view(&w.Regions, from.send, false)
	}
	for ended := false; ; {
		at := len(w.filled)
		var cut int
		cut, ended = ch.cut(&w.Regions, view, w.payloads[at:min(at+min(most-n, cellRun), len(w.payloads))])
		for range cut {
			w.filled = append(w.filled, ch.header)
		}
		n += cut
		if ended {
			w.filled[len(w.filled)-1] = ch.last
			l.fifos[which].pop()
			w.Levels.Transmit[which]--
			from.showSent()
			break
		}
		if n == most || w.full() || w.Bells.Last.Load() != 0 {
			from.showCell()
			break
		}
	}
	w.Progress += uint64(n)
	w.Count(datasheet.CounterCellsSent, uint64(n))
	return n
}

// launch sends the frame, if it has any cells. It returns false if the wire takes no more now.
func (w *Mover) launch() bool {
	if len(w.filled) == 0 {
		return true
	}
	n := len(w.filled) * datasheet.CellSize
	buf := w.Tx.Reserve(&w.head.Destination, datasheet.HeaderSize+n)
	if buf == nil {
		if w.tries++; w.Peers == nil || w.tries < cellTries {
			return false
		}
		w.Count(datasheet.CounterCellsDropped, uint64(len(w.filled)))
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
	w.Tx.Launch(buf)
	if w.low {
		w.ahead.note(w.Lossless)
	}
	w.filled, w.urgent, w.low = w.filled[:0], false, false
	return true
}

// take has the cells of a frame wait in the receive FIFO.
func (w *Mover) take(ep *core.Endpoint, h *datasheet.Header, payload []byte) core.Verdict {
	ch := channelOf(ep)
	if len(payload) == 0 || len(payload)%datasheet.CellSize != 0 || int32(h.PSN-ch.expect) < 0 {
		return core.Refused // no cells, or a copy of a frame, or one that was overtaken
	}
	ch.expect = h.PSN + 1
	stamp := uint64(w.Read() / datasheet.ClockResolution)
	var before cellHead // of the cell before, for whom that was
	var to *core.Endpoint
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
			w.Count(datasheet.CounterCellsDropped, 1)
		case w.Received.N == len(w.Received.ring):
			w.Count(datasheet.CounterCellsDropped, 1)
			channelOf(to).receive.Drop()
			channelOf(to).showReceived()
		default:
			*w.Received.push(&arrived[i].Payload) = arrival{to, to.Era, last, stamp}
		}
	}
	w.Events |= core.OnCells
	w.hold()
	if l := ch.link; w.Received.high() && !l.holding && w.say(l, datasheet.FrameCellStop) {
		l.holding = true
		w.Holding++
		w.Count(datasheet.CounterChannelStops, 1)
	}
	return core.Taken
}

// receiver is the channel that a cell in a frame is for, nil if there is none.
func (w *Mover) receiver(c cellHead, h *datasheet.Header) (to *core.Endpoint, last bool) {
	b := [cells.HeaderSize]byte{c.header[0], c.header[1], c.header[2], c.header[3], c.hec}
	head, err := cells.ParseHeader(&b)
	if err != nil || !head.User() || head.VPI != 0 {
		return nil, false
	}
	ep := w.Endpoint(uint32(head.VCI))
	if channelOf(ep) == nil || ep.State != datasheet.StateConnected || ep.Remote.MAC != h.Source ||
		c.tag != cellTag(ep.Remote.OurKey) {
		return nil, false
	}
	return ep, head.Last()
}

// store takes cells out of the receive FIFO and puts them where they belong: the oldest, and
// those behind it that are of the same channel, most at least one. It returns how many.
func (w *Mover) store(most int) (n int) {
	f := &w.Received
	first := *f.oldest()
	ep := first.ep
	ch := channelOf(ep)
	// The host may have made room after the last look, and before its peer sent the cell.
	if word := ch.bells.TakeReceive(); word != 0 {
		w.Bells.RangChannel(ep.ID, core.BellReceive, word)
	}
	view, gone := ch.view(&w.Regions, ch.recv, true), ep.Era != first.era
	atOnce := most
	if ch.spaced() {
		atOnce = 1
	}
	stored, shown := 0, true
	for n < most && f.N > 0 && f.oldest().of(&first) {
		run, last := f.run(min(atOnce, most-n))
		took := len(run)
		if !gone {
			var reached bool
			took, reached = ch.store(&w.Regions, view, run, last)
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
	w.Count(datasheet.CounterCellsReceived, uint64(stored))
	w.Count(datasheet.CounterCellsDropped, uint64(n-stored)) // the connection has ended, or the memory is gone
	w.Progress += uint64(n)
	return n
}

package channel

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ended counts a message of the channel's own that has left, or has come to nothing.
func (ch *channel) ended(p datasheet.ChannelPriority) {
	ch.status.Ended[p]++
	ch.under[p]--
}

// connect prepares for cells to a peer, and from it to the channel number. Those to it carry the
// number of the channel there, as cells do behind a switch.
func (ch *channel) connect(number uint32, to *core.Remote) {
	head := func(vci, key uint32, pti uint8) cellHead {
		var b [cells.HeaderSize]byte
		cells.Header{VCI: uint16(vci), PTI: pti}.Put(&b)
		return cellHead{[4]byte(b[:4]), b[4], cellTag(key)}
	}
	for i, pti := range [...]uint8{cells.PTIMore, cells.PTILast} {
		*[...]*cellHead{&ch.header, &ch.last}[i] = head(to.Endpoint, to.TheirKey, pti)
		ch.inbound[i] = head(number, to.OurKey, pti)
	}
	ch.transmit.VCI = uint8(to.Endpoint >> (16 - ch.page.VCIBits()))
	ch.transmit.HEC, ch.transmit.LastHEC = ch.header.hec, ch.last.hec
	ch.frames = 0
}

// cellTag is the part of their receiver's key that the cells of a connection carry.
func cellTag(key uint32) [3]byte { return [3]byte{byte(key), byte(key >> 8), byte(key >> 16)} }

// refusal says why a doorbell's word is not a message, or ChannelTaken.
func (ch *channel) refusal(p datasheet.ChannelPriority, word uint32) datasheet.ChannelResult {
	const none = datasheet.ChannelReserved | datasheet.ChannelKeep
	start, stop := datasheet.ChannelSpan(word)
	switch {
	case word == 0, ch.under[p] == datasheet.ChannelDepth: // zero: it found its word taken
		return datasheet.ChannelFull
	case word&none != 0, start > ch.mask, stop > ch.mask, start == stop:
		return datasheet.ChannelBadOffsets
	case ch.link == nil && !ch.kernel:
		return datasheet.ChannelNotConnected
	}
	return datasheet.ChannelTaken
}

// begin starts with the oldest message of a priority.
func (ch *channel) begin(p datasheet.ChannelPriority) {
	m := ch.posted[p].at(0)
	ch.sending, ch.from = p, m.from
	ch.current, ch.stop = datasheet.ChannelSpan(m.word)
	// The length is good, and no other message is being cut.
	_ = ch.cutter.Start(int((ch.stop-ch.current)&ch.from.mask*datasheet.ChannelWord), 0)
}

// cut makes the payloads of the next cells of the message that is being sent: several while they
// are whole and in view, otherwise one. It returns how many there are, and whether the message has
// ended with the last of them. What the host sees of it showCell or showSent says.
func (ch *channel) cut(m *core.Regions, view []byte, into [][cells.PayloadSize]byte) (n int, ended bool) {
	from := ch.from
	at := int(ch.current) * datasheet.ChannelWord
	n = min(len(into), ch.cutter.Whole(), (len(view)-at)/cells.PayloadSize)
	if n > 0 {
		for i := range n {
			into[i] = [cells.PayloadSize]byte(view[at+i*cells.PayloadSize:])
		}
		ch.current = (ch.current + uint32(n)*(cells.PayloadSize/datasheet.ChannelWord)) & from.mask
		_ = ch.cutter.SealRun(into[:n]) // no more than it says
	} else {
		n, ended = 1, ch.cutOne(m, &into[0])
	}
	from.crc, from.transmit.Current, from.transmit.Stop = ch.cutter.CRC(), uint16(ch.current), uint16(ch.stop)
	if ended {
		from.crc = cells.StartCRC
		ch.posted[ch.sending].pop()
		from.ended(ch.sending)
	}
	return n, ended
}

// cutOne makes the payload of the next cell, and reports whether it is the last of the message.
func (ch *channel) cutOne(m *core.Regions, into *[cells.PayloadSize]byte) (last bool) {
	n, last := ch.cutter.Next()
	if ch.from.gone || !ch.gather(m, into[:n]) {
		ch.from.status.Result[ch.sending] = datasheet.ChannelUnreadable
		ch.current = ch.stop
		ch.cutter.Abort()
		last = true
	}
	ch.cutter.Seal(into)
	return last
}

// gather copies the next bytes of a message out of the double page.
func (ch *channel) gather(m *core.Regions, to []byte) bool {
	from := ch.from
	for len(to) > 0 {
		at := ch.current
		n := min(uint64(len(to)), uint64(from.page.Words()-at)*datasheet.ChannelWord)
		w := m.At(from.send.handle, from.tag, from.send.address+uint64(at)*datasheet.ChannelWord, n, false)
		if w = w[:len(w)&^(datasheet.ChannelWord-1)]; len(w) == 0 {
			return false
		}
		copy(to, w)
		to = to[len(w):]
		ch.current = (at + uint32(len(w)/datasheet.ChannelWord)) & from.mask
	}
	return true
}

// giveUp ends all messages on the channel that have not been sent.
func (ch *channel) giveUp() {
	for p := range datasheet.ChannelPriorities {
		for m := &ch.posted[p]; m.n > 0; m.pop() {
			from := m.at(0).from
			from.ended(p)
			from.status.Result[p] = datasheet.ChannelNotConnected
		}
	}
	if ch.cutter.Active() {
		ch.from.crc, ch.from.transmit.Current = cells.StartCRC, ch.from.transmit.Stop
	}
	ch.cutter, ch.from = cells.Cutter{}, nil
}

// showSent lets the host see how far sending has come: the status last.
func (ch *channel) showSent() {
	ch.showCell()
	ch.showStatus()
}

// showStatus is showSent for a store of which nothing has been sent yet.
func (ch *channel) showStatus() {
	datasheet.StoreWord(&ch.control.SendStatus, ch.status.Encode())
}

// showCell is showSent for a cell that does not end a message.
func (ch *channel) showCell() {
	c := ch.control
	datasheet.StoreWord32(&c.SendCRC, uint32(ch.crc))
	datasheet.StoreWord(&c.Transmit, ch.transmit.Encode(ch.page))
}

// Channel 0 (SPEC.md 16.6) sends on the other channels: which one, the first word of a message
// says. Its messages wait among those of that channel, and what becomes of them its own control
// page tells.

// address finds out where a message of channel 0 is to go, and what is left of it then. It
// returns ChannelTaken, or why it goes nowhere.
func (w *Mover) address(ch *channel, word uint32) (to *core.Endpoint, rest uint32, why datasheet.ChannelResult) {
	start, stop := datasheet.ChannelSpan(word)
	first := (start + 1) & ch.mask
	if first == stop {
		return nil, 0, datasheet.ChannelBadOffsets
	}
	number := w.Regions.At(ch.send.handle, ch.tag, ch.send.address+uint64(start)*datasheet.ChannelWord, datasheet.ChannelWord, false)
	if len(number) < datasheet.ChannelWord {
		return nil, 0, datasheet.ChannelUnreadable
	}
	n := binary.LittleEndian.Uint64(number)
	if n >= uint64(len(w.All)) {
		return nil, 0, datasheet.ChannelNotConnected
	}
	if to = w.Endpoint(uint32(n)); channelOf(to) == nil || channelOf(to).link == nil {
		return nil, 0, datasheet.ChannelNotConnected
	}
	return to, datasheet.ChannelBell(first, stop), datasheet.ChannelTaken
}

// withdraw takes back the messages of a channel 0 that is being destroyed. Those that have been
// begun end with an aborted PDU.
func (w *Mover) withdraw(ch *channel) {
	for _, l := range w.Links {
		for p := range l.fifos {
			seen := map[*core.Endpoint]int{}
			l.fifos[p].resize(len(l.fifos[p].ring), func(ep *core.Endpoint) bool {
				i := seen[ep]
				seen[ep]++
				to := channelOf(ep)
				begun := i == 0 && to.cutter.Active() && to.sending == datasheet.ChannelPriority(p)
				return begun || to.posted[p].at(i).from != ch
			})
		}
		for _, ep := range l.members {
			to := channelOf(ep)
			for p := range to.posted {
				posted, i := &to.posted[p], 0
				w.Levels.Transmit[p] -= posted.n
				posted.resize(mostMessages, func(m message) bool {
					i++
					begun := i == 1 && to.cutter.Active() && to.sending == datasheet.ChannelPriority(p)
					return begun || m.from != ch
				})
				w.Levels.Transmit[p] += posted.n
			}
		}
	}
	// What is still to be told of it is not read.
	ch.gone, ch.control = true, new(datasheet.ChannelControl)
}

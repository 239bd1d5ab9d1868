package engine

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/pipeline/cells"
)

// channelSender is the sending half of a channel.
type channelSender struct {
	transmit descriptors.TransmitWord
	status   descriptors.SendStatus
	posted   [descriptors.ChannelPriorities]messages
	// At most one message of a channel is cut into cells, since those of two could not be
	// told apart. It is the oldest of the priority sending.
	cutter  cells.Cutter
	sending descriptors.ChannelPriority
	crc     cells.CRC
	// headers of its cells, and of the last one of a PDU, with the key's tag.
	header, last descriptors.Cell
	frames       uint32 // of cells that were sent for the connection
}

// messages are the doorbells of one priority that were taken, oldest first.
type messages struct {
	words    [descriptors.ChannelDepth]uint32
	first, n uint8
}

func (m *messages) push(word uint32) {
	m.words[(m.first+m.n)%descriptors.ChannelDepth] = word
	m.n++
}

func (m *messages) pop() {
	m.first = (m.first + 1) % descriptors.ChannelDepth
	m.n--
}

// connect prepares for cells to a peer. They carry the number of the channel there, as cells
// do behind a switch.
func (ch *channel) connect(to *remote) {
	h := cells.Header{VCI: uint16(to.endpoint), PTI: cells.PTIMore}
	for _, c := range []*descriptors.Cell{&ch.header, &ch.last} {
		var b [cells.HeaderSize]byte
		h.Put(&b)
		copy(c.Header[:], b[:])
		c.HEC, c.Tag = b[4], cellTag(to.theirKey)
		h.PTI = cells.PTILast
	}
	ch.transmit.VCI = uint8(to.endpoint >> (16 - ch.page.VCIBits()))
	ch.transmit.HEC, ch.transmit.LastHEC = ch.header.HEC, ch.last.HEC
	ch.frames = 0
}

// cellTag is what the cells of a connection carry of the key that their receiver drew.
func cellTag(key uint32) [3]byte { return [3]byte{byte(key), byte(key >> 8), byte(key >> 16)} }

// refusal says why a doorbell's word is not a message, or ChannelTaken.
func (ch *channel) refusal(p descriptors.ChannelPriority, word uint32) descriptors.ChannelResult {
	const none = descriptors.ChannelReserved | descriptors.ChannelKeep
	start, stop := descriptors.ChannelSpan(word)
	switch {
	case word == 0, ch.posted[p].n == descriptors.ChannelDepth: // zero: it found its word taken
		return descriptors.ChannelFull
	case word&none != 0, start > ch.mask, stop > ch.mask, start == stop:
		return descriptors.ChannelBadOffsets
	case ch.link == nil:
		return descriptors.ChannelNotConnected
	}
	return descriptors.ChannelTaken
}

// begin starts with the oldest message of a priority.
func (ch *channel) begin(p descriptors.ChannelPriority) {
	m := &ch.posted[p]
	start, stop := descriptors.ChannelSpan(m.words[m.first])
	ch.transmit.Current, ch.transmit.Stop, ch.sending = uint16(start), uint16(stop), p
	// The length is good, and no other message is being cut.
	_ = ch.cutter.Start(int((stop-start)&ch.mask*descriptors.ChannelWord), 0)
}

// cut makes the next cell of the message that is being sent, from view if that is not nil. It
// reports whether the message has ended. What the host sees of it showCell or showSent says.
func (ch *channel) cut(m *regions, tag uint32, view []byte, into *descriptors.Cell) (ended bool) {
	n, last := ch.cutter.Next()
	into.Header, into.HEC, into.Tag = ch.header.Header, ch.header.HEC, ch.header.Tag
	at := int(ch.transmit.Current) * descriptors.ChannelWord
	if n == descriptors.CellPayload && at+n <= len(view) {
		into.Payload = [descriptors.CellPayload]byte(view[at:])
		ch.transmit.Current = uint16((uint32(ch.transmit.Current) + descriptors.CellPayload/descriptors.ChannelWord) & ch.mask)
	} else if !ch.gather(m, tag, into.Payload[:n]) {
		ch.status.Result[ch.sending] = descriptors.ChannelUnreadable
		ch.transmit.Current = ch.transmit.Stop
		ch.cutter.Abort()
		n, last = 0, true
	}
	if last {
		into.Header, into.HEC = ch.last.Header, ch.last.HEC
	}
	ch.cutter.Seal(&into.Payload)
	ch.crc = ch.cutter.CRC()
	if last {
		ch.crc = cells.StartCRC
		ch.posted[ch.sending].pop()
		ch.status.Ended[ch.sending]++
	}
	return last
}

// gather copies the next bytes of a message out of the double page.
func (ch *channel) gather(m *regions, tag uint32, to []byte) bool {
	for len(to) > 0 {
		at := uint32(ch.transmit.Current)
		n := min(uint64(len(to)), uint64(ch.page.Words()-at)*descriptors.ChannelWord)
		w := m.at(ch.send.handle, tag, ch.send.address+uint64(at)*descriptors.ChannelWord, n, false)
		if w = w[:len(w)&^(descriptors.ChannelWord-1)]; len(w) == 0 {
			return false
		}
		copy(to, w)
		to = to[len(w):]
		ch.transmit.Current = uint16((at + uint32(len(w)/descriptors.ChannelWord)) & ch.mask)
	}
	return true
}

// giveUp ends all messages that have not been sent.
func (ch *channel) giveUp() {
	for p := range ch.posted {
		if n := ch.posted[p].n; n > 0 {
			ch.status.Ended[p] += n
			ch.status.Result[p] = descriptors.ChannelNotConnected
			ch.posted[p] = messages{}
		}
	}
	ch.cutter, ch.crc = cells.Cutter{}, cells.StartCRC
	ch.transmit.Current = ch.transmit.Stop
}

// showSent lets the host see how far sending has come: the status last.
func (ch *channel) showSent() {
	ch.showCell()
	descriptors.StoreWord(&ch.control.SendStatus, ch.status.Encode())
}

// showCell is showSent for a cell that does not end a message.
func (ch *channel) showCell() {
	c := ch.control
	descriptors.StoreWord32(&c.SendCRC, uint32(ch.crc))
	descriptors.StoreWord(&c.Transmit, ch.transmit.Encode(ch.page))
}

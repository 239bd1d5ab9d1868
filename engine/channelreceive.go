package engine

import (
	"encoding/binary"
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/cells"
)

// allow takes a word of the receive doorbell. It returns false if that makes no sense.
func (ch *channel) allow(word uint32) bool {
	start, stop := descriptors.ChannelSpan(word)
	if word&descriptors.ChannelRung == 0 || word&descriptors.ChannelReserved != 0 || start > ch.mask || stop > ch.mask {
		return false
	}
	if word&descriptors.ChannelKeep == 0 {
		ch.receive.Current = uint16(start)
	}
	ch.receive.Stop = uint16(stop)
	ch.receive.Status &^= descriptors.ChannelCut | descriptors.ChannelUnreachable
	ch.showReceived()
	return true
}

// drop counts a cell of the channel that is lost.
func (ch *channel) drop() {
	ch.receive.Drop()
	ch.showReceived()
}

// spaced reports whether something is stored behind each cell, and not only behind a PDU.
func (ch *channel) spaced() bool { return ch.receive.Status&descriptors.ChannelSpaced != 0 }

// store puts cells of a PDU where they belong, into view if that is not nil, and behind the
// last one, which a is, what the host is to know; of a spaced channel it takes one cell. It
// returns how many of them it has taken, one at least, and false if the double page is out of
// reach: then that cell is dropped, but counts as part of its PDU. What the host sees of it
// showReceived says.
func (ch *channel) store(m *regions, view []byte, run [][cells.PayloadSize]byte, a *arrival) (n int, reached bool) {
	at := int(ch.receive.Current) * descriptors.ChannelWord
	n = min(len(run), int(ch.room())/cells.PayloadSize, (len(view)-at)/cells.PayloadSize)
	if n > 0 {
		for i := range n {
			*(*[cells.PayloadSize]byte)(view[at+i*cells.PayloadSize:]) = run[i]
		}
		reached = true
		ch.receive.Current = uint16((uint32(ch.receive.Current) + uint32(n)*(cells.PayloadSize/descriptors.ChannelWord)) & ch.mask)
	} else {
		n = 1
		reached = ch.scatter(m, run[0][:])
	}
	last := a.last && n == len(run)
	t, err := ch.assembly.AddRun(run[:n], last)
	if last || ch.spaced() {
		crc := ch.assembly.CRC()
		if last {
			crc = cells.CRC(t.CRC)
		}
		var behind [2 * descriptors.ChannelWord]byte
		binary.LittleEndian.PutUint64(behind[:], uint64(crc))
		binary.LittleEndian.PutUint64(behind[descriptors.ChannelWord:], a.stamp)
		reached = ch.scatter(m, behind[:]) && reached
	}
	if !reached {
		ch.receive.Drop()
		ch.receive.Status |= descriptors.ChannelUnreachable
		ch.cutShort = true
	}
	if last {
		ch.end(t, err)
	}
	return n, reached
}

// room is how many bytes may be written before Stop is reached.
func (ch *channel) room() uint32 {
	return (uint32(ch.receive.Stop) - uint32(ch.receive.Current)) & ch.mask * descriptors.ChannelWord
}

// end counts a PDU whose last cell has come.
func (ch *channel) end(t cells.Trailer, err error) {
	end := descriptors.ChannelEnd(t.Length) | descriptors.ChannelEnd(ch.receive.Current)<<16
	st := ch.receive.Status &^ (descriptors.ChannelBadCRC | descriptors.ChannelBadLength | descriptors.ChannelAborted)
	switch {
	case errors.Is(err, cells.ErrCRC):
		st, end = st|descriptors.ChannelBadCRC, end|descriptors.ChannelEndBadCRC
	case errors.Is(err, cells.ErrAborted):
		st, end = st|descriptors.ChannelAborted, end|descriptors.ChannelEndAborted
	case err != nil:
		st, end = st|descriptors.ChannelBadLength, end|descriptors.ChannelEndBadLength
	}
	if ch.cutShort {
		end |= descriptors.ChannelEndCut
	}
	descriptors.StoreWord32(&ch.ends[ch.receive.PDUs], uint32(end))
	ch.receive.Status, ch.cutShort = st, false
	ch.receive.PDUs++
}

// scatter writes words from Current on, up to Stop. It returns false if the double page is
// out of reach; what is written is what could be.
func (ch *channel) scatter(m *regions, from []byte) bool {
	r := &ch.receive
	if room := ch.room(); room < uint32(len(from)) {
		r.Status |= descriptors.ChannelCut
		ch.cutShort = true
		from = from[:room]
	}
	for len(from) > 0 {
		at := uint32(r.Current)
		n := min(uint64(len(from)), uint64(ch.page.Words()-at)*descriptors.ChannelWord)
		w := m.at(ch.recv.handle, ch.tag, ch.recv.address+uint64(at)*descriptors.ChannelWord, n, true)
		if w = w[:len(w)&^(descriptors.ChannelWord-1)]; len(w) == 0 {
			return false
		}
		copy(w, from)
		from = from[len(w):]
		r.Current = uint16((at + uint32(len(w)/descriptors.ChannelWord)) & ch.mask)
	}
	return true
}

// showReceived lets the host see what has been received: the word last.
func (ch *channel) showReceived() {
	descriptors.StoreWord32(&ch.control.RecvCRC, uint32(ch.assembly.CRC()))
	descriptors.StoreWord(&ch.control.Receive, ch.receive.Encode(ch.page))
}

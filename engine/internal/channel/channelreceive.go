package channel

import (
	"encoding/binary"
	"errors"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// allow takes a word of the receive doorbell. It returns false if that makes no sense.
func (ch *channel) allow(word uint32) bool {
	start, stop := datasheet.ChannelSpan(word)
	if word&datasheet.ChannelRung == 0 || word&datasheet.ChannelReserved != 0 || start > ch.mask || stop > ch.mask {
		return false
	}
	if word&datasheet.ChannelKeep == 0 {
		ch.receive.Current = uint16(start)
	}
	ch.receive.Stop = uint16(stop)
	ch.receive.Status &^= datasheet.ChannelCut | datasheet.ChannelUnreachable
	ch.showReceived()
	return true
}

// spaced reports whether something is stored behind each cell, and not only behind a PDU.
func (ch *channel) spaced() bool { return ch.receive.Status&datasheet.ChannelSpaced != 0 }

// store puts cells of a PDU where they belong, into view if that is not nil, and behind the
// last one, which a is, what the host is to know; of a spaced channel it takes one cell. It
// returns how many of them it has taken, one at least, and false if the double page is out of
// reach: then that cell is dropped, but counts as part of its PDU. What the host sees of it
// showReceived says.
func (ch *channel) store(m *core.Regions, view []byte, run [][cells.PayloadSize]byte, a *arrival) (n int, reached bool) {
	at := int(ch.receive.Current) * datasheet.ChannelWord
	n = min(len(run), int(ch.room())/cells.PayloadSize, (len(view)-at)/cells.PayloadSize)
	if n > 0 {
		for i := range n {
			*(*[cells.PayloadSize]byte)(view[at+i*cells.PayloadSize:]) = run[i]
		}
		reached = true
		ch.receive.Current = uint16((uint32(ch.receive.Current) + uint32(n)*(cells.PayloadSize/datasheet.ChannelWord)) & ch.mask)
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
		var behind [2 * datasheet.ChannelWord]byte
		binary.LittleEndian.PutUint64(behind[:], uint64(crc))
		binary.LittleEndian.PutUint64(behind[datasheet.ChannelWord:], a.stamp)
		reached = ch.scatter(m, behind[:]) && reached
	}
	if !reached {
		ch.receive.Drop()
		ch.receive.Status |= datasheet.ChannelUnreachable
		ch.cutShort = true
	}
	if last {
		ch.end(t, err)
	}
	return n, reached
}

// room returns the number of bytes that may be written before Stop is reached.
func (ch *channel) room() uint32 {
	return (uint32(ch.receive.Stop) - uint32(ch.receive.Current)) & ch.mask * datasheet.ChannelWord
}

// end counts a PDU whose last cell has come.
func (ch *channel) end(t cells.Trailer, err error) {
	end := datasheet.ChannelEnd(t.Length) | datasheet.ChannelEnd(ch.receive.Current)<<16
	st := ch.receive.Status &^ (datasheet.ChannelBadCRC | datasheet.ChannelBadLength | datasheet.ChannelAborted)
	switch {
	case errors.Is(err, cells.ErrCRC):
		st, end = st|datasheet.ChannelBadCRC, end|datasheet.ChannelEndBadCRC
	case errors.Is(err, cells.ErrAborted):
		st, end = st|datasheet.ChannelAborted, end|datasheet.ChannelEndAborted
	case err != nil:
		st, end = st|datasheet.ChannelBadLength, end|datasheet.ChannelEndBadLength
	}
	if ch.cutShort {
		end |= datasheet.ChannelEndCut
	}
	datasheet.StoreWord32(&ch.ends[ch.receive.PDUs], uint32(end))
	ch.receive.Status, ch.cutShort = st, false
	ch.receive.PDUs++
}

// scatter writes words from Current on, up to Stop. It returns false if the double page is
// out of reach, after it has written what could be.
func (ch *channel) scatter(m *core.Regions, from []byte) bool {
	r := &ch.receive
	if room := ch.room(); room < uint32(len(from)) {
		r.Status |= datasheet.ChannelCut
		ch.cutShort = true
		from = from[:room]
	}
	for len(from) > 0 {
		at := uint32(r.Current)
		n := min(uint64(len(from)), uint64(ch.page.Words()-at)*datasheet.ChannelWord)
		w := m.At(ch.recv.handle, ch.tag, ch.recv.address+uint64(at)*datasheet.ChannelWord, n, true)
		if w = w[:len(w)&^(datasheet.ChannelWord-1)]; len(w) == 0 {
			return false
		}
		copy(w, from)
		from = from[len(w):]
		r.Current = uint16((at + uint32(len(w)/datasheet.ChannelWord)) & ch.mask)
	}
	return true
}

// showReceived lets the host see what has been received: the word last.
func (ch *channel) showReceived() {
	datasheet.StoreWord32(&ch.control.RecvCRC, uint32(ch.assembly.CRC()))
	datasheet.StoreWord(&ch.control.Receive, ch.receive.Encode(ch.page))
}

package conform

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// pageSizes are all that there are, in bytes.
var pageSizes = []int{4096, 8192, 16384}

// testChannelOneCell sends messages of one cell both ways: all that the receiver learns of them is as
// SPEC.md 16.2 has it.
func testChannelOneCell(w *World) {
	x, y := w.channels(channel.Options{})
	for i := range 10 {
		for _, way := range [][2]*channel.Channel{{x, y}, {y, x}} {
			from, to := way[0], way[1]
			want := w.words(1 + i%5)
			m := w.deliver(from, to, channel.Priority(i%2), i*100, want)
			took := (m.End - m.Start + to.Words()) % to.Words()
			wantEqual(w, took, datasheet.CellPayload/channel.Word+2, "words of a cell, its CRC and its clock")
			wantEqual(w, m.CRC, crcOf(want), "CRC")
			w.releasePDU(to, m)
		}
	}
	_, err := x.Poll()
	wantEqual(w, err, error(via.ErrNotDone), "the bare error")
	w.wantNoDrops(x, y)
}

// wantNoDrops: no cell of the channels was dropped.
func (w *World) wantNoDrops(channels ...*channel.Channel) {
	w.Helper()
	for i, c := range channels {
		if drops, err := c.Drops(); drops.Cells != 0 || drops.Many || err != nil {
			w.Errorf("channel %d: %+v, %v", i, drops, err)
		}
	}
}

// crcOf is the CRC of AAL5 of a message.
func crcOf(b []byte) uint32 {
	pdu := append(bytes.Clone(b), make([]byte, cells.Count(len(b))*cells.PayloadSize-len(b))...)
	trailer := cells.Trailer{Length: uint16(len(b))}
	trailer.Put((*[cells.TrailerSize]byte)(pdu[len(pdu)-cells.TrailerSize:]))
	return cells.StartCRC.Update(pdu[:len(pdu)-4]).Sum()
}

// testChannelMessages sends messages of many sizes from many places, at both priorities, over
// channels with pages of each size, packed and spaced.
func testChannelMessages(w *World) {
	for i, size := range pageSizes {
		for _, spaced := range []bool{false, true} {
			x, y := w.channels(channel.Options{PageSize: size, Spaced: spaced})
			if x.Words() != 2*size/channel.Word || y.Words() != x.Words() {
				w.Errorf("pages of %d bytes: %d and %d words", size, x.Words(), y.Words())
			}
			end := 0
			for j := range 24 {
				n := 1 + (j*j*7+i)%(x.Words()/2)
				if w.losing.Load() {
					n = min(n, shortMessage)
				}
				want := w.words(n)
				var m channel.PDU
				start := j * 211 % x.Words()
				stop := w.putWords(x, start, want)
				if !w.try("a message", n, func() (there bool) {
					w.sendWords(x, channel.Priority(j%2), start, stop)
					m, there = w.takePDU(y, want)
					return there
				}) {
					continue
				}
				if !w.losing.Load() && m.Start != end {
					w.Errorf("message %d begins at %d, the one before ends at %d", j, m.Start, end)
				}
				wantEqual(w, m.CRC, crcOf(want), "the CRC of message %d", j)
				end = m.End
				w.releasePDU(y, m)
			}
			w.wantNoDrops(x, y)
			OK(w, x.Close())
			OK(w, y.Close())
		}
	}
}

// testChannelWraps sends messages that run from page 0 into page 1, over the end of the double
// page, or that fill almost all of it.
func testChannelWraps(w *World) {
	for _, size := range pageSizes {
		x, y := w.channels(channel.Options{PageSize: size})
		words, page := x.Words(), x.Words()/2
		for _, c := range []struct{ start, length int }{
			{page - 1, 2}, {words - 1, 2}, {words - 1, 1}, {page - 14, 14 + page + 5}, {page - 1, page + 2}, {0, page}, {page, page}, {3, words - 14}, {0, words - 14},
		} {
			// It lands at the same offset.
			want := w.words(c.length)
			stop := w.putWords(x, c.start, want)
			wantEqual(w, stop, (c.start+c.length)%words, "the end of %d words from %d", c.length, c.start)
			if !w.try("a message around the double page", c.length, func() bool {
				w.allowWords(y, c.start, (c.start+words-1)%words)
				w.sendWords(x, channel.Low, c.start, stop)
				m, there := w.nextPDU(y)
				switch {
				case !there || m.Err != nil:
					return false
				case m.Start != c.start || !bytes.Equal(readPDU(y, m), want):
					return w.differs("%d words from %d are %+v", c.length, c.start, m)
				}
				return true
			}) {
				continue
			}
			pages := y.RecvPages().Bytes()
			if twice := slices.Concat(pages, pages); !bytes.HasPrefix(twice[c.start*channel.Word:], want) {
				w.Fatalf("%d words from %d differ in the double page", c.length, c.start)
			}
		}
		OK(w, x.Close())
		OK(w, y.Close())
	}
}

// testChannelSpaced looks at what stands behind each cell of a spaced channel.
func testChannelSpaced(w *World) {
	x, y := w.channels(channel.Options{Spaced: true})
	const count = 7
	want := w.words(count*6 - 2) // with the trailer so many cells
	m := w.deliver(x, y, channel.High, 1000, want)
	if took := (m.End - m.Start + y.Words()) % y.Words(); took != count*8 {
		w.Fatalf("%d cells take %d words", count, took)
	}
	pages := y.RecvPages().Bytes()
	state, last := cells.StartCRC, uint64(0)
	for i := range count {
		cell := pages[(m.Start+8*i)%y.Words()*channel.Word:][:8*channel.Word]
		payload := cell[:datasheet.CellPayload]
		crc := uint32(state.Update(payload))
		if i == count-1 {
			crc = crcOf(want)
		}
		state = state.Update(payload)
		wantEqual(w, binary.LittleEndian.Uint32(cell[datasheet.CellPayload:]), crc, "the CRC of cell %d", i)
		clock := binary.LittleEndian.Uint64(cell[datasheet.CellPayload+channel.Word:])
		if clock < last {
			w.Errorf("cell %d came at %d, the one before at %d", i, clock, last)
		}
		last = clock
	}
	wantEqual(w, m.Stamp, time.Duration(last)*datasheet.ClockResolution, "stamp")
}

// testChannelRoom has messages find less room than they need: nothing is written at the stop offset
// and behind, the message says so, and the next one is whole.
func testChannelRoom(w *World) {
	x, y := w.channels(channel.Options{})
	pages := y.RecvPages().Bytes()
	want := w.words(8) // with its trailer two cells
	stop := w.putWords(x, 0, want)
	for _, room := range []int{0, 1, 2, 6, 7, 11, 12, 13, 14} {
		for i := range pages {
			pages[i] = 0xee
		}
		const start = 1020 // the room runs over the end
		w.try("a message that is cut", len(want)/channel.Word, func() bool {
			w.allowWords(y, start, (start+room)%y.Words())
			w.sendWords(x, channel.High, 0, stop)
			m, there := w.nextPDU(y)
			switch {
			case !there || m.Err == channel.ErrCRC || m.Err == channel.ErrLength:
				return false
			case room == 14 && (m.Err != nil || !bytes.Equal(readPDU(y, m), want)):
				w.Errorf("%+v in as much room as it needs", m)
			case room < 14 && (m.Err != channel.ErrCut || m.CRC != 0 || m.Stamp != 0):
				w.Errorf("%+v in %d words", m, room)
			case m.Start != start || m.End != (start+room)%y.Words() || m.Length != len(want):
				w.Errorf("%+v, from %d on in %d words", m, start, room)
			}
			return true
		})
		for i := range y.Words() {
			word := pages[(start+i)%y.Words()*channel.Word:][:channel.Word]
			switch {
			case i < min(room, 8) && !bytes.Equal(word, want[i*channel.Word:][:channel.Word]):
				w.Errorf("word %d of room for %d differs", i, room)
			case i >= room && !bytes.Equal(word, bytes.Repeat([]byte{0xee}, channel.Word)):
				w.Errorf("word %d was written, with room for %d", i, room)
			}
		}
	}
	w.allowWords(y, 7, 100)
	if m := w.deliver(x, y, channel.Low, 3, w.words(5)); !w.losing.Load() && m.Start != 7 {
		w.Errorf("%+v, after new room from 7 on", m)
	}
	w.wantNoDrops(x, y)
}

// testChannelManyBeforeALook has messages come before the receiver looks, which tells them apart.
func testChannelManyBeforeALook(w *World) {
	x, y := w.channels(channel.Options{})
	const n = 100 // of a cell each: they have room
	w.try("messages before one look", 2*n, func() bool {
		first := w.number + 1
		for i := range n {
			w.sendWords(x, channel.Low, 2*i, x.SendPages().Put(2*i, w.words(2)))
		}
		OK(w, x.Flush(w.Context()))
		for i := range n {
			m, there := w.nextPDU(y)
			if !there || m.Err != nil {
				// What comes of the rest is in the way of the next attempt.
				for there {
					m, there = w.nextPDU(y)
				}
				w.allowWords(y, 0, y.Words()-1)
				return false
			}
			if got := numberOf(readPDU(y, m)); got != first+uint64(i) && !w.lost() {
				w.Fatalf("message %d, want %d", got, first+uint64(i))
			}
			w.releasePDU(y, m)
		}
		return true
	})
}

// testChannelStamps: each message bears the time of its arrival by the receiving NIC's clock.
func testChannelStamps(w *World) {
	x, y := w.channels(channel.Options{})
	clock := func() time.Duration { return Must(w.B.Clock())(w) }
	last := time.Duration(0)
	for i := range 20 {
		before := clock()
		m := w.deliver(x, y, channel.Priority(i%2), 0, w.words(1+i))
		after := clock()
		// Stamps are rounded down to their unit.
		if m.Stamp < before-datasheet.ClockResolution || m.Stamp > after || m.Stamp < last || m.Stamp%datasheet.ClockResolution != 0 {
			w.Errorf("message %d came at %v, between %v and %v; the one before at %v", i, m.Stamp, before, after, last)
		}
		last = m.Stamp
		w.releasePDU(y, m)
	}
}

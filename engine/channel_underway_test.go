package engine_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestChannelChangesUnderWay: while a message is being sent its words change, its control page is
// written to, others are posted over the same words, and the receiver moves its offsets: each
// cell has the words that were there when it was made, and goes where it was to go when it came.
func TestChannelChangesUnderWay(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(1, 900)
	w.settle()
	was, is := bytes.Repeat([]byte{1}, 6000), bytes.Repeat([]byte{2}, 6000)
	a.post(datasheet.PriorityLow, 3, a.put(3, was))
	for b.received().Current == 1 {
		w.a.e.Step()
		w.b.e.Step()
	}
	made, stored := int(a.transmit().Current)-3, int(b.received().Current)-1
	if made < 6 || made >= 750 || stored > made {
		t.Fatalf("%d words are made into cells, %d stored", made, stored)
	}
	a.put(3, is)
	datasheet.StoreWord(&a.control.Transmit, ^uint64(0))
	datasheet.StoreWord(&a.control.SendStatus, 0)
	a.post(datasheet.PriorityLow, 5, 7)
	b.allow(101, 1001)
	w.settle()
	if got := b.received(); got.PDUs != 2 || !b.end(0).Whole() || !b.end(1).Whole() {
		t.Fatalf("%+v, %08x %08x", got, b.end(0), b.end(1))
	}
	got := append(b.at(1, 8*stored), b.at(101, 6000-8*stored)...)
	// More of it may have been made into cells, and not stored, than was looked at.
	change := bytes.IndexByte(got, 2)
	if change < 8*made || change%8 != 0 || !bytes.Equal(got, slices.Concat(was[:change], is[change:])) {
		t.Errorf("%d words were made into cells, the message changes at byte %d", made, change)
	}
}

// TestChannelForgedLength: a length that does not fit the cells, though the CRC does, is the
// PDU's error and nobody else's; so is a length of zero.
func TestChannelForgedLength(t *testing.T) {
	for length, want := range map[uint16]datasheet.ChannelEnd{
		0: datasheet.ChannelEndAborted, 1: datasheet.ChannelEndBadLength, 88: 0, 89: datasheet.ChannelEndBadLength, 65535: datasheet.ChannelEndBadLength,
	} {
		w := newChannelWorld(t)
		a, b := w.pair(nil)
		b.allow(0, 1000)
		var pdu []byte
		forged := false
		w.a.port.spoil = func(frame []byte) [][]byte {
			if datasheet.HeaderAt(frame).Type != datasheet.FrameCells || forged {
				return [][]byte{frame}
			}
			all := datasheet.CellsAt(frame[datasheet.HeaderSize:])
			for i := range all {
				pdu = append(pdu, all[i].Payload[:]...)
				if all[i].Header[3]>>1&1 == 0 {
					continue
				}
				forged = true
				tail := (*[cells.TrailerSize]byte)(pdu[len(pdu)-cells.TrailerSize:])
				trailer := cells.Trailer{Length: length}
				trailer.Put(tail)
				trailer.CRC = cells.StartCRC.Update(pdu[:len(pdu)-4]).Sum()
				trailer.Put(tail)
				copy(all[i].Payload[:], pdu[len(pdu)-cells.PayloadSize:])
				break
			}
			return [][]byte{frame}
		}
		message := pattern(88, 1) // two cells, all but full
		a.post(datasheet.PriorityHigh, 0, a.put(0, message))
		w.settle()
		a.post(datasheet.PriorityHigh, 0, 11)
		w.settle()
		const errors = datasheet.ChannelEndBadCRC | datasheet.ChannelEndBadLength | datasheet.ChannelEndAborted | datasheet.ChannelEndCut
		if got := b.received(); !forged || got.PDUs != 2 || b.end(0)&errors != want || b.end(0).Length() != int(length) || !b.end(1).Whole() {
			t.Errorf("length %d: %+v, %08x, %08x", length, got, b.end(0), b.end(1))
		}
	}
}

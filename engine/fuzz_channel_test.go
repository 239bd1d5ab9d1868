package engine_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// guarded is a pair of channels of which all memory is looked at afterwards.
type guarded struct {
	*channelWorld
	a, b   *channelEnd
	header datasheet.Header // of the frames of cells from a to b
}

func newGuarded(t testing.TB) *guarded {
	g := &guarded{channelWorld: newChannelWorld(t)}
	g.a, g.b = g.pair(nil)
	g.b.allow(0, 1000)
	g.world.a.port.spoil = func(frame []byte) [][]byte {
		g.header = *datasheet.HeaderAt(frame)
		return [][]byte{frame}
	}
	g.a.post(datasheet.PriorityLow, 0, 1)
	g.settle()
	g.world.a.port.spoil = nil
	must.Be(t, g.header.Type, datasheet.FrameCells, "the frame")
	return g
}

// check compares all memory but the receiving double page with what it was.
func (g *guarded) check(t *testing.T, before []byte) {
	t.Helper()
	clear(g.b.recv)
	must.Same(t, g.world.b.mem, before, "memory outside the double page was written")
	w := g.b.received()
	if w.Stop > 1023 || w.Current > 1023 {
		t.Fatalf("%+v", w)
	}
}

// FuzzCells has a NIC take frames of cells of any content, of a peer that knows the keys.
func FuzzCells(f *testing.F) {
	f.Add([]byte{0}, false)
	f.Add(bytes.Repeat([]byte{1}, 2*datasheet.CellSize), true)
	f.Fuzz(func(t *testing.T, data []byte, sound bool) {
		g := newGuarded(t)
		clear(g.b.recv)
		before := bytes.Clone(g.world.b.mem)
		for n := uint32(1); len(data) > 0 && n < 50; n++ {
			size := min(len(data), 1+int(data[0])*8, 1900)
			frame := alignedBytes(datasheet.HeaderSize + size)
			*datasheet.HeaderAt(frame) = g.header
			h := datasheet.HeaderAt(frame)
			h.Length, h.PSN = uint16(size), g.header.PSN+n
			copy(frame[datasheet.HeaderSize:], data[:size])
			data = data[size:]
			if sound { // all but what the cell says to its channel is right
				for i := range datasheet.CellsAt(frame[datasheet.HeaderSize:]) {
					c := &datasheet.CellsAt(frame[datasheet.HeaderSize:])[i]
					last := uint8(c.Header[3]) & 1
					rehead(c, cells.Header{VCI: uint16(g.b.id), PTI: last})
					c.Tag = [3]byte{byte(g.header.Key), byte(g.header.Key >> 8), byte(g.header.Key >> 16)}
				}
				h.Length = uint16(size / datasheet.CellSize * datasheet.CellSize)
			}
			*g.world.b.port.in = append(*g.world.b.port.in, frame)
			g.settle()
		}
		g.check(t, before)
	})
}

// FuzzChannelDoorbells stores anything anywhere in the page of a channel, at both ends, and in that
// of channel 0, whose messages go on the first end's.
func FuzzChannelDoorbells(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0x10, 0, 0x80})
	f.Add([]byte{0x80, 2, 1, 0, 5, 0, 0x40, 0xc0, 0x40, 2, 0, 0, 9, 0xf0, 0x3f, 0x80})
	f.Add([]byte{0, 0, 4, 0, 0, 0x10, 0, 0x80, 0, 0, 0, 1, 0, 0x10, 0, 0x80, 0x40, 0, 4, 1, 7, 0xf0, 0x3f, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		g := newGuarded(t)
		k := g.newKernel()
		for i := uint32(0); i < k.page.Words(); i++ {
			k.put(i, binary.LittleEndian.AppendUint64(nil, uint64(g.a.id)))
		}
		clear(g.b.recv)
		before := bytes.Clone(g.world.b.mem)
		for ; len(data) >= 8; data = data[8:] {
			offset := uint64(binary.LittleEndian.Uint16(data)) % datasheet.PageSize
			word := binary.LittleEndian.Uint32(data[4:])
			c := g.a
			if data[2]&1 != 0 {
				c = g.b
			}
			if data[2]&4 != 0 {
				c = k
			}
			if data[2]&2 == 0 {
				offset = datasheet.DoorbellHigh + offset%(datasheet.DoorbellReceive-datasheet.DoorbellHigh+8)&^3
			}
			c.n.e.Doorbell(datasheet.EndpointPage(c.id)+offset, word)
			if data[3]&1 == 0 {
				g.settle()
			}
		}
		g.settle()
		// What a sends b receives, so that only a's memory is read and only b's page written;
		// b may send too, into a's page.
		g.check(t, before)
		for _, c := range []*channelEnd{g.a, g.b, k} {
			if s := c.status(); s.Stores != s.Ended {
				t.Fatalf("stores %v, ended %v", s.Stores, s.Ended)
			}
			if w := c.transmit(); w.Current != w.Stop {
				t.Fatalf("%+v", w)
			}
		}
	})
}

package engine_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// pages has a channel with pages of 2^log2 bytes.
func pages(log2 uint8) func(*datasheet.CreateEndpointBody) {
	return func(b *datasheet.CreateEndpointBody) { b.SendLog2, b.RecvLog2, b.MaxTransfer = log2, log2, 2<<log2 }
}

// TestChannelSpaced: behind each cell stand the CRC so far and the clock, once behind the last.
func TestChannelSpaced(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointSpaced })
	b.allow(0, 1000)
	message := pattern(120, 4)
	a.post(datasheet.PriorityHigh, 0, a.put(0, message))
	w.settle()
	if got := b.received(); got.PDUs != 1 || got.Current != 3*8 || got.Status != datasheet.ChannelConnected|datasheet.ChannelSpaced {
		t.Fatalf("%+v", got)
	}
	state := cells.StartCRC
	var got []byte
	for cell := range uint32(3) {
		payload := b.at(8*cell, cells.PayloadSize)
		got = append(got, payload...)
		crc, _ := b.stampAt(8*cell + 6)
		want := uint32(state.Update(payload))
		if cell == 2 {
			want = state.Update(payload[:44]).Sum()
		}
		if state = state.Update(payload); crc != want {
			t.Errorf("cell %d: CRC %08x, want %08x", cell, crc, want)
		}
	}
	mustEqual(t, got[:len(message)], message)
}

// TestChannelModel sends messages of any size and place over some channels at both priorities,
// with rooms of any size, and compares with what a model says must arrive.
func TestChannelModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newChannelWorld(t, cellsOf(func(c *engine.Cells) { c.PerFrame = rapid.IntRange(1, 20).Draw(r, "cells in a frame") }))
		const channels = 3
		var from, to [channels]*channelEnd
		var model [channels][]byte // the receiving double page
		var at, stop [channels]uint32
		var pdus [channels]uint8
		for i := range channels {
			from[i], to[i] = w.pair(pages(uint8(rapid.IntRange(12, 14).Draw(r, "pages"))))
			model[i] = make([]byte, len(to[i].recv))
		}
		for range rapid.IntRange(1, 30).Draw(r, "rounds") {
			for i := range channels {
				words := from[i].page.Words()
				if rapid.Bool().Draw(r, "new room") {
					at[i], stop[i] = rapid.Uint32Range(0, words-1).Draw(r, "start"), rapid.Uint32Range(0, words-1).Draw(r, "stop")
					to[i].allow(at[i], stop[i])
					w.settle()
				}
				start, n := rapid.Uint32Range(0, words-1).Draw(r, "from"), rapid.Uint32Range(1, words-1).Draw(r, "words")
				message := pattern(int(n)*8, uint64(start)<<32|uint64(n))
				from[i].put(start, message)
				from[i].post(datasheet.ChannelPriority(rapid.IntRange(0, 1).Draw(r, "priority")), start, (start+n)%words)
				// What AAL5 makes of it, by the book: padding and trailer, then CRC and clock.
				pdu := append(message, make([]byte, cells.Count(len(message))*cells.PayloadSize-len(message))...)
				trailer := cells.Trailer{Length: uint16(len(message))}
				tail := (*[cells.TrailerSize]byte)(pdu[len(pdu)-cells.TrailerSize:])
				trailer.Put(tail)
				trailer.CRC = cells.StartCRC.Update(pdu[:len(pdu)-4]).Sum()
				trailer.Put(tail)
				pdu = binary.LittleEndian.AppendUint64(pdu, uint64(trailer.CRC))
				pdu = binary.LittleEndian.AppendUint64(pdu, uint64(w.now/datasheet.ClockResolution))
				for ; len(pdu) > 0 && at[i] != stop[i]; pdu = pdu[8:] {
					copy(model[i][at[i]*8:], pdu[:8])
					at[i] = (at[i] + 1) % words
				}
				pdus[i]++
			}
			w.settle()
			for i := range channels {
				got := to[i].received()
				if got.PDUs != pdus[i] || uint32(got.Current) != at[i] || got.Drops != 0 {
					r.Fatalf("channel %d: %+v, want %d PDUs and offset %d", i, got, pdus[i], at[i])
				}
				if end := to[i].end(pdus[i] - 1); end.Offset() != at[i] || end&(datasheet.ChannelEndBadCRC|datasheet.ChannelEndBadLength) != 0 {
					r.Fatalf("channel %d: end %08x", i, end)
				}
				must.Same(r, model[i], to[i].recv, "channel %d: memory differs", i)
			}
		}
	})
}

func vciOf(c *datasheet.Cell) uint16 {
	return uint16(c.Header[1]&15)<<12 | uint16(c.Header[2])<<4 | uint16(c.Header[3])>>4
}

// rehead gives a cell a sound header.
func rehead(c *datasheet.Cell, h cells.Header) {
	var b [cells.HeaderSize]byte
	h.Put(&b)
	copy(c.Header[:], b[:])
	c.HEC = b[4]
}

// TestChannelStorm creates, connects, uses and destroys channels at random, with cells under
// way: nothing is left of device memory, and no channel sees another's cells.
func TestChannelStorm(t *testing.T) {
	w := newChannelWorld(t)
	free := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}
	r := rand.New(rand.NewPCG(1, 1))
	var live [][2]*channelEnd
	drop := func(i int) {
		p := live[i]
		for _, c := range p[r.IntN(2):] { // one side may hear of it from the other only
			do(c.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: c.id})
		}
		for _, c := range p {
			do(c.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: c.id})
			do(c.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: c.id})
		}
		live = append(live[:i], live[i+1:]...)
	}
	for range 300 {
		switch n := r.IntN(10); {
		case n < 2 && len(live) < 6:
			w.a.brk, w.b.brk = 0, 0 // memory may be anybody's: only counts are looked at
			for range len(live) {
				w.a.brk, w.b.brk = w.a.brk+1<<14, w.b.brk+1<<14
			}
			a, b := w.pair(nil)
			b.allow(0, 1023)
			live = append(live, [2]*channelEnd{a, b})
		case n < 3 && len(live) > 0:
			drop(r.IntN(len(live)))
		case len(live) > 0:
			p := live[r.IntN(len(live))]
			p[0].post(datasheet.ChannelPriority(r.IntN(2)), uint32(r.IntN(1024)), uint32(r.IntN(1024)))
			if r.IntN(3) == 0 {
				w.a.e.Step()
				w.b.e.Step()
			}
		}
	}
	for len(live) > 0 {
		drop(0)
	}
	w.settle()
	should.Be(t, [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}, free, "bytes of device memory are free")
	if a, b := w.a.e.Quiet(), w.b.e.Quiet(); !a || !b {
		t.Error("something is still under way")
	}
}

// newKernel creates channel 0 of the first NIC.
func (w *channelWorld) newKernel() *channelEnd {
	w.t.Helper()
	k := w.a.newChannel(w.handles[0], w.sram[0], func(b *datasheet.CreateEndpointBody) {
		b.Options, b.RecvCQ = datasheet.EndpointKernel, 0
	})
	must.Be(w.t, k.id, 0, "channel 0 has the number")
	return k
}

// address makes a message of channel 0 on the channel number, and returns the word behind.
func (c *channelEnd) address(start uint32, number uint64, message []byte) (stop uint32) {
	return c.put(c.put(start, binary.LittleEndian.AppendUint64(nil, number)), message)
}

// TestKernelChannelEnds: with messages under way the channel that they go on ends, and channel
// 0 itself does: each is told, nothing stays, and what comes behind is whole.
func TestKernelChannelEnds(t *testing.T) {
	w := newChannelWorld(t)
	free := w.a.e.FreeSRAM()
	a, b := w.pair(nil)
	c, d := w.pair(nil)
	for _, e := range []*channelEnd{b, d} {
		e.allow(0, 1000)
	}
	k := w.newKernel()
	w.settle()
	w.a.port.room = -1
	message := pattern(3000, 1)
	for i := range uint32(6) {
		k.post(datasheet.PriorityLow, 160*i, k.address(160*i, uint64([]*channelEnd{a, c}[i%2].id), message[:1200]))
	}
	c.post(datasheet.PriorityLow, 0, c.put(0, message))
	w.a.e.Step() // one on a has begun
	do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: a.id})
	if got := k.status(); got.Stores[1] != 6 || got.Ended[1] != 3 || got.Result[1] != datasheet.ChannelNotConnected {
		t.Errorf("%+v", got)
	}
	w.a.e.Step()  // one on c has begun
	for range 3 { // another may come and go at once
		do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{})
		k = w.newKernel()
		for range datasheet.ChannelDepth {
			k.post(datasheet.PriorityLow, 0, k.address(0, uint64(c.id), message[:2000]))
		}
		w.a.e.Step()
	}
	do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{})
	w.a.port.room = 0
	w.settle()
	// The one that had begun, if it had, ends as given up; c's own is whole.
	last := d.received().PDUs - 1
	if got := d.received(); got.PDUs < 1 || got.PDUs > 2 || !d.end(last).Whole() || d.end(last).Length() != len(message) {
		t.Fatalf("%+v, %08x %08x", got, d.end(0), d.end(1))
	}
	if last == 1 && d.end(0)&datasheet.ChannelEndAborted == 0 {
		t.Errorf("%08x", d.end(0))
	}
	if got := w.a.e.CellLevels(); got.Transmit != [2]int{} || got.Channels != 2 {
		t.Errorf("%+v", got)
	}
	bad := w.a.e.Counter(datasheet.CounterBadDoorbells)
	k.post(datasheet.PriorityLow, 0, 4)
	w.settle()
	should.Be(t, w.a.e.Counter(datasheet.CounterBadDoorbells), bad+1, "the doorbell of a channel 0 that is no more was taken")
	for _, e := range []*channelEnd{a, c} {
		do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: e.id})
		do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: e.id})
	}
	should.Be(t, w.a.e.FreeSRAM(), free, "bytes of device memory are free")
}

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

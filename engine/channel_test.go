package engine_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// pages has a channel with pages of 2^log2 bytes.
func pages(log2 uint8) func(*datasheet.CreateEndpointBody) {
	return func(b *datasheet.CreateEndpointBody) { b.SendLog2, b.RecvLog2, b.MaxTransfer = log2, log2, 2<<log2 }
}

// TestChannelOneCell: a message of one cell arrives by one store, and both hosts see what
// has happened in their control pages.
func TestChannelOneCell(t *testing.T) {
	for log2 := uint8(datasheet.MinChannelPageLog2); log2 <= datasheet.MaxChannelPageLog2; log2++ {
		w := newChannelWorld(t)
		a, b := w.pair(pages(log2))
		b.allow(0, 100)
		w.settle()
		want := pattern(40, 1)
		stop := a.put(0, want)
		if got := b.received(); got.Current != 0 || got.Stop != 100 || got.PDUs != 0 || got.Status != datasheet.ChannelConnected ||
			uint32(got.Pointer) != 2*b.id+1 {
			t.Fatalf("before: %+v", got)
		}
		w.now += 12_345_600 // ns
		a.post(datasheet.PriorityHigh, 0, stop)
		w.settle()
		if got := b.received(); got.PDUs != 1 || got.Current != 8 || got.Status != datasheet.ChannelConnected || got.Drops != 0 {
			t.Errorf("received: %+v", got)
		}
		mustEqual(t, b.at(0, 40), want)
		crc, clock := b.stampAt(6)
		if state := cells.StartCRC.Update(b.at(0, 44)); crc != state.Sum() || clock != uint64(w.now/datasheet.ClockResolution) {
			t.Errorf("CRC %08x, want %08x; clock %d, want %d", crc, state.Sum(), clock, w.now/datasheet.ClockResolution)
		}
		if end := b.end(0); end.Length() != 40 || end.Offset() != 8 || !end.Whole() {
			t.Errorf("end %08x", end)
		}
		if got := a.transmit(); got.Current != 5 || got.Stop != 5 || uint32(got.Pointer) != 2*a.id ||
			uint32(got.VCI) != b.id>>(16-a.page.VCIBits()) || got.HEC == got.LastHEC {
			t.Errorf("transmit: %+v", got)
		}
		if got := a.status(); got != (datasheet.SendStatus{Stores: [2]uint8{1, 0}, Ended: [2]uint8{1, 0}}) {
			t.Errorf("status %+v", got)
		}
		for c, want := range map[datasheet.Counter]uint64{datasheet.CounterCellsSent: 1, datasheet.CounterCellsReceived: 0} {
			if got := w.a.e.Counter(c); got != want {
				t.Errorf("%v: %d at the sender", c, got)
			}
			if got := w.b.e.Counter(c); got != 1-want {
				t.Errorf("%v: %d at the receiver", c, got)
			}
		}
	}
}

// TestChannelStop: at the stop offset nothing more is written, whatever comes, but CRC, counts
// and status go on.
func TestChannelStop(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	for i := range b.recv {
		b.recv[i] = 0xee
	}
	const room = 10
	b.allow(3, 3+room)
	message := pattern(400, 3)
	a.post(datasheet.PriorityLow, 0, a.put(0, message))
	w.settle()
	got := b.received()
	if got.PDUs != 1 || got.Current != 3+room || got.Status != datasheet.ChannelConnected|datasheet.ChannelCut {
		t.Errorf("%+v", got)
	}
	if end := b.end(0); end.Whole() || end&datasheet.ChannelEndBadCRC != 0 || end.Length() != len(message) {
		t.Errorf("end %08x", end)
	}
	want := bytes.Repeat([]byte{0xee}, len(b.recv))
	copy(want[3*8:], message[:room*8])
	mustEqual(t, b.recv, want)

	// A doorbell with ChannelKeep gives room behind what was written.
	w.b.e.Doorbell(datasheet.EndpointPage(b.id)+datasheet.DoorbellReceive, datasheet.ChannelBell(0, 900)|datasheet.ChannelKeep)
	a.post(datasheet.PriorityLow, 0, a.put(0, message[:8]))
	w.settle()
	if got := b.received(); got.PDUs != 2 || got.Current != 3+room+8 || got.Status != datasheet.ChannelConnected || !b.end(1).Whole() {
		t.Errorf("%+v, %08x", got, b.end(1))
	}
	mustEqual(t, b.at(3+room, 8), message[:8])
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
				if !bytes.Equal(model[i], to[i].recv) {
					r.Fatalf("channel %d: memory differs", i)
				}
			}
		}
	})
}

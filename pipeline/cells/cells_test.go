package cells_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/pipeline/cells"
)

// cell is a cell on its way.
type cell struct {
	header  [cells.HeaderSize]byte
	payload [cells.PayloadSize]byte
}

// cut makes the cells of one PDU on a channel.
func cut(t testing.TB, vci uint16, uu uint8, pdu []byte) (out []cell) {
	t.Helper()
	var c cells.Cutter
	if err := c.Start(len(pdu), uu); err != nil {
		t.Fatal(err)
	}
	for c.Active() {
		out = append(out, next(&c, vci, &pdu))
	}
	return out
}

// next makes one cell and takes its bytes off the PDU. What is in the payload before does
// not matter.
func next(c *cells.Cutter, vci uint16, pdu *[]byte) (one cell) {
	for i := range one.payload {
		one.payload[i] = 0xa5
	}
	n, last := c.Next()
	*pdu = (*pdu)[copy(one.payload[:n], *pdu):]
	c.Seal(&one.payload)
	h := cells.Header{VCI: vci, PTI: cells.PTIMore}
	if last {
		h.PTI = cells.PTILast
	}
	h.Put(&one.header)
	return one
}

// sink puts the PDUs of one channel together.
type sink struct {
	assembly cells.Assembly
	bytes    []byte
	pdus     [][]byte
	uus      []uint8
	errs     []error
}

func (s *sink) take(t testing.TB, c *cell) {
	t.Helper()
	h, err := cells.ParseHeader(&c.header)
	if err != nil {
		t.Fatal(err)
	}
	trailer, err := s.assembly.Add(&c.payload, h.Last())
	s.bytes = append(s.bytes, c.payload[:]...)
	if !h.Last() {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil {
		s.pdus = append(s.pdus, s.bytes[:trailer.Length])
		s.uus = append(s.uus, trailer.UU)
	} else {
		s.errs = append(s.errs, err)
	}
	s.bytes = nil
}

// TestVectors: the CRC's check value, and the examples of I.363.5, appendix I: PDUs of 40
// bytes, which fill one cell together with their trailer.
func TestVectors(t *testing.T) {
	if got := cells.StartCRC.Update([]byte("123456789")).Sum(); got != 0xfc891918 {
		t.Errorf("CRC %08x", got)
	}
	counting := make([]byte, 40)
	for i := range counting {
		counting[i] = byte(i + 1)
	}
	for _, v := range []struct {
		pdu  []byte
		want string
	}{
		{make([]byte, 40), "\x00\x00\x00\x28\x86\x4d\x7f\x99"},
		{bytes.Repeat([]byte{0xff}, 40), "\x00\x00\x00\x28\xc5\x5e\x45\x7a"},
		{counting, "\x00\x00\x00\x28\xbf\x67\x1e\xd0"},
	} {
		got := cut(t, 1, 0, v.pdu)
		if len(got) != 1 || !bytes.Equal(got[0].payload[:40], v.pdu) || string(got[0].payload[40:]) != v.want {
			t.Errorf("%x: %d cells, %x", v.pdu, len(got), got[0].payload)
		}
	}
}

// TestCRCInPieces: the CRC is that of the bytes, however they are cut, with the processor's
// instructions and by tables.
func TestCRCInPieces(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(r, "bytes")
		at := rapid.IntRange(0, len(b)).Draw(r, "at")
		want := uint32(0xffffffff)
		for _, v := range b { // bit by bit, as I.363.5 has it
			for i := 7; i >= 0; i-- {
				bit := want>>31 ^ uint32(v>>i&1)
				want <<= 1
				if bit != 0 {
					want ^= 0x04c11db7
				}
			}
		}
		if got := cells.StartCRC.Update(b[:at]).Update(b[at:]); uint32(got) != want {
			r.Fatalf("%08x, want %08x", got, want)
		}
		if got := cells.StartCRC.Table(b[:at]).Table(b[at:]); uint32(got) != want {
			r.Fatalf("by tables %08x, want %08x", got, want)
		}
		// The way that payloads of cells take, from any state.
		p := [cells.PayloadSize]byte(append(b, make([]byte, cells.PayloadSize)...))
		if got, want := cells.CRC(want).Cell(&p), cells.CRC(want).Table(p[:]); got != want {
			r.Fatalf("of a cell %08x, want %08x", got, want)
		}
		if got, want := cells.CRC(want).LastCell(&p), cells.CRC(want).Table(p[:cells.PayloadSize-4]); got != want {
			r.Fatalf("of a last cell %08x, want %08x", got, want)
		}
	})
}

// TestCounts: around every border, a PDU has as many cells as its bytes, the trailer and
// less than a cell of padding take, and comes out as it went in.
func TestCounts(t *testing.T) {
	for _, n := range []int{1, 39, 40, 41, 47, 48, 49, 87, 88, 89, 96, 97, 4096, 8191, 8192, cells.MaxPDU - 1, cells.MaxPDU} {
		pdu := make([]byte, n)
		for i := range pdu {
			pdu[i] = byte(i * 7)
		}
		all := cut(t, 7, 0x5a, pdu)
		if length := len(all) * cells.PayloadSize; len(all) != cells.Count(n) || length < n+cells.TrailerSize || length >= n+cells.TrailerSize+cells.PayloadSize {
			t.Errorf("%d bytes: %d cells, Count says %d", n, len(all), cells.Count(n))
		}
		var s sink
		for i := range all {
			if s.assembly.Cells() != i {
				t.Fatalf("%d of %d cells", s.assembly.Cells(), i)
			}
			s.take(t, &all[i])
		}
		if len(s.pdus) != 1 || !bytes.Equal(s.pdus[0], pdu) || s.uus[0] != 0x5a {
			t.Errorf("%d bytes: %d PDUs, %v", n, len(s.pdus), s.errs)
		}
	}
	if got := cells.Count(cells.MaxPDU); got != cells.MaxCells {
		t.Errorf("%d cells at most, not %d", got, cells.MaxCells)
	}
}

// TestInterleaving: PDUs of several channels, their cells in any order that keeps each
// channel's own, arrive whole and in order.
func TestInterleaving(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const channels = 4
		var sent [channels][][]byte
		var cutters [channels]cells.Cutter
		var left [channels][]byte
		var sinks [channels]sink
		for range rapid.IntRange(1, 200).Draw(r, "cells") {
			i := rapid.IntRange(0, channels-1).Draw(r, "channel")
			c := &cutters[i]
			if !c.Active() {
				left[i] = rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(r, "pdu")
				sent[i] = append(sent[i], left[i])
				if err := c.Start(len(left[i]), uint8(len(sent[i]))); err != nil {
					r.Fatal(err)
				}
			}
			one := next(c, uint16(i), &left[i])
			h, err := cells.ParseHeader(&one.header)
			if err != nil || h.VCI != uint16(i) {
				r.Fatal(h, err)
			}
			sinks[h.VCI].take(t, &one)
		}
		for i := range sinks {
			whole := len(sent[i])
			if cutters[i].Active() {
				whole--
			}
			if len(sinks[i].errs) != 0 || len(sinks[i].pdus) != whole {
				r.Fatalf("channel %d: %d of %d PDUs, %v", i, len(sinks[i].pdus), whole, sinks[i].errs)
			}
			for k, pdu := range sinks[i].pdus {
				if !bytes.Equal(pdu, sent[i][k]) || sinks[i].uus[k] != uint8(k+1) {
					r.Fatalf("channel %d: PDU %d", i, k)
				}
			}
		}
	})
}

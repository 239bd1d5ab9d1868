package cells_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cells"
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
	must.OK(t, c.Start(len(pdu), uu))
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
	h := must.Get(cells.ParseHeader(&c.header))(t)
	trailer, err := s.assembly.Add(&c.payload, h.Last())
	s.bytes = append(s.bytes, c.payload[:]...)
	if !h.Last() {
		must.OK(t, err)
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
	should.Be(t, cells.StartCRC.Update([]byte("123456789")).Sum(), 0xfc891918, "CRC")
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
		// The way that the payload of a last cell takes, from any state.
		p := [cells.PayloadSize]byte(append(b, make([]byte, cells.PayloadSize)...))
		if got, want := cells.CRC(want).LastCell(&p), cells.CRC(want).Table(p[:cells.PayloadSize-4]); got != want {
			r.Fatalf("of a last cell %08x, want %08x", got, want)
		}
	})
}

// TestRuns: what is taken as a run, or as several, is what it is cell by cell and by tables: the
// CRC from any state, what a Cutter makes of a PDU, and what an Assembly says about it, whole or
// damaged.
func TestRuns(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		payloads := func(n int) (run [][cells.PayloadSize]byte) {
			seed := rapid.SliceOfN(rapid.Byte(), cells.PayloadSize, 2*cells.PayloadSize).Draw(r, "bytes")
			for i := range n * cells.PayloadSize {
				if i%cells.PayloadSize == 0 {
					run = append(run, [cells.PayloadSize]byte{})
				}
				run[len(run)-1][i%cells.PayloadSize] = seed[i%len(seed)] + byte(i/len(seed))
			}
			return run
		}
		run := payloads(rapid.IntRange(0, 40).Draw(r, "cells"))
		state := cells.CRC(rapid.Uint32().Draw(r, "state"))
		single, table := state, state
		for i := range run {
			single, table = single.Cell(&run[i]), table.Table(run[i][:])
		}
		if got := state.Run(run); got != single || got != table {
			r.Fatalf("%d cells from %08x: %08x, one by one %08x, by tables %08x", len(run), state, got, single, table)
		}

		length := rapid.IntRange(1, 40*cells.PayloadSize).Draw(r, "length")
		pdu := payloads(cells.Count(length))
		var byRun, bySingle cells.Cutter
		must.OK(r, errors.Join(byRun.Start(length, 3), bySingle.Start(length, 3)))
		made := pdu
		want := slices.Clone(pdu)
		for i := range want {
			bySingle.Seal(&want[i])
		}
		for whole := length / cells.PayloadSize; byRun.Active(); {
			must.Be(r, byRun.Whole(), whole, "cells are whole")
			must.Be(r, byRun.SealRun(make([][cells.PayloadSize]byte, whole+1)), cells.ErrLength, "one more than are whole")
			n := rapid.IntRange(0, whole).Draw(r, "run")
			must.OK(r, byRun.SealRun(made[:n]))
			made, whole = made[n:], whole-n
			byRun.Seal(&made[0])
			made, whole = made[1:], max(whole-1, 0)
		}
		if !slices.Equal(pdu, want) || len(made) != 0 || byRun.CRC() != bySingle.CRC() {
			r.Fatalf("%d bytes: the cells differ", length)
		}

		if rapid.Bool().Draw(r, "damage") {
			pdu[len(pdu)-1][rapid.IntRange(0, cells.PayloadSize-1).Draw(r, "byte")] ^= 1
		}
		var a, b cells.Assembly
		for left := pdu; len(left) > 0; {
			n := rapid.IntRange(1, len(left)).Draw(r, "together")
			last := n == len(left)
			got, err := a.AddRun(left[:n], last)
			var want cells.Trailer
			var wantErr error
			for i := range n {
				want, wantErr = b.Add(&left[i], last && i == n-1)
			}
			if got != want || err != wantErr || a.Cells() != b.Cells() || a.CRC() != b.CRC() {
				r.Fatalf("%d of %d: %v, %v, one by one %v, %v", n, len(left), got, err, want, wantErr)
			}
			left = left[n:]
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
			must.Be(t, s.assembly.Cells(), i, "cells")
			s.take(t, &all[i])
		}
		if len(s.pdus) != 1 || !bytes.Equal(s.pdus[0], pdu) || s.uus[0] != 0x5a {
			t.Errorf("%d bytes: %d PDUs, %v", n, len(s.pdus), s.errs)
		}
	}
	should.Be(t, cells.Count(cells.MaxPDU), cells.MaxCells, "cells at most")
}

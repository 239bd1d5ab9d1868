package cells_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cells"
)

// TestDamage: a PDU of which a cell is lost, doubled, damaged or in the wrong place is
// refused, and what comes behind it arrives.
func TestDamage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		all := cut(t, 1, 0, rapid.SliceOfN(rapid.Byte(), 100, 500).Draw(r, "pdu"))
		i := rapid.IntRange(0, len(all)-2).Draw(r, "cell") // not the last one
		switch rapid.SampledFrom([]string{"lost", "doubled", "exchanged", "damaged"}).Draw(r, "what") {
		case "lost":
			all = append(all[:i:i], all[i+1:]...)
		case "doubled":
			all = append(all[:i+1:i+1], all[i:]...)
		case "exchanged":
			k := (i + 1) % (len(all) - 1)
			if all[i].payload == all[k].payload {
				return
			}
			all[i].payload, all[k].payload = all[k].payload, all[i].payload
		case "damaged":
			bit := rapid.IntRange(0, 8*cells.PayloadSize-1).Draw(r, "bit")
			all[i].payload[bit/8] ^= 1 << (bit % 8)
		}
		var s sink
		for _, c := range append(all, cut(t, 1, 0, []byte("behind"))...) {
			s.take(t, &c)
		}
		if len(s.errs) != 1 || !errors.Is(s.errs[0], cells.ErrCRC) || len(s.pdus) != 1 || string(s.pdus[0]) != "behind" {
			r.Fatalf("%d PDUs, %v", len(s.pdus), s.errs)
		}
	})
}

// TestLastCell: without its last cell a PDU takes the next one along, and the one behind
// that arrives. A last cell that comes once more is no PDU.
func TestLastCell(t *testing.T) {
	long := bytes.Repeat([]byte{1}, 100)
	all := cut(t, 1, 0, long)
	n := len(all) - 1
	for name, arriving := range map[string][]cell{
		"lost":    append(append(all[:n:n], cut(t, 1, 0, long)...), cut(t, 1, 0, []byte("behind"))...),
		"doubled": append(all[n:len(all):len(all)], cut(t, 1, 0, []byte("behind"))...),
	} {
		var s sink
		for _, c := range arriving {
			s.take(t, &c)
		}
		if len(s.errs) != 1 || !errors.Is(s.errs[0], cells.ErrCRC) || len(s.pdus) != 1 || string(s.pdus[0]) != "behind" {
			t.Errorf("%s: %d PDUs, %v", name, len(s.pdus), s.errs)
		}
	}
}

// forged is a PDU of so many cells whose CRC is right, whatever length it claims.
func forged(count int, length uint16) (out [][cells.PayloadSize]byte) {
	crc := cells.StartCRC
	for range count - 1 {
		out = append(out, [cells.PayloadSize]byte{})
		crc = crc.Update(out[0][:])
	}
	var last [cells.PayloadSize]byte
	tail := (*[cells.TrailerSize]byte)(last[cells.PayloadSize-cells.TrailerSize:])
	cells.Trailer{Length: length}.Put(tail)
	crc = crc.Update(last[:cells.PayloadSize-4])
	cells.Trailer{Length: length, CRC: crc.Sum()}.Put(tail)
	return append(out, last)
}

// TestForgedLengths: a length that the number of cells does not bear is refused although
// the CRC is right, with those that are just right beside it.
func TestForgedLengths(t *testing.T) {
	for _, v := range []struct {
		count  int
		length uint16
		want   error
	}{
		{1, 0, cells.ErrAborted}, {1, 1, nil}, {1, 40, nil}, {1, 41, cells.ErrLength}, {1, 48, cells.ErrLength}, {1, cells.MaxPDU, cells.ErrLength},
		{2, 0, cells.ErrAborted}, {2, 1, cells.ErrLength}, {2, 40, cells.ErrLength}, {2, 41, nil}, {2, 88, nil}, {2, 89, cells.ErrLength},
		{cells.MaxCells, cells.MaxPDU, nil}, {cells.MaxCells, 1, cells.ErrLength},
		{cells.MaxCells + 1, cells.MaxPDU, cells.ErrLength}, {3000, 1, cells.ErrLength},
	} {
		var a cells.Assembly
		payloads := forged(v.count, v.length)
		for i := range payloads {
			last := i == len(payloads)-1
			_, err := a.Add(&payloads[i], last)
			want := v.want
			if !last {
				want = nil
				if i >= cells.MaxCells {
					want = cells.ErrLength
				}
			}
			if !errors.Is(err, want) {
				t.Fatalf("%d cells, length %d: cell %d: %v, want %v", v.count, v.length, i, err, want)
			}
		}
		should.Refuse(a.AddRun(payloads, true))(t, v.want, "%d cells, length %d, as a run", v.count, v.length)
		if a.Cells() != 0 || a.CRC() != cells.StartCRC {
			t.Errorf("%d cells, length %d: the next PDU would begin with %d cells", v.count, v.length, a.Cells())
		}
	}
}

// TestAbort: a PDU that its sender gives up ends at once, is told apart from a damaged one,
// and the next one arrives. Reset gives up on the other side.
func TestAbort(t *testing.T) {
	pdu := bytes.Repeat([]byte{3}, 500)
	for sent := range 4 {
		var c cells.Cutter
		must.OK(t, c.Start(len(pdu), 0))
		var s sink
		left := pdu
		for range sent {
			one := next(&c, 1, &left)
			s.take(t, &one)
		}
		c.Abort()
		one := next(&c, 1, &left)
		s.take(t, &one)
		if c.Active() || len(s.errs) != 1 || !errors.Is(s.errs[0], cells.ErrAborted) {
			t.Errorf("behind %d cells: %v", sent, s.errs)
		}
		for _, one := range cut(t, 1, 0, pdu) {
			s.take(t, &one)
		}
		if len(s.pdus) != 1 || !bytes.Equal(s.pdus[0], pdu) {
			t.Errorf("behind %d cells: %d PDUs, %v", sent, len(s.pdus), s.errs)
		}
	}
	var a cells.Assembly
	whole := cut(t, 1, 0, pdu)
	must.Get(a.Add(&whole[0].payload, false))(t)
	a.Reset()
	for i := range whole {
		if _, err := a.Add(&whole[i].payload, i == len(whole)-1); err != nil {
			t.Errorf("after Reset, cell %d: %v", i, err)
		}
	}
}

// TestBadPDUs: what is no PDU is refused and changes nothing, and a Cutter without one does
// nothing.
func TestBadPDUs(t *testing.T) {
	var c cells.Cutter
	for _, n := range []int{-1, 0, cells.MaxPDU + 1} {
		should.Fail(t, c.Start(n, 0), cells.ErrLength, "%d bytes", n)
	}
	payload := [cells.PayloadSize]byte{1, 2, 3}
	c.Seal(&payload)
	c.Abort()
	if n, last := c.Next(); n != 0 || last || c.Active() || payload != [cells.PayloadSize]byte{1, 2, 3} {
		t.Errorf("%d bytes, %v, %v", n, last, payload)
	}
	must.OK(t, c.Start(100, 0))
	should.Refuse(new(cells.Assembly).AddRun(nil, true))(t, cells.ErrLength, "no cells")
	should.Fail(t, c.Start(50, 0), cells.ErrUnfinished)
	if n, last := c.Next(); n != cells.PayloadSize || last {
		t.Errorf("%d bytes, %v", n, last)
	}
}

// FuzzAssembly: whatever cells come, there is an answer, and one PDU of the same cells has
// the same answer whatever came before it.
func FuzzAssembly(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add([]byte("a PDU that fits one cell"), uint8(1))
	f.Add(bytes.Repeat([]byte{0xff}, 200), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, before uint8) {
		var a, clean cells.Assembly
		var payload [cells.PayloadSize]byte
		for i := range int(before) {
			payload[0] = byte(i)
			if _, err := a.Add(&payload, i == int(before)-1); err == nil && i == int(before)-1 {
				t.Fatal("a PDU of nothing")
			}
		}
		count := 0
		var all [][cells.PayloadSize]byte
		for {
			n := copy(payload[:], b)
			b = b[n:]
			count++
			all = append(all, payload)
			last := len(b) == 0
			got, err := a.Add(&payload, last)
			want, wantErr := clean.Add(&payload, last)
			if got != want || !errors.Is(err, wantErr) {
				t.Fatalf("%v, %v; alone %v, %v", got, err, want, wantErr)
			}
			if !last {
				continue
			}
			if run, runErr := clean.AddRun(all, true); run != want || !errors.Is(runErr, wantErr) {
				t.Fatalf("as a run %v, %v; one by one %v, %v", run, runErr, want, wantErr)
			}
			if err == nil && cells.Count(int(got.Length)) != count {
				t.Fatalf("%d bytes of %d cells", got.Length, count)
			}
			return
		}
	})
}

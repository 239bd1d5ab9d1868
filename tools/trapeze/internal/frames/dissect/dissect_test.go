package dissect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/dissect"
)

// pdu cuts n bytes into cells of a channel.
func pdu(t testing.TB, vci uint16, n int) (out []datasheet.Cell) {
	t.Helper()
	var c cells.Cutter
	if err := c.Start(n, 0); err != nil {
		t.Fatal(err)
	}
	for c.Active() {
		var one datasheet.Cell
		used, last := c.Next()
		for i := range used {
			one.Payload[i] = byte(n + i + len(out))
		}
		c.Seal(&one.Payload)
		h := cells.Header{VCI: vci}
		if last {
			h.PTI = cells.PTILast
		}
		out = append(out, headed(one, h))
	}
	return out
}

func headed(c datasheet.Cell, h cells.Header) datasheet.Cell {
	var b [cells.HeaderSize]byte
	h.Put(&b)
	copy(c.Header[:], b[:4])
	c.HEC = b[4]
	return c
}

// frame is one from a station to another.
func frame(kind datasheet.FrameType, from, to byte, all ...datasheet.Cell) []byte {
	b := make([]byte, datasheet.HeaderSize+len(all)*datasheet.CellSize)
	*datasheet.HeaderAt(b) = datasheet.Header{Source: datasheet.MAC{2, 5: from}, Destination: datasheet.MAC{2, 5: to},
		EtherType: datasheet.EtherType, Version: datasheet.WireVersion, Type: kind, Length: uint16(len(all) * datasheet.CellSize),
		SourceEndpoint: 3, DestinationEndpoint: 5, PSN: 9}
	copy(datasheet.CellsAt(b[datasheet.HeaderSize:]), all)
	return b
}

// described wants a frame to be about cells.
func described(t *testing.T, d *dissect.Dissector, b []byte) dissect.Frame {
	t.Helper()
	f, about := d.Frame(b)
	if !about {
		t.Fatalf("%x is not about cells", b)
	}
	return f
}

// TestCells: cells of channels that are interleaved over several frames, with what is wrong
// with them, as text.
func TestCells(t *testing.T) {
	d := dissect.New()
	a, b := pdu(t, 7, 100), pdu(t, 4095, 40)
	flipped := pdu(t, 8, 10)
	flipped[0].Header[3] ^= 2
	f := described(t, d, append(frame(datasheet.FrameCells, 1, 2, a[0], b[0], a[1], flipped[0]), 0, 0, 0)) // filled up
	got := f.String()
	for _, want := range []string{
		"cells, endpoint 3 > 5, PSN 9, cells: 4\n    channel 7, PTI 0, HEC right\n    channel 4095, PTI 1, end of PDU, HEC right; AAL5: 40 bytes, UU 0, CPI 0, CRC ",
		", cells seen: 1: right\n    channel 7, PTI 0, HEC right\n    channel 8, PTI 0, HEC wrong",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	f = described(t, d, frame(datasheet.FrameCells, 1, 2, a[2]))
	if p := f.Cells[0].PDU; p == nil || p.State != dissect.Right || p.Length != 100 || p.Cells != 3 || p.CRC == 0 {
		t.Errorf("%+v", f)
	}
	marked := headed(b[0], cells.Header{VPI: 2, VCI: 4095, PTI: cells.PTILast | cells.PTICongested, CLP: true})
	if got := described(t, d, frame(datasheet.FrameCells, 1, 2, marked)).String(); !strings.Contains(got, "channel 4095, VPI 2, PTI 3, CLP, end of PDU, HEC right; AAL5: 40 bytes") {
		t.Error(got)
	}
	oam := headed(b[0], cells.Header{VCI: 4095, PTI: 5})
	if c := described(t, d, frame(datasheet.FrameCells, 1, 2, oam)).Cells[0]; c.PDU != nil || c.Last || !c.HEC || c.PTI != 5 {
		t.Errorf("%+v", c)
	}
	want := dissect.Totals{Frames: 4, Cells: 7, WrongHEC: 1, PDUs: 3}
	if diff := cmp.Diff(want, d.Totals()); diff != "" {
		t.Error(diff)
	}
}

// TestStates: what is wrong with a PDU is told where it can be.
func TestStates(t *testing.T) {
	whole := pdu(t, 7, 200)
	damaged := pdu(t, 7, 200)
	damaged[1].Payload[5] ^= 1
	aborted := make([]datasheet.Cell, 1)
	{
		// A PDU of length zero whose CRC is right.
		p := &aborted[0].Payload
		trailer := cells.Trailer{CRC: cells.StartCRC.Update(p[:cells.PayloadSize-4]).Sum()}
		trailer.Put((*[cells.TrailerSize]byte)(p[cells.PayloadSize-cells.TrailerSize:]))
		aborted[0] = headed(aborted[0], cells.Header{VCI: 7, PTI: cells.PTILast})
	}
	joined := append(pdu(t, 7, 40), whole...) // which has one cell more than its length
	joined[0] = headed(joined[0], cells.Header{VCI: 7})
	for name, c := range map[string]struct {
		before, of []datasheet.Cell
		want       dissect.State
	}{
		"whole":                  {nil, whole, dissect.Right},
		"a bit":                  {nil, damaged, dissect.WrongCRC},
		"began before":           {nil, whole[2:], dissect.Unknown},
		"a cell lost":            {whole, whole[2:], dissect.WrongCRC},
		"given up":               {nil, aborted, dissect.GivenUp},
		"an end lost":            {nil, joined, dissect.WrongCRC},
		"whole, behind damaged":  {damaged, whole, dissect.Right},
		"whole, behind half one": {whole[2:], whole, dissect.Right},
	} {
		d := dissect.New()
		var last dissect.Frame
		for _, cell := range append(append([]datasheet.Cell{}, c.before...), c.of...) {
			last = described(t, d, frame(datasheet.FrameCells, 1, 2, cell))
		}
		if p := last.Cells[0].PDU; p == nil || p.State != c.want {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestConnections: the cells of other stations, and of a later connection with the same
// channel, are other PDUs.
func TestConnections(t *testing.T) {
	d := dissect.New()
	all := pdu(t, 7, 60)
	tagged := pdu(t, 7, 60)
	for i := range tagged {
		tagged[i].Tag = [3]byte{1}
	}
	var last dissect.Frame
	for _, b := range [][]byte{
		frame(datasheet.FrameCells, 1, 2, all[0], tagged[0]), frame(datasheet.FrameCells, 3, 2, all[0]),
		frame(datasheet.FrameCells, 1, 2, tagged[1], all[1]), frame(datasheet.FrameCells, 3, 2, all[1]),
	} {
		last = described(t, d, b)
	}
	if n := d.Totals(); n.PDUs != 3 || n.Damaged+n.Unknown != 0 || last.Source != "02:00:00:00:00:03" {
		t.Errorf("%+v, %+v", n, last)
	}
}

// TestStopStart: flow control is named, and what is not about cells is left to others.
func TestStopStart(t *testing.T) {
	d := dissect.New()
	for kind, want := range map[datasheet.FrameType]string{
		datasheet.FrameCellStop:  "cell stop, endpoint 3 > 5",
		datasheet.FrameCellStart: "cell start, endpoint 3 > 5",
	} {
		if got := described(t, d, frame(kind, 1, 2)).String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	other := frame(datasheet.FrameCells, 1, 2, pdu(t, 1, 1)...)
	other[12] = 8
	newer := frame(datasheet.FrameCells, 1, 2, pdu(t, 1, 1)...)
	datasheet.HeaderAt(newer).Version++
	for _, b := range [][]byte{nil, make([]byte, 63), frame(datasheet.FrameData, 1, 2, pdu(t, 1, 1)...), other, newer} {
		if f, about := d.Frame(b); about {
			t.Errorf("%x: %+v", b, f)
		}
	}
	if diff := cmp.Diff(dissect.Totals{Stops: 1, Starts: 1}, d.Totals()); diff != "" {
		t.Error(diff)
	}
}

// TestMalformed: frames that no device takes are shown as such, with the cells that are whole.
func TestMalformed(t *testing.T) {
	good := func() []byte { return frame(datasheet.FrameCells, 1, 2, pdu(t, 7, 60)...) }
	half, empty, reference := good(), good(), good()
	datasheet.HeaderAt(half).Length -= 8
	datasheet.HeaderAt(empty).Length = 0
	datasheet.HeaderAt(reference).Flags = datasheet.FrameReference
	for name, c := range map[string]struct {
		frame []byte
		says  string
		cells int
	}{
		"half a cell":   {half, "104 bytes, no whole cells of 56", 1},
		"nothing":       {empty, "0 bytes, no whole cells", 0},
		"cut off":       {good()[:datasheet.HeaderSize+60], "cut off: 60 bytes of 112", 1},
		"by references": {reference, "cells by reference", 0},
	} {
		d := dissect.New()
		f := described(t, d, c.frame)
		if len(f.Cells) != c.cells || !strings.Contains(f.Malformed, c.says) || !strings.Contains(f.String(), "malformed: "+f.Malformed) || d.Totals().Malformed != 1 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// FuzzFrame: whatever is in frames, it is described, the second time too, and the totals fit.
func FuzzFrame(f *testing.F) {
	for _, n := range []int{1, 60, 300} {
		f.Add(frame(datasheet.FrameCells, 1, 2, pdu(f, 7, n)...))
	}
	f.Add(frame(datasheet.FrameCellStop, 1, 2))
	f.Add(frame(datasheet.FrameCells, 1, 2, pdu(f, 7, 60)...)[:datasheet.HeaderSize+60])
	f.Add([]byte("no frame"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := dissect.New()
		for range 2 {
			frame, about := d.Frame(b)
			if !about {
				continue
			}
			if lines := strings.Split(frame.String(), "\n"); len(lines) != 1+len(frame.Cells) {
				t.Errorf("%d lines of %d cells", len(lines), len(frame.Cells))
			}
			if _, err := json.Marshal(frame); err != nil {
				t.Error(err)
			}
		}
		n := d.Totals()
		if n.Cells > 2*uint64(len(b)/datasheet.CellSize) || n.PDUs+n.WrongHEC > n.Cells || n.Damaged+n.Unknown > n.PDUs || n.Malformed > n.Frames {
			t.Errorf("%+v of %d bytes", n, len(b))
		}
	})
}

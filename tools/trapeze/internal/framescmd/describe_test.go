package framescmd

import (
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/dissect"
)

// cellFrame is a frame of cells of zeros, whose header checks are wrong.
func cellFrame(cells int) []byte {
	b := make([]byte, datasheet.HeaderSize+cells*datasheet.CellSize)
	*datasheet.HeaderAt(b) = datasheet.Header{Source: datasheet.MAC{2, 5: 1}, Destination: datasheet.MAC{2, 5: 2},
		EtherType: datasheet.EtherType, Version: datasheet.WireVersion, Type: datasheet.FrameCells, Length: uint16(cells * datasheet.CellSize)}
	return b
}

// TestDescribeCells: a line is about the frame, and one about each cell. The ports that tests
// have do not let frames of connections through.
func TestDescribeCells(t *testing.T) {
	data := cellFrame(0)
	datasheet.HeaderAt(data).Type = datasheet.FrameData
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{cellFrame(2), "02:00:00:00:00:01 > 02:00:00:00:00:02, 176 bytes: cells, endpoint 0 > 0, PSN 0, cells: 2\n" +
			"    channel 0, PTI 0, HEC wrong\n    channel 0, PTI 0, HEC wrong\n"},
		{cellFrame(0), "cells: 0, malformed: 0 bytes, no whole cells of 56\n"},
		{cellFrame(1)[:40], "40 bytes: frame of a Trapeze connection\n"},
		{data, "64 bytes: frame of a Trapeze connection\n"},
	} {
		var w strings.Builder
		describe(&w, time.Now(), c.frame, dissect.New())
		if !strings.HasSuffix(w.String(), c.want) {
			t.Errorf("%q does not end in %q", w.String(), c.want)
		}
	}
}

// TestCellReport: with --json the first frames are kept, and all are counted.
func TestCellReport(t *testing.T) {
	d := &dump{flags: &dumpFlags{}, dissector: dissect.New()}
	for range mostCellFrames + 10 {
		if err := d.show(time.Now(), cellFrame(1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.dissector.Totals(); len(d.cellFrames) != mostCellFrames || n.Frames != mostCellFrames+10 || n.WrongHEC != n.Cells {
		t.Errorf("%d frames, %+v", len(d.cellFrames), n)
	}
	r := dumpReport{Cells: &cellReport{d.dissector.Totals(), d.cellFrames}}
	var w strings.Builder
	if err := r.print(&w); err != nil || !strings.Contains(w.String(), "cells: 266 in 266 frames, 0 of them malformed; 266 with a wrong HEC") {
		t.Errorf("%v: %q", err, w.String())
	}
}

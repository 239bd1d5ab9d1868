package capture_test

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

// cell is a cell as it is captured.
type cell struct {
	direction capture.Direction
	header    cells.Header
	payload   [cells.PayloadSize]byte
}

// pduCells cuts a PDU.
func pduCells(t testing.TB, d capture.Direction, h cells.Header, pdu []byte) (out []cell) {
	t.Helper()
	var c cells.Cutter
	if err := c.Start(len(pdu), 0); err != nil {
		t.Fatal(err)
	}
	for c.Active() {
		one := cell{direction: d, header: h}
		n, last := c.Next()
		pdu = pdu[copy(one.payload[:n], pdu):]
		c.Seal(&one.payload)
		if last {
			one.header.PTI = cells.PTILast
		}
		out = append(out, one)
	}
	return out
}

// taken writes cells, a microsecond apart.
func taken(t testing.TB, all []cell) ([]byte, *capture.CellWriter) {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.NewCellWriter(&b, capture.Source{Name: "emu:"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if err := w.Cell(start.Add(time.Duration(i)*time.Microsecond), all[i].direction, all[i].header, &all[i].payload); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w
}

// pattern is a PDU without a pattern that another one has.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*i/3 + n)
	}
	return b
}

// tshark prints what it finds in a file, and must not complain.
func tshark(t *testing.T, file []byte, args ...string) (lines []string) {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	c := exec.Command(program, append([]string{"-r", "-"}, args...)...)
	c.Stdin = bytes.NewReader(file)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	complaints := strings.ReplaceAll(stderr.String(), "Running as user \"root\" and group \"root\". This could be dangerous.\n", "")
	if err != nil || complaints != "" {
		t.Fatalf("%v, %s", err, complaints)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// interleaved are cells of six PDUs, in the order in which their last cells come: short,
// long, received, one with a wrong bit, one that lacks a cell, and the longest that can be.
func interleaved(t testing.TB) []cell {
	t.Helper()
	a := pduCells(t, capture.Sent, cells.Header{VPI: 3, VCI: 0x1234}, pattern(1000))
	b := pduCells(t, capture.Sent, cells.Header{VCI: 4095}, pattern(40))
	c := pduCells(t, capture.Received, cells.Header{VPI: 3, VCI: 0x1234}, pattern(100))
	damaged := pduCells(t, capture.Received, cells.Header{VCI: 50}, pattern(200))
	damaged[2].payload[17] ^= 0x40
	missing := slices.Delete(pduCells(t, capture.Received, cells.Header{VCI: 51}, pattern(200)), 1, 2)
	longest := pduCells(t, capture.Sent, cells.Header{VPI: 255, VCI: 52}, pattern(cells.MaxPDU))
	oam := []cell{{header: cells.Header{VCI: 4095, PTI: 5}}}
	return slices.Concat(a[:5], c[:1], oam, b, a[5:10], damaged[:2], missing[:3], a[10:], c[1:], damaged[2:], missing[3:], longest)
}

// TestTsharkReadsPDUs: a decoder that is not ours finds each PDU with its channel, its
// direction (1 is received) and its length, which are whole cells if it is damaged.
func TestTsharkReadsPDUs(t *testing.T) {
	file, _ := taken(t, interleaved(t))
	got := tshark(t, file, "-T", "fields", "-e", "atm.aal", "-e", "atm.channel", "-e", "atm.vpi", "-e", "atm.vci", "-e", "frame.len")
	// 4 is Wireshark's number for AAL5.
	want := []string{"4\t0\t0\t4095\t40", "4\t0\t3\t4660\t1000", "4\t1\t3\t4660\t100", "4\t1\t0\t50\t240", "4\t1\t0\t51\t192", "4\t0\t255\t52\t65535"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestRecords: in the file stand header and bytes of each PDU, and when its last cell came.
func TestRecords(t *testing.T) {
	all := interleaved(t)
	file, w := taken(t, all)
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil || r.LinkType() != 123 {
		t.Fatal(err, r.LinkType())
	}
	for i, want := range []struct {
		header string
		length int
	}{
		{"\x80\x00\x0f\xff", 40}, {"\x80\x03\x12\x34", 1000}, {"\x00\x03\x12\x34", 100}, {"\x00\x00\x00\x32", 0}, {"\x00\x00\x00\x33", 0}, {"\x80\xff\x00\x34", cells.MaxPDU},
	} {
		got, info, err := r.ReadPacketData()
		if err != nil || len(got) < 4 || string(got[:4]) != want.header {
			t.Fatalf("record %d: %x, %v", i, got[:min(len(got), 4)], err)
		}
		if want.length > 0 && !bytes.Equal(got[4:], pattern(want.length)) {
			t.Errorf("record %d: %d bytes are not those of the PDU", i, len(got)-4)
		}
		if n := info.Timestamp.Sub(start) / time.Microsecond; n < 0 || int(n) >= len(all) || !all[n].header.Last() {
			t.Errorf("record %d came with cell %d", i, n)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Error(err)
	}
	if w.Damaged() != 2 {
		t.Errorf("%d damaged", w.Damaged())
	}
}

// TestEndless: a channel whose PDU has no end takes no more memory than the longest PDU
// does, and is written no more of.
func TestEndless(t *testing.T) {
	all := make([]cell, 3*cells.MaxCells)
	all[len(all)-1].header.PTI = cells.PTILast
	file, w := taken(t, all)
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := r.ReadPacketData()
	if n := len(got) - 4; err != nil || w.Damaged() != 1 || n != cells.MaxCells*cells.PayloadSize {
		t.Errorf("%v, %d damaged, %d bytes of the last", err, w.Damaged(), n)
	}
}

// trapezeFrame is a frame of cells from a station to another.
func trapezeFrame(from, to byte, all []cell) []byte {
	b := make([]byte, datasheet.HeaderSize+len(all)*datasheet.CellSize)
	*datasheet.HeaderAt(b) = datasheet.Header{Source: datasheet.MAC{2, 5: from}, Destination: datasheet.MAC{2, 5: to},
		EtherType: datasheet.EtherType, Version: datasheet.WireVersion, Type: datasheet.FrameCells, Length: uint16(len(all) * datasheet.CellSize)}
	on := datasheet.CellsAt(b[datasheet.HeaderSize:])
	for i, c := range all {
		var h [cells.HeaderSize]byte
		c.header.Put(&h)
		copy(on[i].Header[:], h[:4])
		on[i].HEC, on[i].Payload = h[4], c.payload
	}
	return b
}

// TestTsharkReadsFrames: the cells of frames, of channels that have the same number at
// different stations, are the PDUs that they were; other frames, and what is damaged, are not.
func TestTsharkReadsFrames(t *testing.T) {
	var b bytes.Buffer
	w, err := capture.NewCellWriter(&b, capture.Source{Name: "emu:"})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(d capture.Direction, p []byte) {
		if err := w.Frame(start, d, p); err != nil {
			t.Fatal(err)
		}
	}
	one, other := pduCells(t, 0, cells.Header{VCI: 7}, pattern(200)), pduCells(t, 0, cells.Header{VCI: 7}, pattern(150))
	frame(capture.Sent, trapezeFrame(1, 2, one[:3]))
	frame(capture.Received, trapezeFrame(2, 1, other[:1]))
	frame(capture.Sent, trapezeFrame(1, 3, other[:2]))
	// What is not for the file: nothing, text, another type, half a cell, a header with a wrong bit.
	data, flipped := trapezeFrame(1, 2, one[3:]), trapezeFrame(1, 2, one[3:])
	datasheet.HeaderAt(data).Type = datasheet.FrameData
	datasheet.CellsAt(flipped[datasheet.HeaderSize:])[0].Header[2] ^= 1
	for _, p := range [][]byte{nil, pattern(300), data, trapezeFrame(1, 2, one[3:])[:datasheet.HeaderSize+datasheet.CellSize/2], flipped[:datasheet.HeaderSize+datasheet.CellSize]} {
		frame(capture.Sent, p)
	}
	frame(capture.Sent, append(trapezeFrame(1, 2, one[3:]), 0, 0, 0)) // filled up
	frame(capture.Received, trapezeFrame(2, 1, other[1:]))
	frame(capture.Sent, trapezeFrame(1, 3, other[2:]))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if w.PDUs() != 3 || w.Damaged() != 0 {
		t.Errorf("%d PDUs, %d damaged", w.PDUs(), w.Damaged())
	}
	got := tshark(t, b.Bytes(), "-T", "fields", "-e", "atm.aal", "-e", "atm.channel", "-e", "atm.vci", "-e", "frame.len", "-e", "data.data")
	var want []string
	for _, p := range []struct {
		direction string
		pdu       []byte
	}{{"0", pattern(200)}, {"1", pattern(150)}, {"0", pattern(150)}} { // that begin as nothing that tshark knows
		want = append(want, fmt.Sprintf("4\t%s\t7\t%d\t%x", p.direction, len(p.pdu), p.pdu))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestManyEndless: channels whose PDUs have no end take no more memory than is allowed, and
// what comes on others before that is whole.
func TestManyEndless(t *testing.T) {
	var b bytes.Buffer
	w, err := capture.NewCellWriter(&b, capture.Source{})
	if err != nil {
		t.Fatal(err)
	}
	var payload [cells.PayloadSize]byte
	cell := func(h cells.Header) {
		if err := w.Cell(start, capture.Received, h, &payload); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for vci := range 1 << 12 {
		for range 400 {
			cell(cells.Header{VCI: uint16(vci)})
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<20 {
		t.Errorf("%d bytes more are in use", grown)
	}
	for vci := range 1 << 12 {
		cell(cells.Header{VCI: uint16(vci), PTI: cells.PTILast})
	}
	if w.Damaged() == 0 || w.Damaged() != w.PDUs() || w.PDUs() >= 1<<12 {
		t.Errorf("%d of %d PDUs damaged", w.Damaged(), w.PDUs())
	}
}

// FuzzFrame: whatever is in frames, no more PDUs come of it than there were cells.
func FuzzFrame(f *testing.F) {
	f.Add(trapezeFrame(1, 2, pduCells(f, 0, cells.Header{VCI: 7}, pattern(100))))
	f.Add(trapezeFrame(1, 2, pduCells(f, 0, cells.Header{VCI: 7}, pattern(2))))
	f.Add([]byte("no frame"))
	f.Fuzz(func(t *testing.T, p []byte) {
		w, err := capture.NewCellWriter(io.Discard, capture.Source{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.Frame(start, capture.Sent, p); err != nil {
				t.Fatal(err)
			}
		}
		if w.PDUs() > 2*uint64(len(p)/datasheet.CellSize) || w.Damaged() > w.PDUs() {
			t.Fatalf("%d PDUs, %d damaged, of %d bytes", w.PDUs(), w.Damaged(), len(p))
		}
	})
}

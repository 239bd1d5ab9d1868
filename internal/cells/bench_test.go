package cells_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/cells"
)

// message is a PDU of 4 KiB on its way through Cutter and Assembly.
type message struct {
	cutter   cells.Cutter
	assembly cells.Assembly
	payload  [cells.PayloadSize]byte
	header   [cells.HeaderSize]byte
}

func (m *message) cross(t testing.TB) {
	if err := m.cutter.Start(4096, 0); err != nil {
		t.Fatal(err)
	}
	for m.cutter.Active() && (cells.Waiting{Low: true}).Next() == cells.Low {
		_, last := m.cutter.Next()
		m.cutter.Seal(&m.payload)
		h := cells.Header{VCI: 1}
		if last {
			h.PTI = cells.PTILast
		}
		h.Put(&m.header)
		h, err := cells.ParseHeader(&m.header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.assembly.Add(&m.payload, h.Last()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothingIsAllocated on the way of a message, and none when a cell is refused.
func TestNothingIsAllocated(t *testing.T) {
	var m message
	if n := testing.AllocsPerRun(10, func() { m.cross(t) }); n != 0 {
		t.Errorf("%v allocations for a message", n)
	}
	if n := testing.AllocsPerRun(10, func() {
		_, crc := m.assembly.Add(&m.payload, true)
		_, hec := cells.ParseHeader(&[cells.HeaderSize]byte{1})
		if crc == nil || hec == nil || m.cutter.Start(0, 0) == nil {
			t.Error("taken")
		}
	}); n != 0 {
		t.Errorf("%v allocations for what is refused", n)
	}
}

// BenchmarkCRC is the CRC of the payload of one cell.
func BenchmarkCRC(b *testing.B) {
	var payload [cells.PayloadSize]byte
	b.SetBytes(cells.PayloadSize)
	crc := cells.StartCRC
	for b.Loop() {
		crc = crc.Update(payload[:])
	}
}

// BenchmarkMessage is 4 KiB, cut and put together again.
func BenchmarkMessage(b *testing.B) {
	var m message
	b.SetBytes(4096)
	for b.Loop() {
		m.cross(b)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*cells.Count(4096)), "ns/cell")
}

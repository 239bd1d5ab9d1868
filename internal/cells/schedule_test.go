package cells_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cells"
)

// TestNext tries everything that can wait.
func TestNext(t *testing.T) {
	seen := map[cells.Step]bool{}
	for i := range 16 {
		w := cells.Waiting{Received: i&1 != 0, High: i&2 != 0, Low: i&4 != 0, Stopped: i&8 != 0}
		got := w.Next()
		seen[got] = true
		switch {
		case w.Received && got != cells.Receive,
			!w.Received && w.Stopped && got != cells.Idle,
			!w.Received && !w.Stopped && w.High && got != cells.High,
			!w.Received && !w.Stopped && !w.High && w.Low && got != cells.Low,
			!w.Received && !w.High && !w.Low && got != cells.Idle:
			t.Errorf("%+v: %v", w, got)
		}
	}
	for s := range cells.Steps {
		if !seen[s] {
			t.Errorf("never %v", s)
		}
	}
}

// message is a PDU of 4 KiB on its way through Cutter and Assembly.
type message struct {
	cutter   cells.Cutter
	assembly cells.Assembly
	payload  [1][cells.PayloadSize]byte
	header   [cells.HeaderSize]byte
}

func (m *message) cross(t testing.TB) {
	must.OK(t, m.cutter.Start(4096, 0))
	for m.cutter.Active() && (cells.Waiting{Low: true}).Next() == cells.Low {
		_, last := m.cutter.Next()
		m.cutter.Seal(&m.payload[0])
		h := cells.Header{VCI: 1}
		if last {
			h.PTI = cells.PTILast
		}
		h.Put(&m.header)
		h = must.Get(cells.ParseHeader(&m.header))(t)
		must.Get(m.assembly.AddRun(m.payload[:], h.Last()))(t)
	}
}

// TestNothingIsAllocated on the way of a message, and none when a cell is refused.
func TestNothingIsAllocated(t *testing.T) {
	var m message
	should.Be(t, testing.AllocsPerRun(10, func() { m.cross(t) }), 0, "allocations for a message")
	should.Be(t, testing.AllocsPerRun(10, func() {
		_, crc := m.assembly.AddRun(m.payload[:], true)
		_, hec := cells.ParseHeader(&[cells.HeaderSize]byte{1})
		if crc == nil || hec == nil || m.cutter.Start(0, 0) == nil {
			t.Error("taken")
		}
	}), 0, "allocations for what is refused")
}

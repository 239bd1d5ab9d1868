package emulator_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// TestLateWriter: what a peer writes that has begun a copy, and stands still until the registration has ended,
// never lands in memory that the owner goes on using, while what the owner wrote is there.
func TestLateWriter(t *testing.T) {
	x, y := newWriters(t, both, both)
	const size = 64 << 10
	whole, err := y.nic.Alloc(t.Context(), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true})
	conform.OK(t, err)
	r := newRemote(t, x, y, size)
	conform.OK(t, r.memory.Close(t.Context()))
	r.memory, err = y.nic.Register(t.Context(), whole.Bytes(), whole.Attributes())
	conform.OK(t, err)
	r.waitDirect(t, true)
	fill(whole.Bytes(), 1)

	table := x.port.Begin(x.port.Wire())
	if table == nil {
		t.Fatal("no copy can begin")
	}
	var e datasheet.DirectRegion
	if handle := r.memory.Handle(); !table.Regions[handle&0xfffff].Load(handle, &e) {
		t.Fatal("the region is not in the table")
	}
	to := x.port.Reach(e.Memory, e.Offset, size, true)
	to[0] = 100
	conform.OK(t, r.memory.Close(t.Context()))
	want := bytes.Clone(whole.Bytes())
	if want[0] != 100 {
		t.Error("what was written before is not there")
	}
	fill(to, 50)
	if !bytes.Equal(whole.Bytes(), want) {
		t.Error("memory was written after its registration had ended")
	}
	x.port.End()
	fill(whole.Bytes(), 9) // it is good for what comes
	conform.OK(t, whole.Close(t.Context()))
	if got := y.device.Sharing(); got.Err != nil {
		t.Error(got.Err)
	}
}

package emulator_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
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

// TestLateWriterKeepsMemory: where the system has no memory for pages in place of those that a peer may still write
// to, Sharing says so.
func TestLateWriterKeepsMemory(t *testing.T) {
	x, y := newWriters(t, both, both)
	const size = 256 << 20
	r := newRemote(t, x, y, 4096)
	large, err := y.nic.Alloc(t.Context(), size, via.MemoryAttributes{RDMAWrite: true})
	conform.OK(t, err)
	r.waitDirect(t, true)
	if x.port.Begin(x.port.Wire()) == nil {
		t.Fatal("no copy can begin")
	}
	defer x.port.End()
	limitData(t, size/2)
	conform.OK(t, large.Close(t.Context()))
	if got := y.device.Sharing(); !errors.Is(got.Err, wire.ErrMemory) || !errors.Is(got.Err, unix.ENOMEM) {
		t.Errorf("Sharing says %v", got.Err)
	}
}

// limitData lets this process have only more bytes of private memory than it has now.
func limitData(t *testing.T, more uint64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	conform.OK(t, err)
	_, line, _ := strings.Cut(string(status), "VmData:")
	var now uint64
	_, err = fmt.Sscanf(line, "%d kB", &now)
	conform.OK(t, err)
	var old unix.Rlimit
	conform.OK(t, unix.Getrlimit(unix.RLIMIT_DATA, &old))
	conform.OK(t, unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: now<<10 + more, Max: old.Max}))
	t.Cleanup(func() { conform.OK(t, unix.Setrlimit(unix.RLIMIT_DATA, &old)) })
}

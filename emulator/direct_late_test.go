package emulator_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestLateWriter: what a peer writes that has begun a copy, and stands still until the registration has ended,
// never lands in memory that the owner goes on using, while what the owner wrote is there.
func TestLateWriter(t *testing.T) {
	leaktest.Parallel(t)
	x, y := newWriters(t, both, both)
	const size = 64 << 10
	whole := must.Get(y.nic.Alloc(t.Context(), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true}))(t)
	r := newRemote(t, x, y, size)
	must.OK(t, r.memory.Close(t.Context()))
	r.memory = must.Get(y.nic.Register(t.Context(), whole.Bytes(), whole.Attributes()))(t)
	r.waitDirect(t, true)
	fill(whole.Bytes(), 1)

	table := x.port.Begin(x.port.Wire())
	if table == nil {
		t.Fatal("no copy can begin")
	}
	var e datasheet.DirectRegion
	handle := r.memory.Handle()
	must.Be(t, table.Regions[handle&0xfffff].Load(handle, &e), true, "the region is in the table")
	to := x.port.Reach(e.Memory, e.Offset, size, true)
	to[0] = 100
	must.OK(t, r.memory.Close(t.Context()))
	want := bytes.Clone(whole.Bytes())
	should.Be(t, 100, want[0], "what was written before is not there")
	fill(to, 50)
	should.Same(t, whole.Bytes(), want, "memory was written after its registration had ended")
	x.port.End()
	fill(whole.Bytes(), 9) // it is good for what comes
	must.OK(t, whole.Close(t.Context()))
	should.OK(t, y.device.Sharing().Err)
}

// TestLateWriterKeepsMemory: where the system has no memory for pages in place of those that a peer may still write
// to, Sharing says so.
func TestLateWriterKeepsMemory(t *testing.T) {
	leaktest.Parallel(t)
	x, y := newWriters(t, both, both)
	const size = 256 << 20
	r := newRemote(t, x, y, 4096)
	large := must.Get(y.nic.Alloc(t.Context(), size, via.MemoryAttributes{RDMAWrite: true}))(t)
	r.waitDirect(t, true)
	if x.port.Begin(x.port.Wire()) == nil {
		t.Fatal("no copy can begin")
	}
	defer x.port.End()
	limitData(t, size/2)
	must.OK(t, large.Close(t.Context()))
	if got := y.device.Sharing(); !errors.Is(got.Err, wire.ErrMemory) || !errors.Is(got.Err, unix.ENOMEM) {
		t.Errorf("Sharing says %v", got.Err)
	}
}

// limitData lets this process have only more bytes of private memory than it has now.
func limitData(t *testing.T, more uint64) {
	t.Helper()
	status := must.Get(os.ReadFile("/proc/self/status"))(t)
	_, line, _ := strings.Cut(string(status), "VmData:")
	var now uint64
	must.Get(fmt.Sscanf(line, "%d kB", &now))(t)
	var old unix.Rlimit
	must.OK(t, unix.Getrlimit(unix.RLIMIT_DATA, &old))
	must.OK(t, unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: now<<10 + more, Max: old.Max}))
	t.Cleanup(func() { must.OK(t, unix.Setrlimit(unix.RLIMIT_DATA, &old)) })
}

// TestLentFileCutOff: memory whose file could be cut off under the peer is not lent, and an operation on
// it goes in frames.
func TestLentFileCutOff(t *testing.T) {
	x, y := newWriters(t, both, both)
	r := newRemote(t, x, y, 4096)
	r.waitDirect(t, true)
	fd := must.Get(unix.MemfdCreate("cut off", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(fd)
	must.OK(t, unix.Ftruncate(fd, 4096))
	b := must.Get(unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(b)
	for what, export := range map[string]func(int, int64, []byte) (uint32, error){"reading": y.port.Export, "writing": y.port.ExportWritable} {
		if _, err := export(fd, 0, b); err == nil {
			t.Errorf("a file that can be truncated is lent for %s", what)
		}
	}
	must.OK(t, unix.Ftruncate(fd, 0))
	must.OK(t, r.do(t, 0, 64, true)) // the wire is as it was
}

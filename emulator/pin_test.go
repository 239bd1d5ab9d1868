package emulator_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// pinnedTo counts the threads of this process that may run on a core and nowhere
// else, the process's first thread only if first is set: the Go runtime cannot end
// that one, and never uses it again.
func pinnedTo(t *testing.T, core int, first bool) (n int) {
	t.Helper()
	tasks := must.Get(os.ReadDir("/proc/self/task"))(t)
	for _, task := range tasks {
		id := must.Get(strconv.Atoi(task.Name()))(t)
		if id == os.Getpid() && !first {
			continue
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(id, &set); err == nil && set.Count() == 1 && set.IsSet(core) {
			n++
		}
	}
	return n
}

// firstCore is a core that this process may use.
func firstCore(t *testing.T) (core int, others bool) {
	t.Helper()
	var set unix.CPUSet
	must.OK(t, unix.SchedGetaffinity(0, &set))
	for !set.IsSet(core) {
		core++
	}
	return core, set.Count() > 1
}

func loopback(t *testing.T) wire.Port {
	t.Helper()
	w := must.Get(wire.NewLoopback(wire.MemoryOptions{}))(t)
	return w
}

// TestPinned: the engine's thread stays on its core, and ends with the device.
func TestPinned(t *testing.T) {
	core, others := firstCore(t)
	if !others {
		t.Skip("with one core every thread is pinned")
	}
	unpinned := func() {
		t.Helper()
		waittest.Until(t, "no thread is pinned", func() bool { return pinnedTo(t, core, false) == 0 })
	}
	unpinned() // those of earlier tests end
	before := pinnedTo(t, core, true)
	d := must.Get(emulator.New(emulator.Options{Wire: loopback(t), Thread: true, Pinned: true, Core: core}))(t)
	should.Be(t, pinnedTo(t, core, true), before+1, "threads are pinned, want one more than %d", before)
	must.OK(t, d.Close())
	unpinned()
}

// TestPinnedRefused: what cannot be pinned says so.
func TestPinnedRefused(t *testing.T) {
	core, _ := firstCore(t)
	for name, o := range map[string]emulator.Options{
		"inline":        {Pinned: true, Core: core},
		"no such core":  {Thread: true, Pinned: true, Core: 1 << 20},
		"negative core": {Thread: true, Pinned: true, Core: -1},
	} {
		o.Wire = loopback(t)
		should.Refuse(emulator.New(o))(t, emulator.ErrOptions, "%s", name)
	}
	for _, options := range []string{"core=0", "engine=inline&core=0", "engine=thread&core=x", "engine=thread&core=-1", "engine=thread&core=99999"} {
		if d, err := vfio.Open(context.Background(), "emu:?"+options); err == nil {
			t.Errorf("%s: opened", options)
			_ = d.Close()
		}
	}
	d := must.Get(vfio.Open(context.Background(), fmt.Sprintf("emu:?engine=thread&core=%d", core)))(t)
	should.OK(t, d.Close())
}

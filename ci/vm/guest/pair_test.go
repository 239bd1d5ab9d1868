package guest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/vfio"
)

// virtioID is virtio's network device, of version 1.
const virtioID = "0x1af4 0x1041"

// pair is two NICs on one hub of QEMU's, each behind a port of its own: ours, and one that
// Linux drives.
type pair struct {
	name string
	// id is vendor and device of ours, which is the nth of them in the order of their
	// addresses; likewise Linux's.
	id, theirID string
	n, theirN   int
	driver      string // Linux's
	// cable is ours in QEMU's monitor, end Linux's, again what makes ours anew.
	cable, end, again string
}

// pairs are those of the scenario that TRAPEZE_PAIR names (see ci/vm/boot).
var pairs = map[string][]pair{
	"igb": {
		{name: "igb", id: igbID, theirID: igbID, theirN: 1, driver: "igb", cable: "ours", end: "theirs",
			again: "igb,id=ours,bus=pair0,netdev=end0,mac=02:00:00:00:01:00,romfile="},
	},
	"virtio": {
		{name: "split", id: virtioID, theirID: virtioID, theirN: 1, driver: "virtio-pci", cable: "ours", end: "theirs",
			again: "virtio-net-pci,id=ours,bus=pair0,netdev=end0,mac=02:00:00:00:01:00,romfile=,disable-legacy=on,iommu_platform=on,packed=off"},
		{name: "packed", id: virtioID, n: 2, theirID: virtioID, theirN: 3, driver: "virtio-pci", cable: "ours2", end: "theirs2",
			again: "virtio-net-pci,id=ours2,bus=pair2,netdev=end2,mac=02:00:00:00:01:02,romfile=,disable-legacy=on,iommu_platform=on,packed=on"},
	},
}

// eachPair runs a test on each pair of this guest.
func eachPair(t *testing.T, f func(t *testing.T, p pair)) {
	t.Helper()
	list := pairs[os.Getenv("TRAPEZE_PAIR")]
	if len(list) == 0 {
		t.Skip("no pairs of NICs in this guest")
	}
	// Only what tests say goes to the kernel's drivers.
	write(t, "0", "/sys/bus/pci/drivers_autoprobe")
	t.Cleanup(func() { write(t, "1", "/sys/bus/pci/drivers_autoprobe") })
	for _, p := range list {
		t.Run(p.name, func(t *testing.T) { f(t, p) })
	}
}

// onlyIGB skips a test of what virtio does not have.
func (p pair) onlyIGB(t *testing.T) {
	t.Helper()
	if p.id != igbID {
		t.Skip("not for virtio")
	}
}

func (p pair) ours(t *testing.T) string {
	t.Helper()
	list := find(t, p.id)
	if len(list) <= p.n {
		t.Fatalf("functions %q", list)
	}
	return list[p.n]
}

// open opens our NIC and waits for its link. Port and pool are closed with the test, and
// every buffer is back then.
func (p pair) open(t *testing.T, c ethernet.Options) ethernet.Port {
	t.Helper()
	eventfd(t) // has the runtime open what it keeps
	checkFiles(t)
	return openOurs(t, p.ours(t), c)
}

func openOurs(t *testing.T, function string, c ethernet.Options) ethernet.Port {
	t.Helper()
	bind(t, function, "vfio-pci")
	if c.Pool == nil {
		c.Pool = pagePool(t)
	}
	t.Cleanup(func() {
		if n, want := c.Pool.Free(), c.Pool.Options().Buffers; n != want {
			t.Errorf("%d of %d buffers are back", n, want)
		}
	})
	if c.ReceiveDescriptors == 0 {
		c.ReceiveDescriptors, c.SendDescriptors = 256, 256
	}
	c.Interrupts = true
	port := openPort(t, function, c)
	if _, err := ethernet.WaitLink(within(t), port); err != nil {
		t.Fatal(err)
	}
	return port
}

// pagePool makes a pool of which each buffer is in one page: see newPool.
func pagePool(t *testing.T) *ethernet.Pool {
	return poolOf(t, ethernet.PoolOptions{Buffers: 2048, Headroom: 64, Size: 4096 - 64})
}

// jumboPool makes a pool for frames of 9000 bytes, which lie in huge pages.
func jumboPool(t *testing.T) *ethernet.Pool {
	return poolOf(t, ethernet.PoolOptions{Buffers: 512, Headroom: 64, Size: 9216,
		MemoryOptions: vfio.MemoryOptions{Huge: vfio.HugeRequire}})
}

func poolOf(t *testing.T, c ethernet.PoolOptions) *ethernet.Pool {
	t.Helper()
	pool, err := ethernet.NewPool(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// worker uses a queue of a port in a goroutine.
type worker struct {
	done   sync.WaitGroup
	cancel context.CancelFunc
	err    error // once it has ended
}

// work calls step for the frames that come in a queue, which it may change; it returns which
// of them are sent back. It ends with the test, with end, or with the port's failure.
func work(t *testing.T, q ethernet.Queue, step func(f *ethernet.Frame, b []byte) (back bool)) *worker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{cancel: cancel}
	w.done.Go(func() { w.err = serve(ctx, q, step) })
	t.Cleanup(func() { _ = w.end() })
	return w
}

// end ends the goroutine, and returns why it has ended before.
func (w *worker) end() error {
	w.cancel()
	return w.wait()
}

func (w *worker) wait() error {
	w.done.Wait()
	if errors.Is(w.err, context.Canceled) {
		return nil
	}
	return w.err
}

func serve(ctx context.Context, q ethernet.Queue, step func(f *ethernet.Frame, b []byte) bool) error {
	frames := make([]ethernet.Frame, 32)
	for ctx.Err() == nil {
		n, err := q.Receive(frames)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := q.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		back, drop := frames[:0:0], frames[:0:0]
		for i := range frames[:n] {
			if step(&frames[i], q.Cache().Pool().Bytes(frames[i])) {
				back = append(back, frames[i])
			} else {
				drop = append(drop, frames[i])
			}
		}
		q.Cache().Free(drop)
		sent, err := q.Send(back)
		q.Cache().Free(back[sent:])
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

package virtqueue_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/virtqueuetest"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds are all kinds of queues.
var kinds = []struct {
	name       string
	format     virtqueue.Format
	eventIndex bool
}{
	{"split", virtqueue.Split, false},
	{"split, event index", virtqueue.Split, true},
	{"packed", virtqueue.Packed, false},
	{"packed, event index", virtqueue.Packed, true},
}

// rig is a queue with both its sides. Buffers lie in data, which begins at bus address base.
type rig struct {
	virtqueue.Queue
	device virtqueuetest.Queue
	areas  virtqueuetest.Areas
	ring   []byte
	data   []byte
}

const base = 0x1_0000_0000

// newRig makes a queue in memory outside the Go heap.
func newRig(t testing.TB, o virtqueue.Options, data int) *rig {
	t.Helper()
	l := must.Get(o.Layout())(t)
	memory := must.Get(unix.Mmap(-1, 0, int(l.Size)+data, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	r := &rig{ring: memory[:l.Size:l.Size], data: memory[l.Size:]}
	for i := range r.ring {
		r.ring[i] = 0xa5 // New has to zero it
	}
	r.Queue = must.Get(virtqueue.New(r.ring, o))(t)
	r.areas = virtqueuetest.Areas{Descriptor: r.ring[l.Descriptor:l.Driver], Driver: r.ring[l.Driver:l.Device], Device: r.ring[l.Device:]}
	r.device = virtqueuetest.New(o.Format == virtqueue.Packed, o.Size, o.EventIndex, r.areas, r.find)
	return r
}

func (r *rig) find(address uint64, n uint32) ([]byte, error) {
	at := address - base
	if at > uint64(len(r.data)) || uint64(n) > uint64(len(r.data))-at {
		return nil, fmt.Errorf("%d bytes at %#x are not in memory", n, address)
	}
	return r.data[at : at+uint64(n)], nil
}

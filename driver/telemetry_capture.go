package driver

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/framering"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// captureLog2 is the size of the ring of a capture, 16 MiB as a power of two.
const captureLog2 = 24

// watchable is a device whose frames this process sees: one that it emulates.
type watchable interface {
	// Watch has show see each frame, until it is called with nil. It reports whether it does:
	// two cannot watch.
	Watch(show func(sent bool, frame []byte)) bool
}

// captured has the frames that a program beside this one captures of a NIC.
type captured struct {
	mu   sync.Mutex // guards ring
	ring *framering.Writer
}

// lendCapture has the frames that cross the wire copied into memory. The client that asks has that
// until its connection ends. One client at a time can have them.
func (n *NIC) lendCapture(ctx context.Context, p []uint64) (any, error) {
	dev, ok := n.dev.(watchable)
	if !ok {
		return telemetry.Capture{Refused: "its frames do not pass through this process: capture at the other end of the wire, or by 'trapeze frames dump'"}, nil
	}
	return get(ctx, n.do, "lend capture", func() (any, error) {
		c := &n.captured
		c.mu.Lock()
		defer c.mu.Unlock()
		memory, ring, err := newCaptureRing(int(p[0]))
		if err != nil {
			return nil, err
		}
		if !dev.Watch(func(sent bool, frame []byte) { ring.Put(time.Now(), sent, frame) }) {
			return telemetry.Capture{Refused: "its frames are captured already"}, memory.Close()
		}
		c.ring = ring
		return &telemetry.Loan{Answer: telemetry.Capture{}, FD: memory.FD(), End: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			dev.Watch(nil)
			c.ring = nil
			if err := memory.Close(); err != nil {
				n.log.Warn("memory of a capture is not given back", "err", err)
			}
		}}, nil
	})
}

// newCaptureRing makes the ring of a capture. Who gets the memory can neither make it smaller nor
// keep others from mapping it.
func newCaptureRing(snaplen int) (*vfio.Memory, *framering.Writer, error) {
	memory, err := vfio.AllocMemory(uint64(framering.Size(captureLog2)), vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return nil, nil, err
	}
	_, err = unix.FcntlInt(uintptr(memory.FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
	err = os.NewSyscallError("seal", err)
	var ring *framering.Writer
	if err == nil {
		ring, err = framering.NewWriter(memory.Bytes(), snaplen)
	}
	if err != nil {
		return nil, nil, errors.Join(err, memory.Close())
	}
	return memory, ring, nil
}

// endCapture tells a program that captures that the NIC is closed. No frame crosses its wire any
// more.
func (n *NIC) endCapture() {
	c := &n.captured
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring != nil {
		c.ring.End()
	}
}

package driver

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
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

const (
	// lentLog2 is the size of a log that is kept for another program, 4096 records as a power of
	// two; lentPage bounds the records that it takes at a time.
	lentLog2, lentPage = 12, 512
	// lentFor bounds the life of such a log without a reader.
	lentFor = 5 * time.Second
)

// transfers takes records of a log that is kept for a program beside this one, and begins it if
// there is none. It fails with ErrInvalidState if this program keeps a log of its own.
func (n *NIC) transfers(context.Context, []uint64) (any, error) {
	if err := n.inDMA("lend DMA log", n.lendLog); err != nil {
		return nil, err
	}
	var records [lentPage]dmalog.Record
	count, err := n.ReadDMALog(records[:])
	if err != nil {
		return nil, err
	}
	state, err := n.DMALog()
	t := telemetry.Transfers{Records: [][5]int64{}, Lost: state.Lost}
	for _, r := range records[:count] {
		t.Records = append(t.Records, [5]int64{int64(r.Packet), int64(r.Engine), r.Start / 1000, r.End / 1000, int64(r.Bytes)})
	}
	return t, err
}

// lendLog has the log that is lent kept for some time more. dma.mu is held.
func (n *NIC) lendLog() error {
	l := &n.dma.log
	if l.buf != nil && l.lent == nil {
		return hinted(descriptors.ErrInvalidState, "the program that has the NIC keeps the log itself")
	}
	if l.buf == nil {
		if err := n.openLog(lentLog2); err != nil {
			return err
		}
		l.lent = time.AfterFunc(lentFor, n.endLent)
		return nil
	}
	l.lent.Reset(lentFor)
	return nil
}

// endLent ends a log that was lent, unless the program has begun one of its own.
func (n *NIC) endLent() {
	_ = n.inDMA("end lent DMA log", func() error {
		if n.dma.log.lent == nil {
			return nil
		}
		return n.closeLog()
	}) // else the NIC is closed, or has failed; or Close does it
}

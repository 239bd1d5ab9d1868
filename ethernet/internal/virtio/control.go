package virtio

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
)

const (
	// controlSize is the number of descriptors that the control queue has.
	controlSize = 16
	// controlBuffer is the size of the buffer of commands, which begins the memory of
	// rings: a multiple of the alignment of rings. The device's answer is its last byte.
	controlBuffer = 4096
)

// Classes of commands, with their commands ("Control Virtqueue").
const (
	classReceive    = 0
	promiscuousMode = 0
	allMulticast    = 1

	classMAC = 1
	setTable = 0
	setMAC   = 1

	classMQ  = 4
	setPairs = 0
)

// control is the queue of commands to the device.
type control struct {
	ring
	device *device
}

func newControl(d *device) *control {
	return &control{ring: ring{interrupt: -1}, device: d}
}

// command runs a command on the device, and waits for its answer.
func (c *control) command(ctx context.Context, class, command byte, data []byte) error {
	fail := func(err error) error { return fmt.Errorf("command %d.%d: %w", class, command, err) }
	if err := c.Violation(); err != nil {
		return fail(fmt.Errorf("%w: %w", ethernet.ErrProtocol, err))
	}
	b := c.device.memory[:controlBuffer]
	answer := &b[controlBuffer-1]
	b[0], b[1] = class, command
	n := 2 + copy(b[2:controlBuffer-1], data)
	*answer = 0xff // no answer that there is
	if c.Room() < 2 {
		return fail(ethernet.ErrNotReady) // commands before it were never answered
	}
	c.AddChain([]virtqueue.Part{{Address: c.device.memoryBus, Length: uint32(n)},
		{Address: c.device.memoryBus + controlBuffer - 1, Length: 1, Writable: true}}, 0)
	c.publish()
	var used [1]virtqueue.Used
	for end := time.Now().Add(c.device.options.Timeout); c.Take(used[:]) == 0; time.Sleep(port.Nap) {
		switch {
		case c.Violation() != nil:
			return fail(fmt.Errorf("%w: %w", ethernet.ErrProtocol, c.Violation()))
		case ctx.Err() != nil:
			return fail(ctx.Err())
		case time.Now().After(end):
			return fail(fmt.Errorf("%w: no answer within %v", ethernet.ErrNotReady, c.device.options.Timeout))
		}
	}
	if *answer != 0 {
		return fail(fmt.Errorf("%w: the device refuses (%d)", ethernet.ErrNotSupported, *answer))
	}
	return nil
}

// pairs says how many pairs of queues are used.
func (c *control) pairs(ctx context.Context, n int) error {
	return c.command(ctx, classMQ, setPairs, binary.LittleEndian.AppendUint16(nil, uint16(n)))
}

// on switches a feature on, or off.
func on(v bool) []byte {
	if v {
		return []byte{1}
	}
	return []byte{0}
}

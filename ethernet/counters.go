package ethernet

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
)

// Counters is what a port has counted.
type Counters struct {
	// Queues has what the driver counts, queue by queue.
	Queues []QueueCounters
	// Device has what the device counts itself; nil if it does not, or does not answer.
	Device *DeviceCounters
	// Restarts of the whole device, by Restart and by the driver.
	Restarts uint64
}

// QueueCounters is what the driver counts of a queue: frames and bytes that have been
// given to the caller of Receive and taken from that of Send, and what was lost.
type QueueCounters struct {
	ReceivedFrames, ReceivedBytes uint64
	SentFrames, SentBytes         uint64
	// ReceiveErrors are frames that the device marks as bad, BadLengths those of which it
	// gives a length that cannot be, Unended those that do not end in the buffer in which
	// they begin.
	ReceiveErrors, BadLengths, Unended uint64
	// NoBuffers is how often Receive stopped because the pool had no buffer.
	NoBuffers uint64
	// Lost frames were in a ring that was restarted, and may or may not have been sent.
	Lost uint64
	// Restarts of this queue's rings because they stood still or made no sense.
	Restarts uint64
	// Interrupts that Wait has seen.
	Interrupts uint64
}

// DeviceCounters is what a device counts itself, all queues together.
type DeviceCounters struct {
	ReceivedFrames, ReceivedBytes uint64
	SentFrames, SentBytes         uint64
	// Missed frames found no room: no descriptor, or no memory of the device.
	Missed uint64
	// ReceiveErrors are frames with a bad CRC, symbol or length.
	ReceiveErrors uint64
}

// Counter counts on the data path: it has one writer, and any number of readers.
type Counter struct{ n uint64 }

// Add is for the one writer: it costs no locked instruction.
func (c *Counter) Add(n uint64) {
	if n != 0 {
		atomicmem.Store64(&c.n, c.n+n)
	}
}

// Load may be called by anybody.
func (c *Counter) Load() uint64 { return atomic.LoadUint64(&c.n) }

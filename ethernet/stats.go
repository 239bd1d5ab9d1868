package ethernet

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
)

// Stats has a port's counters since Open.
type Stats struct {
	// Queues has the counters of the driver, queue by queue.
	Queues []QueueStats `json:"queues" help:"Counters of the driver for each queue." unit:"queues"`
	// Device has the counters of the device; nil if it has none, or does not answer.
	Device *DeviceStats `json:"device,omitempty" help:"Counters of the device, for all queues together." unit:"devices"`

	Restarts uint64 `json:"restarts" help:"Restarts of the whole device." unit:"restarts"`
}

// QueueStats has the driver's counters of a queue: frames and bytes that the caller of Receive got
// and that of Send gave, and what was lost.
type QueueStats struct {
	ReceivedFrames uint64 `json:"received_frames" help:"Frames that Receive returned." unit:"frames"`
	ReceivedBytes  uint64 `json:"received_bytes" help:"Bytes of the frames that Receive returned." unit:"bytes"`
	SentFrames     uint64 `json:"sent_frames" help:"Frames that Send took." unit:"frames"`
	SentBytes      uint64 `json:"sent_bytes" help:"Bytes of the frames that Send took." unit:"bytes"`
	ReceiveErrors  uint64 `json:"receive_errors" help:"Received frames that the device marks as bad." unit:"frames"`
	BadLengths     uint64 `json:"bad_lengths" help:"Received frames with a length that cannot be." unit:"frames"`
	Unended        uint64 `json:"unended" help:"Received frames that do not end in their first buffer." unit:"frames"`
	NoBuffers      uint64 `json:"no_buffers" help:"Calls of Receive that stopped for want of a buffer." unit:"calls"`
	Lost           uint64 `json:"lost" help:"Frames in a ring that was restarted, which may not have been sent." unit:"frames"`
	Restarts       uint64 `json:"queue_restarts" help:"Restarts of rings that stood still or broke the rules." unit:"restarts"`
	Interrupts     uint64 `json:"interrupts" help:"Interrupts that Wait has seen." unit:"interrupts"`
}

// DeviceStats has a device's own counters, all queues together.
type DeviceStats struct {
	ReceivedFrames uint64 `json:"device_received_frames" help:"Frames that the device received." unit:"frames"`
	ReceivedBytes  uint64 `json:"device_received_bytes" help:"Bytes that the device received." unit:"bytes"`
	SentFrames     uint64 `json:"device_sent_frames" help:"Frames that the device sent." unit:"frames"`
	SentBytes      uint64 `json:"device_sent_bytes" help:"Bytes that the device sent." unit:"bytes"`
	Missed         uint64 `json:"device_missed" help:"Frames that found no descriptor, or no memory of the device." unit:"frames"`
	ReceiveErrors  uint64 `json:"device_receive_errors" help:"Frames with a bad CRC, symbol or length." unit:"frames"`
}

// Counter counts on the data path: it has one writer, and any number of readers.
type Counter struct{ n uint64 }

// Add is for the one writer: it costs no locked instruction.
func (c *Counter) Add(n uint64) {
	if n != 0 {
		atomicmem.Store64(&c.n, c.n+n)
	}
}

// Load returns the count. Any goroutine may call it.
func (c *Counter) Load() uint64 { return atomic.LoadUint64(&c.n) }

package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Limits are the resources of a device. Each is at most what the formats can
// express, see descriptors.
type Limits struct {
	// Endpoints counts endpoint 0, which is reserved.
	Endpoints uint32
	CQs       uint32
	Regions   uint32
	// Ptags counts protection tag 0, which always exists.
	Ptags     uint32
	QueueLog2 uint8
	CQLog2    uint8
	// Segments is the number of data segments of a descriptor.
	Segments uint16
	// Transfer is the largest message in bytes.
	Transfer uint32
	Vectors  uint16
}

// DefaultLimits returns the limits of a device that is configured without any.
func DefaultLimits() Limits {
	return Limits{
		Endpoints: 4096, CQs: 4096, Regions: 1 << 17, Ptags: 4096,
		QueueLog2: datasheet.MaxQueueLog2, CQLog2: datasheet.MaxCQLog2,
		Segments: datasheet.MaxSegments, Transfer: datasheet.MaxTransfer,
		Vectors: datasheet.Vectors,
	}
}

// HasVector says whether a vector number may be given to a queue.
func (l *Limits) HasVector(v uint16) bool { return v == datasheet.NoVector || v < l.Vectors }

// Timing is the times of the reliability protocol.
type Timing struct {
	// Retransmit and RetransmitMax bound the retransmission timeout, which
	// follows the measured round trip in between (RFC 6298).
	Retransmit    time.Duration
	RetransmitMax time.Duration
	// Probe is how long nothing may come from the peer before it is asked
	// whether it lives.
	Probe time.Duration
	// Dead is how long a peer may leave probes unanswered.
	Dead time.Duration
}

// DefaultTiming returns the timing of a device that is configured without one. A peer
// that dies is noticed Probe + Dead later at the latest: within 4 seconds.
func DefaultTiming() Timing {
	return Timing{Retransmit: 5 * time.Millisecond, RetransmitMax: 100 * time.Millisecond,
		Probe: time.Second, Dead: 3 * time.Second}
}

// A memory handle is a generation above an index into the region table, so
// that a stale handle is not mistaken for the region that took its place.
const (
	regionIndexBits = 20
	RegionIndexMask = 1<<regionIndexBits - 1
	ptagIndexBits   = 16
	ptagIndexMask   = 1<<ptagIndexBits - 1
)

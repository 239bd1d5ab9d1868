package core

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Config holds the parts of an engine. Port, Memory and Host are needed; zero
// values elsewhere mean the defaults.
type Config struct {
	Port   Port
	Memory Memory
	Host   Host
	MAC    datasheet.MAC
	Limits Limits
	Timing Timing
	// Pipeline says how payloads cross the NIC.
	Pipeline Pipeline
	// Cells says how cells of channels cross it.
	Cells Cells
	// Clock is a monotonic clock; nil means the real one.
	Clock func() time.Duration
	// Rand gives connection keys; nil means crypto/rand.
	Rand io.Reader
}

func (c *Config) setDefaults() {
	c.Limits, c.Timing = cmp.Or(c.Limits, DefaultLimits()), cmp.Or(c.Timing, DefaultTiming())
	c.Cells.setDefaults()
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Duration { return time.Since(start) }
	}
	c.Rand = cmp.Or(c.Rand, rand.Reader)
	if c.Port != nil {
		_, progressive := c.Port.(Progressive)
		c.Pipeline.setDefaults(progressive && !c.Port.Checksum())
	}
}

func (c *Config) validate() error {
	if c.Port == nil || c.Memory == nil || c.Host == nil {
		return fmt.Errorf("%w: Port, Memory and Host are needed", ErrConfig)
	}
	if c.MAC == (datasheet.MAC{}) || c.MAC.IsMulticast() {
		return fmt.Errorf("%w: MAC %s is not the address of one station", ErrConfig, c.MAC)
	}
	if m := c.Port.MTU(); m < datasheet.MinMTU || m > datasheet.MaxMTU {
		return fmt.Errorf("%w: MTU %d is not in %d..%d", ErrConfig, m, datasheet.MinMTU, datasheet.MaxMTU)
	}
	l := c.Limits
	for _, f := range []struct {
		name          string
		is, low, high uint64
	}{
		{"Endpoints", uint64(l.Endpoints), 2, 1 << 16},
		{"CQs", uint64(l.CQs), 1, 1 << 16},
		{"Regions", uint64(l.Regions), 1, 1 << regionIndexBits},
		{"Ptags", uint64(l.Ptags), 1, 1 << ptagIndexBits},
		{"QueueLog2", uint64(l.QueueLog2), datasheet.MinQueueLog2, datasheet.MaxQueueLog2},
		{"CQLog2", uint64(l.CQLog2), datasheet.MinCQLog2, datasheet.MaxCQLog2},
		{"Segments", uint64(l.Segments), 1, datasheet.MaxSegments},
		{"Transfer", uint64(l.Transfer), 32 << 10, datasheet.MaxTransfer},
		{"Vectors", uint64(l.Vectors), 1, 64},
	} {
		if f.is < f.low || f.is > f.high {
			return fmt.Errorf("%w: Limits.%s %d is not in %d..%d", ErrConfig, f.name, f.is, f.low, f.high)
		}
	}
	if err := c.Pipeline.validate(); err != nil {
		return err
	}
	if err := c.Cells.validate(); err != nil {
		return err
	}
	t := c.Timing
	if t.Retransmit <= 0 || t.RetransmitMax < t.Retransmit || t.Probe <= 0 || t.Dead < t.Retransmit {
		return fmt.Errorf("%w: Timing %+v", ErrConfig, t)
	}
	return nil
}

// Cells says how cells cross the NIC. Zero values mean the defaults, which keep what an
// urgent cell may meet in front of it short.
type Cells struct {
	// FIFO is the number of cells that the receive FIFO holds: 1024.
	FIFO int
	// Stop is the number that may be in it before peers are told to stop: 128; Start is at how
	// many they may go on: 32.
	Stop, Start int
	// PerFrame is the most cells of a frame: 16.
	PerFrame int
	// NeverStop has no peer told to stop: what finds the FIFO full is dropped.
	NeverStop bool
}

func (c *Cells) setDefaults() {
	c.FIFO, c.PerFrame = cmp.Or(c.FIFO, 1024), cmp.Or(c.PerFrame, 16)
	c.Stop, c.Start = cmp.Or(c.Stop, 128), cmp.Or(c.Start, 32)
}

func (c *Cells) validate() error {
	if c.FIFO < 1 || c.PerFrame < 1 || c.Start < 1 || c.Stop < c.Start || c.Stop >= c.FIFO {
		return fmt.Errorf("%w: Cells %+v: 1 <= Start <= Stop < FIFO, PerFrame >= 1", ErrConfig, *c)
	}
	return nil
}

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
	// Probe is the time without a frame of the peer before it is asked
	// whether it lives.
	Probe time.Duration
	// Dead limits the time for which a peer may leave probes unanswered.
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

package mqnic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Registers of the PHC block (mqnic_hw.h, MQNIC_RB_PHC_*). Times are nanoseconds and seconds, the
// seconds in two halves; fns are 2^-32 ns.
const (
	phcControl    = 0x0c
	phcSeconds    = 0x18 // now, both halves
	phcLatch      = 0x30 // reading it takes the snapshot of what follows
	phcNS         = 0x34
	phcSnapshot   = 0x38 // seconds, both halves
	phcOffset     = 0x50 // signed ns, 30 bits
	phcSetNS      = 0x54
	phcSetSeconds = 0x58 // writing the upper half sets the time
	phcNominal    = 0x70 // period of the clock: fns, ns
	phcPeriod     = 0x78 // writing the upper half sets it

	// Bits of phcControl: what was written is not applied yet.
	phcSetPending    = 1 << 24
	phcOffsetPending = 1 << 25
	phcPeriodPending = 1 << 28

	peroutControl = 0x0c
	peroutStart   = 0x10 // fns, ns and seconds, as the two that follow
	peroutPeriod  = 0x20
	peroutWidth   = 0x30
)

// clock is the PTP clock, which all interfaces have in common. It implements ethernet.Clock.
type clock struct {
	device *device
	at     uint64
	// seconds were read some time ago. Time stamps have the lower 16 bits of theirs.
	seconds atomic.Uint64
	read    time.Time // when, in the time of the host
	last    int64     // what Read has returned; port.Mu guards it, as it does read
}

// Clock implements ethernet.Clocked.
func (p *Port) Clock() ethernet.Clock {
	if p.device.clock == nil {
		return nil
	}
	return p.device.clock
}

// whole adds the upper bits of the seconds to a time stamp. They are those that bring it closest to
// the seconds that were read, which are off by far less than 2^15.
func (c *clock) whole(seconds uint16, ns uint32) int64 {
	known := c.seconds.Load()
	full := int64(known) + int64(int16(seconds-uint16(known)))
	return full*int64(time.Second) + int64(ns)
}

// followEvery is the time between two readings of the seconds, far less than 2^15 s.
const followEvery = time.Minute

// follow reads the seconds. port.Mu is held, or the port is not open yet.
func (c *clock) follow() error {
	r := &c.device.regs
	seconds := r.read64(c.at + phcSeconds)
	r.alive()
	if err := r.Take(); err != nil {
		return err
	}
	c.seconds.Store(seconds)
	c.read = time.Now()
	return nil
}

// look is follow now and then.
func (c *clock) look() error {
	if time.Since(c.read) < followEvery {
		return nil
	}
	return c.follow()
}

// do runs f on a port that works, with its lock held.
func (c *clock) do(op string, f func(ctx context.Context, r *registers) error) error {
	return c.device.port.Do(op+" the clock of", func(ctx context.Context) error {
		r := &c.device.regs
		err := f(ctx, r)
		r.alive() // what was written is done when this is answered
		return errors.Join(err, r.Take())
	})
}

// apply calls write, and returns when the clock has applied it. The clock does that with its next
// message of 256 cycles, and until then drops other writes of the same kind.
func (c *clock) apply(ctx context.Context, pending uint32, write func()) error {
	applied := func() error {
		return c.device.cleared(ctx, "a change of the clock", c.at+phcControl, pending)
	}
	if err := applied(); err != nil {
		return err
	}
	write()
	return applied()
}

// Read implements ethernet.Clock.
func (c *clock) Read() (now int64, err error) {
	err = c.do("read", func(_ context.Context, r *registers) error {
		r.Read(c.at + phcLatch)
		ns, seconds := r.Read(c.at+phcNS), r.read64(c.at+phcSnapshot)
		if r.alive(); r.Err() != nil {
			return nil
		}
		if ns >= uint32(time.Second) || seconds > math.MaxInt64/uint64(time.Second)-1 {
			return fmt.Errorf("%w: its clock says %d s and %d ns", ethernet.ErrProtocol, seconds, ns)
		}
		now = int64(seconds)*int64(time.Second) + int64(ns)
		last := c.last
		c.last = now
		c.seconds.Store(seconds)
		if now < last {
			return fmt.Errorf("%w: its clock went from %d ns back to %d", ethernet.ErrProtocol, last, now)
		}
		return nil
	})
	return now, err
}

// Set implements ethernet.Clock.
func (c *clock) Set(at int64) error {
	if at < 0 {
		return c.device.port.Error("set the clock of", &ethernet.ConfigError{Field: "at", Value: at, Want: "0 or more"})
	}
	return c.do("set", func(ctx context.Context, r *registers) error {
		seconds := uint64(at / int64(time.Second))
		return c.apply(ctx, phcSetPending, func() {
			r.Write(c.at+phcSetNS, uint32(at%int64(time.Second)))
			r.write64(c.at+phcSetSeconds, seconds)
			c.last = 0
			c.seconds.Store(seconds)
		})
	})
}

// write64 writes two registers, the lower half first.
func (r *registers) write64(offset, v uint64) {
	r.Write(offset, uint32(v))
	r.Write(offset+4, uint32(v>>32))
}

// Shift implements ethernet.Clock.
func (c *clock) Shift(by time.Duration) error {
	if by <= -time.Second || by >= time.Second {
		return c.device.port.Error("shift the clock of", &ethernet.ConfigError{Field: "by", Value: by, Want: "less than a second"})
	}
	return c.do("shift", func(ctx context.Context, r *registers) error {
		// The register has room for somewhat more than half a second.
		for _, part := range []time.Duration{by / 2, by - by/2} {
			if err := c.apply(ctx, phcOffsetPending, func() {
				r.Write(c.at+phcOffset, uint32(int32(part)))
				c.last = 0
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Trim implements ethernet.Clock. The period becomes shorter for a slower clock: the time
// advances by it with each cycle.
func (c *clock) Trim(ppb float64) error {
	if !(math.Abs(ppb) <= ethernet.MaxTrim) { // nor NaN
		return c.device.port.Error("trim the clock of", &ethernet.ConfigError{Field: "ppb", Value: ppb, Want: fmt.Sprintf("-%.0f to %.0f", ethernet.MaxTrim, ethernet.MaxTrim)})
	}
	return c.do("trim", func(ctx context.Context, r *registers) error {
		nominal := r.read64(c.at + phcNominal)
		if r.Err() != nil {
			return nil
		}
		// In 2^-16 parts in 10^9, and with 128 bits, so that no bit of the period is lost.
		high, low := bits.Mul64(nominal, uint64(math.Round(math.Abs(ppb)*(1<<16))))
		if high >= 1e9<<16 {
			return fmt.Errorf("%w: its clock has a period of %#x fns", ethernet.ErrProtocol, nominal)
		}
		change, _ := bits.Div64(high, low, 1e9<<16)
		if ppb < 0 {
			change = -change
		}
		return c.apply(ctx, phcPeriodPending, func() { r.write64(c.at+phcPeriod, nominal+change) })
	})
}

// Outputs implements ethernet.Clock.
func (c *clock) Outputs() int { return len(c.device.card.perouts) }

// Pulse implements ethernet.Clock.
func (c *clock) Pulse(i int, at int64, period, width time.Duration) error {
	bad := func(field string, v any, want string) error {
		return c.device.port.Error("set an output of the clock of", &ethernet.ConfigError{Field: field, Value: v, Want: want})
	}
	switch {
	case i < 0 || i >= c.Outputs():
		return bad("i", i, fmt.Sprintf("one of %d outputs", c.Outputs()))
	case period < 0:
		return bad("period", period, "0 or more")
	case at < 0:
		return bad("at", at, "0 or more")
	case period > 0 && (width <= 0 || width >= period):
		return bad("width", width, fmt.Sprintf("above 0 and below the period of %v", period))
	}
	return c.do("set an output of", func(_ context.Context, r *registers) error {
		base := c.device.card.perouts[i].at
		r.Write(base+peroutControl, 0)
		if period == 0 {
			return nil
		}
		for offset, ns := range map[uint64]int64{peroutStart: at, peroutPeriod: int64(period), peroutWidth: int64(width)} {
			r.Write(base+offset, 0)
			r.Write(base+offset+4, uint32(ns%int64(time.Second)))
			r.write64(base+offset+8, uint64(ns/int64(time.Second)))
		}
		r.Write(base+peroutControl, 1)
		return nil
	})
}

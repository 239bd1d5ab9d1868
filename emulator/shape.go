package emulator

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/wire"
)

// rate parses bytes per second.
func rate(at func(s *settings) *int64) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		n, err := speed.ParseRate(v)
		if err == nil {
			*at(s) = n
		}
		return err
	}
}

// span parses a time in 0..high.
func span(at func(s *settings) *time.Duration, high time.Duration) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 || d > high {
			return fmt.Errorf("it is a time in 0s..%v, such as 5us", high)
		}
		*at(s) = d
		return nil
	}
}

// checkShape refuses what the speeds and the burst of an address cannot be together with.
func (s *settings) checkShape() error {
	if s.shared.Share {
		for _, o := range []struct {
			name  string
			given bool
		}{{"rate", s.shape.Rate != 0}, {"delay", s.shape.Delay != 0}, {"bus", s.device.Pipeline.Bus != 0}, {"setup", s.device.Pipeline.Setup != 0}} {
			if o.given {
				return fmt.Errorf("option %s: with share=on payloads do not cross the wire, leave one of the two out", o.name)
			}
		}
	}
	mtu := s.mtu
	switch {
	case mtu != 0:
	case s.kind == wireLoop:
		mtu = wire.DefaultMemoryMTU
	default:
		return nil // the wire knows
	}
	return s.checkBurst(mtu)
}

// checkBurst refuses bursts that frames of at most mtu bytes cannot have.
func (s *settings) checkBurst(mtu int) error {
	burst, payload := s.device.Pipeline.Burst, mtu-datasheet.HeaderSize
	if burst == 0 {
		return nil
	}
	if burst > payload {
		return fmt.Errorf("option burst=%d: a frame of this wire has at most %d bytes of payload", burst, payload)
	}
	for _, fault := range []struct {
		name   string
		chance float64
	}{{"loss", s.faults.Loss}, {"duplicate", s.faults.Duplicate}, {"reorder", s.faults.Reorder}, {"corrupt", s.faults.Corrupt}} {
		if fault.chance > 0 && burst < payload {
			return fmt.Errorf("option burst=%d: with %s=%v frames have a checksum, and go whole: leave one of the two out, or give a burst of %d",
				burst, fault.name, fault.chance, payload)
		}
	}
	return nil
}

// shaped gives a wire the speed of the address. On error the caller keeps the wire.
func (s *settings) shaped(w wire.Port) (wire.Port, error) {
	s.shape.Burst, s.shape.Setup = s.device.Pipeline.Burst, s.device.Pipeline.Setup
	if s.shape.Rate == 0 && s.shape.Delay == 0 && s.shape.Setup == 0 {
		return w, nil
	}
	return wire.NewShaper(w, s.shape)
}

package emulator

import (
	"fmt"
	"strconv"

	"github.com/trapeze-nic/trapeze/engine"
)

// Most of each resource that an address can ask for. A page of doorbells for
// each endpoint and completion queue makes a BAR of 128 MiB, which has its place
// below 4 GiB as 32-bit BARs must (see layBARs); regions are as many as handles
// can tell apart.
const (
	mostEndpoints = 1 << 14
	mostCQs       = 1 << 14
	mostRegions   = 1 << 20
)

// limit parses how many of a resource the device has. Those that no option
// names stay as they are in engine.DefaultLimits.
func limit(at func(l *engine.Limits) *uint32, low, high uint32) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil || uint32(n) < low || uint32(n) > high {
			return fmt.Errorf("it is a number in %d..%d", low, high)
		}
		if s.device.Limits == (engine.Limits{}) {
			s.device.Limits = engine.DefaultLimits()
		}
		*at(&s.device.Limits) = uint32(n)
		return nil
	}
}

// parseVIs reads the number of VIs; the device has one endpoint more, as
// endpoint 0 is reserved.
func parseVIs(s *settings, v string) error {
	if err := limit(func(l *engine.Limits) *uint32 { return &l.Endpoints }, 1, mostEndpoints-1)(s, v); err != nil {
		return err
	}
	s.device.Limits.Endpoints++
	return nil
}

var (
	parseCQs     = limit(func(l *engine.Limits) *uint32 { return &l.CQs }, 1, mostCQs)
	parseRegions = limit(func(l *engine.Limits) *uint32 { return &l.Regions }, 1, mostRegions)
)

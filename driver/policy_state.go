package driver

import (
	"time"

	"github.com/trapeze-nic/trapeze/driver/internal/pump"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// DirectionPolicy is the delivery policy of one direction.
type DirectionPolicy struct {
	Name string
	// MinPulse in bytes, of policies that have one.
	MinPulse int
}

// PumpStats counts what the host has done for its delivery policy.
type PumpStats = pump.Stats

// PolicyState is which policy moves frames, and how that goes.
type PolicyState struct {
	At            Placement
	Send, Receive DirectionPolicy
	// Deadline limits the device's wait for the host.
	Deadline time.Duration
	// Timeouts counts frames that the device has finished for a host that was
	// late, Refused pulses that made no sense to it. Both wrap.
	Timeouts, Refused uint32
	// Pump counts the host's work since the policy was set.
	Pump PumpStats
	// Fallback says why the host gave up and the NIC decides, although the policy
	// was set to run at the host; nil if it did not.
	Fallback error
}

// Policy returns which policy moves frames. It fails with ErrNotSupported if
// the device cannot say.
func (n *NIC) Policy() (s PolicyState, err error) {
	err = n.inDMA("query policy", func() error {
		now, err := n.readBuiltIn()
		if err != nil {
			return err
		}
		var deadline uint32
		err = n.regs.readAll(n.background, datasheet.BlockDMA, reading{datasheet.RegPulseDeadline, &deadline},
			reading{datasheet.RegPulseTimeouts, &s.Timeouts}, reading{datasheet.RegPulsesRefused, &s.Refused})
		if err != nil {
			return err
		}
		if _, err := n.regs.status(n.background); err != nil { // a device that has gone has left ones in all of them
			return n.fail(err)
		}
		s.Deadline = time.Duration(deadline) * time.Microsecond
		s.Send, s.Receive = builtInName(now.policyTx, now.minPulseTx), builtInName(now.policyRx, now.minPulseRx)
		s.Fallback = n.dma.cause
		if p := n.pump.Load(); p != nil {
			s.At, s.Pump = AtHost, p.Stats()
			send, receive := n.dma.host.sizes()
			s.Send, s.Receive = DirectionPolicy{p.Name(), send}, DirectionPolicy{p.Name(), receive}
		}
		return nil
	})
	return s, err
}

// builtInName says what two registers mean.
func builtInName(policy, minPulse uint32) DirectionPolicy {
	name := datasheet.DMAPolicy(policy).String()
	if _, ok := sized[name]; !ok && policy != uint32(datasheet.DMAPolicyOwn) {
		minPulse = 0
	}
	return DirectionPolicy{Name: name, MinPulse: int(minPulse)}
}

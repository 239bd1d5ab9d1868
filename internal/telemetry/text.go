package telemetry

import (
	"fmt"
	"strconv"
)

// Used reports whether the NIC has or had channels since it was reset.
func (c *Channels) Used() bool { return c != nil && *c != Channels{ReceiveRoom: c.ReceiveRoom} }

// Lines tell a person the same, a line each.
func (c *Channels) Lines() []string {
	stopped := ""
	if c.Stopped+c.StoppedBy > 0 {
		stopped = fmt.Sprintf("; now %d stations are told to stop, and %d have told this one", c.Stopped, c.StoppedBy)
	}
	return []string{
		fmt.Sprintf("%d open; to send: %d high (at most %d), %d low (at most %d); received: %d of %d cells (at most %d)",
			c.Open, c.High.Level, c.High.Highest, c.Low.Level, c.Low.Highest, c.Receive.Level, c.ReceiveRoom, c.Receive.Highest),
		fmt.Sprintf("%d cells sent, %d received, %d dropped; stop said %d times, heard %d times%s",
			c.CellsSent, c.CellsArrived, c.Drops, c.Stops, c.StopsTaken, stopped),
	}
}

// String says in a line what runs.
func (p *Program) String() string {
	var s string
	switch {
	case p == nil:
		return "none: the device has no NIC processor"
	case p.Name == "" && p.Slot == nil:
		s = p.State
	default:
		s = fmt.Sprintf("%s, %s %s in slot %s", p.State, p.Name, p.Version, SlotName(p.Slot))
	}
	if p.Fault != "" {
		s += " (" + p.Fault + ")"
	}
	return s
}

// Active returns the hooks at which a program decides, or has done so.
func (p *Program) Active() []ProgramHook {
	var some []ProgramHook
	for _, h := range p.Hooks {
		if h.Installed || h.Runs > 0 || h.Faults > 0 {
			some = append(some, h)
		}
	}
	return some
}

// String says how a hook does.
func (h ProgramHook) String() string {
	s := fmt.Sprintf("%s: %d runs, %d faults, %d instructions at worst", h.Hook, h.Runs, h.Faults, h.WorstCase)
	if !h.Installed {
		s += ", stopped"
	}
	return s
}

// SlotName names a slot, or its absence.
func SlotName(n *uint32) string {
	if n == nil {
		return "none"
	}
	return strconv.FormatUint(uint64(*n), 10)
}

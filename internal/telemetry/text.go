package telemetry

import (
	"fmt"
	"strconv"
)

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

// SlotName names a slot, or its absence.
func SlotName(n *uint32) string {
	if n == nil {
		return "none"
	}
	return strconv.FormatUint(uint64(*n), 10)
}

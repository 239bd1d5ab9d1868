package telemetry

import "fmt"

// String says in a line what runs.
func (p *Program) String() string {
	if p == nil {
		return "none: the device has no NIC processor"
	}
	s := p.State
	if p.Name != "" || p.Slot != nil {
		slot := "none"
		if p.Slot != nil {
			slot = fmt.Sprint(*p.Slot)
		}
		s = fmt.Sprintf("%s, %s %s in slot %s", p.State, p.Name, p.Version, slot)
	}
	if p.Fault != "" {
		s += " (" + p.Fault + ")"
	}
	return s
}

package fwcmd

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
)

// Program is what a NIC says about its control program, in JSON.
type Program struct {
	State     string        `json:"state" help:"built-in, halted, starting, running, faulted"`
	Fault     string        `json:"fault,omitempty" help:"why it is faulted"`
	Name      string        `json:"name"`
	Version   string        `json:"version"`
	BuildID   string        `json:"build_id"`
	Digest    string        `json:"digest" help:"of the image that runs"`
	Slot      *uint32       `json:"slot" help:"null for none"`
	Previous  *uint32       `json:"previous_slot" help:"null for none"`
	Slots     uint32        `json:"slots"`
	SlotBytes uint32        `json:"slot_bytes"`
	ABI       string        `json:"abi"`
	Hooks     []ProgramHook `json:"hooks"`
}

// ProgramHook is what a NIC says about one hook.
type ProgramHook struct {
	Hook      string `json:"hook"`
	Installed bool   `json:"installed"`
	Runs      uint64 `json:"runs"`
	Faults    uint64 `json:"faults"`
	WorstCase uint32 `json:"worst_case_instructions"`
}

// Describe makes a report of what a NIC says. The NIC is not trusted: its text is
// made printable.
func Describe(s load.Status) Program {
	p := Program{
		State: s.State.String(), Name: printable(s.Name), Version: printable(s.Version),
		Slot: slot(s.Slots.Active), Previous: slot(s.Slots.Previous), Slots: s.Slots.Count, SlotBytes: s.Slots.Size,
		ABI: abiName(s.ABI), Hooks: []ProgramHook{},
	}
	if s.Fault != nil {
		p.Fault = s.Fault.Error()
	}
	if s.BuildID != [len(s.BuildID)]byte{} {
		p.BuildID = fmt.Sprintf("%x", s.BuildID)
	}
	if s.Digest != [sha256.Size]byte{} {
		p.Digest = fmt.Sprintf("%x", s.Digest)
	}
	for h, hook := range s.Hooks {
		p.Hooks = append(p.Hooks, ProgramHook{Hook: abi.Hook(h).String(), Installed: hook.Installed, Runs: hook.Runs, Faults: hook.Faults, WorstCase: hook.WorstCase})
	}
	return p
}

// Inspect asks a NIC for its control program; nil if it has no processor.
func Inspect(nic *driver.NIC) (*Program, error) {
	s, err := nic.ProgramStatus()
	if errors.Is(err, driver.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := Describe(s)
	return &p, nil
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
		s = fmt.Sprintf("%s, %s %s in slot %s", p.State, p.Name, p.Version, slotName(p.Slot))
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

// lines is a table of it all.
func (p *Program) lines() []string {
	lines := []string{row("state", p.State)}
	if p.Fault != "" {
		lines = append(lines, row("fault", p.Fault))
	}
	for _, f := range []struct{ key, value string }{{"name", p.Name}, {"version", p.Version}, {"build ID", p.BuildID}, {"digest", p.Digest}} {
		if f.value != "" {
			lines = append(lines, row(f.key, f.value))
		}
	}
	lines = append(lines, row("slot", slotName(p.Slot)), row("previous", slotName(p.Previous)),
		row("slots", fmt.Sprintf("%d of %d bytes", p.Slots, p.SlotBytes)), row("ABI", p.ABI))
	return lines
}

// hookLines is a table of the hooks with programs.
func (p *Program) hookLines() []string {
	lines := []string{"", row("HOOK", "RUNS", "FAULTS", "WORST CASE", "DECIDES")}
	for _, h := range p.Active() {
		decides := "the program"
		if !h.Installed {
			decides = "the built-in behaviour"
		}
		lines = append(lines, row(h.Hook, h.Runs, h.Faults, h.WorstCase, decides))
	}
	if len(lines) == 2 {
		return nil
	}
	return lines
}

func slot(n uint32) *uint32 {
	if n == descriptors.NoSlot {
		return nil
	}
	return &n
}

func slotName(n *uint32) string {
	if n == nil {
		return "none"
	}
	return strconv.FormatUint(uint64(*n), 10)
}

func abiName(v uint32) string { return fmt.Sprintf("%d.%d", v>>16, v&0xffff) }

// printable escapes what would not be text on a terminal.
func printable(s string) string { return strings.Trim(strconv.QuoteToASCII(s), `"`) }

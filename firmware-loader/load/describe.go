package load

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// Describe makes a report of what a NIC says. The NIC is not trusted: its text is
// made printable.
func (s Status) Describe() telemetry.Program {
	p := telemetry.Program{
		State: s.State.String(), Name: printable(s.Name), Version: printable(s.Version),
		Slot: slot(s.Slots.Active), Previous: slot(s.Slots.Previous), Slots: s.Slots.Count, SlotBytes: s.Slots.Size,
		ABI: fmt.Sprintf("%d.%d", s.ABI>>16, s.ABI&0xffff), Hooks: []telemetry.ProgramHook{},
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
		p.Hooks = append(p.Hooks, telemetry.ProgramHook{Hook: abi.Hook(h).String(), Installed: hook.Installed, Runs: hook.Runs, Faults: hook.Faults, WorstCase: hook.WorstCase})
	}
	return p
}

func slot(n uint32) *uint32 {
	if n == datasheet.NoSlot {
		return nil
	}
	return &n
}

// printable escapes what would not be text on a terminal.
func printable(s string) string { return strings.Trim(strconv.QuoteToASCII(s), `"`) }

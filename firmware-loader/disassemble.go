package firmware

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Disassembly returns the programs as text, with the lines of their source where the file has them.
// Instructions are numbered in 8-byte slots, as refusals and faults count them.
func (s *Spec) Disassembly() string {
	var b strings.Builder
	for h := range abi.Hooks {
		if p, ok := s.Program(h); ok {
			fmt.Fprintf(&b, "%s:\n% v", h, p.Instructions)
		}
	}
	return b.String()
}

package checker_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// FuzzCheck checks arbitrary bytes as a program. What is accepted is run, with a frame
// and memory from the same bytes. The corpus has the samples and programs of the rules.
func FuzzCheck(f *testing.F) {
	f.Fuzz(func(t *testing.T, hook uint8, raw []byte) {
		code, err := asm.AppendInstructions(nil, bytes.NewReader(raw), binary.LittleEndian, "linux")
		if err != nil {
			return
		}
		p := abi.Program{Hook: abi.Hook(hook), Instructions: code, Maps: testMaps()}
		report, err := checker.Check(p)
		var refusal *checker.Refusal
		if err != nil {
			if !errors.As(err, &refusal) || refusal.Reason == nil || refusal.Error() == "" {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		if report.WorstCase < 1 || report.WorstCase > p.Hook.Budget() || report.Stack > abi.StackSize {
			t.Fatalf("%+v", report)
		}
		input := append(make([]byte, 64), raw...)
		var values [][]byte
		for _, m := range p.Maps {
			values = append(values, append([]byte{}, input[:m.Value]...))
		}
		size := abi.FrameContextSize
		if p.Hook.IsPulse() {
			size = abi.PulseSize
		}
		m := newMachine(p, append([]byte{}, input[:size]...), input[64:], values)
		if _, err := m.Run(report.WorstCase); err != nil {
			t.Fatalf("accepted as %+v, but %v:\n%v", report, err, p.Instructions)
		}
	})
}

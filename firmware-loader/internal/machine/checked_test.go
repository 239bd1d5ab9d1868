package machine_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// TestCheckedProgramsDoNotFault runs programs that the checker accepts, with no more
// instructions than it says they take.
func TestCheckedProgramsDoNotFault(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		program := abi.Program{Hook: abi.FilterRx, Instructions: assemble(t, generator{t}.program()), Maps: generatedMaps}
		report, err := checker.Check(program)
		if err != nil {
			refused++
			if errors.Is(err, checker.ErrInstruction) || errors.Is(err, checker.ErrField) || errors.Is(err, checker.ErrRegister) {
				t.Fatalf("the processor has what the checker does not know: %v", err)
			}
			return
		}
		accepted++
		maps := newMaps(t, generatedMaps...)
		p, err := machine.Compile(program, maps, func() uint64 { return 0 })
		if err != nil {
			t.Fatalf("the checker accepts what the processor does not have: %v", err)
		}
		p.SetBudget(report.WorstCase)
		memory, err := maps[mapMemory].Lookup(make([]byte, 4))
		if err != nil {
			t.Fatal(err)
		}
		copy(memory, rapid.SliceOfN(rapid.Byte(), memorySize, memorySize).Draw(t, "memory"))
		for range 4 {
			frame := rapid.SliceOfN(rapid.Byte(), 0, 2*frameSize).Draw(t, "frame")
			if _, err := p.Filter(frame, 0); err != nil {
				t.Fatalf("%v, at worst %d instructions", err, report.WorstCase)
			}
		}
	})
	t.Logf("%d programs, the checker refused %d", accepted, refused)
	if accepted < refused/4 {
		t.Errorf("the checker accepted %d programs and refused %d", accepted, refused)
	}
}

package machine_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
		must.OK(t, err)
		p.SetBudget(report.WorstCase)
		memory := must.Get(maps[mapMemory].Lookup(make([]byte, 4)))(t)
		copy(memory, rapid.SliceOfN(rapid.Byte(), memorySize, memorySize).Draw(t, "memory"))
		for range 4 {
			frame := rapid.SliceOfN(rapid.Byte(), 0, 2*frameSize).Draw(t, "frame")
			_, err := p.Filter(frame, 0)
			must.Hold(t, err == nil, "%v, at worst %d instructions", err, report.WorstCase)
		}
	})
	t.Logf("%d programs, the checker refused %d", accepted, refused)
	should.Hold(t, accepted >= refused/4, "the checker accepted %d programs and refused %d", accepted, refused)
}

// TestCompileRefuses: what the checker refuses by itself, its own tests have.
func TestCompileRefuses(t *testing.T) {
	exit := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	spec := abi.Map{Name: "m", Type: abi.MapArray, Key: 4, Value: 4, Entries: 1}
	maps := newMaps(t, spec)
	for name, c := range map[string]struct {
		program abi.Program
		maps    []*machine.Map
		reason  error
	}{
		"empty":                   {abi.Program{}, nil, checker.ErrSize},
		"maps that are not there": {abi.Program{Instructions: exit, Maps: []abi.Map{spec}}, nil, machine.ErrMap},
		"maps too many":           {abi.Program{Instructions: exit}, maps, machine.ErrMap},
		"no such hook":            {abi.Program{Hook: abi.Hooks, Instructions: exit}, nil, nil},
	} {
		_, err := machine.Compile(c.program, c.maps, nil)
		should.Hold(t, err != nil && (c.reason == nil || errors.Is(err, c.reason)), "%s: %v, want %v", name, err, c.reason)
	}
}

func TestBadMaps(t *testing.T) {
	good := abi.Map{Name: "m", Type: abi.MapHash, Key: 8, Value: 8, Entries: 8}
	for name, change := range map[string]func(*abi.Map){
		"unknown type": func(m *abi.Map) { m.Type = 3 },
		"huge":         func(m *abi.Map) { m.Value, m.Entries = abi.MaxValue, abi.MaxEntries },
	} {
		m := good
		change(&m)
		should.Refuse(machine.NewMap(m, make([]byte, 1<<20)))(t, machine.ErrMap, "%s", name)
	}
	size := must.Get(machine.StorageSize(good))(t)
	should.Refuse(machine.NewMap(good, make([]byte, size-1)))(t, machine.ErrStorage, "memory that is too small")
}

// TestProgramsAgainstKernel compares whole programs with the kernel: verdict, frame
// and what maps hold after each of several runs.
func TestProgramsAgainstKernel(t *testing.T) {
	needBPF(t)
	ran, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		code := assemble(t, generator{t}.program())
		w, err := newTwin(t, code, generatedMaps...)
		if err != nil {
			refused++
			t.Logf("refused: %v\n%v", err, code)
			return
		}
		defer w.close()
		ran++
		bytes := rapid.SliceOfN(rapid.Byte(), memorySize, memorySize)
		w.set(t, mapMemory, make([]byte, 4), bytes.Draw(t, "memory"))
		defer func() {
			if t.Failed() {
				t.Logf("%v", code)
			}
		}()
		for range 3 {
			w.run(t, rapid.SliceOfN(rapid.Byte(), frameSize-1, frameSize+16).Draw(t, "frame"))
			w.compare(t)
		}
	})
	t.Logf("%d programs, the kernel refused %d", ran, refused)
	should.Hold(t, refused <= ran/10, "the kernel ran %d programs and refused %d", ran, refused)
}

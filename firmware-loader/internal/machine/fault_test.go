package machine_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// compile compiles a program whose maps are in memory of their own.
func compile(t testing.TB, hook abi.Hook, code asm.Instructions, specs ...abi.Map) (*machine.Program, []*machine.Map) {
	t.Helper()
	maps := newMaps(t, specs...)
	p := must.Get(machine.Compile(abi.Program{Hook: hook, Instructions: assemble(t, code), Maps: specs}, maps, func() uint64 { return 42 }))(t)
	return p, maps
}

func newMaps(t failer, specs ...abi.Map) (maps []*machine.Map) {
	t.Helper()
	for _, s := range specs {
		size := must.Get(machine.StorageSize(s))(t)
		m := must.Get(machine.NewMap(s, make([]byte, size)))(t)
		maps = append(maps, m)
	}
	return maps
}

// fault checks that an error is a fault at an instruction.
func fault(t *testing.T, err error, hook abi.Hook, at int, reason error) {
	t.Helper()
	var f *machine.Fault
	should.Hold(t, errors.As(err, &f) && f.Hook == hook && f.Instruction == at && errors.Is(err, reason),
		"%v; want %v at instruction %d of %v", err, reason, at, hook)
}

// times repeats an instruction.
func times(n int, ins asm.Instruction) (code asm.Instructions) {
	for range n {
		code = append(code, ins)
	}
	return code
}

// TestBudget runs programs that take exactly as many instructions as they may, and
// one more.
func TestBudget(t *testing.T) {
	pass := asm.Mov.Imm(asm.R0, abi.FilterPass)
	straight := func(n int) asm.Instructions { return append(times(n-1, pass), asm.Return()) }
	// Merged at the end or not, and with a long instruction, which counts as one.
	apart := func(n int) asm.Instructions {
		return append(append(asm.Instructions{pass, asm.LoadImm(asm.R1, 1<<40, asm.DWord)}, times(n-3, asm.Add.Imm(asm.R1, 1))...), asm.Return())
	}
	loads := func(n int) asm.Instructions {
		return append(append(times(n-2, asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)), pass), asm.Return())
	}
	for name, program := range map[string]func(n int) asm.Instructions{"straight": straight, "apart": apart, "loads": loads} {
		p, _ := compile(t, abi.PulseRx, program(abi.PulseBudget))
		_, err := p.Pulse(&abi.PulseContext{Length: 1})
		should.Hold(t, err == nil, "%s: %v", name, err)
		p, _ = compile(t, abi.PulseRx, program(abi.PulseBudget+1))
		_, err = p.Pulse(&abi.PulseContext{Length: 1})
		at := abi.PulseBudget
		if name == "apart" {
			at++ // the long instruction has two slots
		}
		fault(t, err, abi.PulseRx, at, machine.ErrBudget)
	}
}

// TestBudgetOfLoops counts instructions in loops.
func TestBudgetOfLoops(t *testing.T) {
	// Before the loop, in it, and rounds: 1 + before + 2*rounds + 1 instructions.
	for _, c := range []struct {
		before, rounds int
		ok             bool
	}{
		{0, abi.FrameBudget/2 - 1, true}, {1, abi.FrameBudget/2 - 1, false}, {0, abi.FrameBudget / 2, false},
		{abi.FrameBudget/2 - 2000, abi.FrameBudget/4 + 999, true}, {abi.FrameBudget/2 - 1999, abi.FrameBudget/4 + 999, false},
	} {
		code := append(asm.Instructions{asm.Mov.Imm(asm.R0, int32(c.rounds))}, times(c.before, asm.Mov.Imm(asm.R1, 0))...)
		code = append(code, asm.Sub.Imm(asm.R0, 1), distance(asm.JNE.Imm(asm.R0, 0, "x"), -2), asm.Return())
		p, _ := compile(t, abi.FilterTx, code)
		_, err := p.Filter(nil, 0)
		should.Hold(t, !c.ok || err == nil, "%+v: %v", c, err)
		should.Hold(t, c.ok || errors.Is(err, machine.ErrBudget), "%+v: %v, want the budget used up", c, err)
	}
	for name, code := range map[string]asm.Instructions{
		"at itself":   {distance(asm.Ja.Label("x"), -1)},
		"of two":      {asm.Mov.Imm(asm.R0, 0), distance(asm.Ja.Label("x"), -2)},
		"conditional": {asm.Mov.Imm(asm.R0, 0), distance(asm.JEq.Imm(asm.R0, 0, "x"), -1), asm.Return()},
		"with calls":  {asm.FnKtimeGetNs.Call(), distance(asm.Ja.Label("x"), -2)},
		"merged":      {asm.LoadMem(asm.R0, asm.R1, 0, asm.Byte), distance(asm.JNE.Imm(asm.R0, 77, "x"), -2), asm.Return()},
	} {
		p, _ := compile(t, abi.FilterTx, code)
		for range 2 { // again: a fault leaves nothing behind
			should.Refuse(p.Filter(make([]byte, 64), 0))(t, machine.ErrBudget, "endless loop %s", name)
		}
	}
}

// TestTraps reaches outside in every way, with every kind of access.
func TestTraps(t *testing.T) {
	specs := []abi.Map{
		{Name: "array", Type: abi.MapArray, Key: 4, Value: 44, Entries: 1},
		{Name: "constants", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Flags: abi.MapReadOnly, Contents: []byte{1, 2, 3, 4}},
		{Name: "hash", Type: abi.MapHash, Key: 8, Value: 8, Entries: 2},
	}
	const frame = 64
	type access struct {
		name  string
		store bool
		n     int
		ins   func(at int16) asm.Instruction
	}
	var accesses []access
	for _, size := range allSizes {
		n := size.Sizeof()
		accesses = append(accesses,
			access{"load " + size.String(), false, n, func(at int16) asm.Instruction { return asm.LoadMem(asm.R0, asm.R6, at, size) }},
			access{"store " + size.String(), true, n, func(at int16) asm.Instruction { return asm.StoreMem(asm.R6, at, asm.R0, size) }},
			access{"store constant " + size.String(), true, n, func(at int16) asm.Instruction {
				return asm.Instruction{OpCode: asm.StoreImmOp(size), Dst: asm.R6, Offset: at, Constant: -1}
			}},
		)
		if size != asm.DWord {
			accesses = append(accesses, access{"signed load " + size.String(), false, n, func(at int16) asm.Instruction { return asm.LoadMemSX(asm.R0, asm.R6, at, size) }})
		}
		if n >= 4 {
			accesses = append(accesses, access{"atomic " + size.String(), true, n, func(at int16) asm.Instruction { return asm.FetchAdd.Mem(asm.R6, asm.R0, size, at) }})
		}
	}
	// Regions: how R6 gets the address of their start, and what may be accessed.
	for _, r := range []struct {
		name    string
		hook    abi.Hook
		address asm.Instructions
		size    int
		store   bool
	}{
		{"frame", abi.FilterRx, asm.Instructions{asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word)}, frame, true},
		{"frame, to be demultiplexed", abi.DemuxRx, asm.Instructions{asm.LoadMem(asm.R6, asm.R1, abi.FrameMeta, asm.Word)}, frame, false},
		{"context", abi.FilterRx, asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, abi.FrameContextSize, false},
		{"context of a pulse", abi.PulseTx, asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, abi.PulseSize, false},
		{"stack", abi.FilterTx, asm.Instructions{asm.Mov.Reg(asm.R6, asm.RFP), asm.Add.Imm(asm.R6, -abi.StackSize)}, abi.StackSize, true},
		{"array", abi.FilterTx, asm.Instructions{asm.LoadMapValue(asm.R6, 0, 0)}, 48, true},
		{"read-only array", abi.FilterTx, asm.Instructions{asm.LoadMapValue(asm.R6, 1, 0)}, 8, false},
		{"map itself", abi.FilterTx, asm.Instructions{asm.LoadMapPtr(asm.R6, 0)}, 0, false},
		{"null", abi.FilterTx, asm.Instructions{asm.Mov.Imm(asm.R6, 0)}, 0, false},
		{"above 32 bits", abi.FilterTx, asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.LoadImm(asm.R2, 1<<32, asm.DWord), asm.Add.Reg(asm.R6, asm.R2)}, 0, false},
		{"the first above 32 bits", abi.FilterTx, asm.Instructions{asm.LoadImm(asm.R6, 1<<32, asm.DWord)}, 0, false},
		{"bit 63", abi.FilterTx, asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.LoadImm(asm.R2, -1<<63, asm.DWord), asm.Add.Reg(asm.R6, asm.R2)}, 0, false},
		{"the last address", abi.FilterTx, asm.Instructions{asm.Mov.Imm(asm.R6, -1)}, 0, false},
	} {
		for _, a := range accesses {
			for _, at := range []int{-32768, -9, -8, -1, 0, r.size - a.n, r.size - a.n + 1, r.size, 32767} {
				code := append(asm.Instructions{}, r.address...)
				where := slots(code) + 1
				code = append(code, asm.Mov.Imm(asm.R0, 0), a.ins(int16(at)), asm.Mov.Imm(asm.R0, 0), asm.Return())
				p, _ := compile(t, r.hook, code, specs...)
				buffer := bytes.Repeat([]byte{0x55}, 3*frame)
				want := bytes.Clone(buffer)
				err := ask(p, buffer[frame:2*frame:2*frame])
				if inside := at >= 0 && at+a.n <= r.size; inside && (r.store || !a.store) {
					should.Hold(t, err == nil, "%s, %s at %d: %v", r.name, a.name, at, err)
				} else {
					fault(t, err, r.hook, where, machine.ErrTrap)
				}
				copy(buffer[frame:2*frame], want)
				must.Same(t, buffer, want, "%s, %s at %d changed what is around the frame", r.name, a.name, at)
			}
		}
	}
}

// ask asks a program of any hook.
func ask(p *machine.Program, frame []byte) error {
	var err error
	switch h := p.Hook(); {
	case h.IsPulse():
		_, err = p.Pulse(&abi.PulseContext{Length: 100, Arrived: 50})
	case h == abi.DemuxRx:
		_, err = p.Demultiplex(frame, 0)
	default:
		_, err = p.Filter(frame, 0)
	}
	return err
}

// TestHelperTraps calls helpers with arguments that no checked program has.
func TestHelperTraps(t *testing.T) {
	specs := []abi.Map{
		{Name: "hash", Type: abi.MapHash, Key: 8, Value: 16, Entries: 2},
		{Name: "constants", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Flags: abi.MapReadOnly},
	}
	key := asm.Instructions{asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8)}
	value := asm.Instructions{asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -24)}
	join := func(parts ...asm.Instructions) (all asm.Instructions) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(ins asm.Instruction) asm.Instructions { return asm.Instructions{ins} }
	hash, constants := one(asm.LoadMapPtr(asm.R1, 0)), one(asm.LoadMapPtr(asm.R1, 1))
	for name, code := range map[string]asm.Instructions{
		"number for a map":       join(one(asm.Mov.Imm(asm.R1, 5)), key, one(asm.FnMapLookupElem.Call())),
		"null for a map":         join(one(asm.Mov.Imm(asm.R1, 0)), key, one(asm.FnMapLookupElem.Call())),
		"value for a map":        join(one(asm.LoadMapValue(asm.R1, 1, 0)), key, one(asm.FnMapLookupElem.Call())),
		"a map too far":          join(hash, one(asm.Add.Imm(asm.R1, 2)), key, one(asm.FnMapLookupElem.Call())),
		"a map before the first": join(hash, one(asm.Sub.Imm(asm.R1, 1)), key, one(asm.FnMapDeleteElem.Call())),
		"key outside":            join(hash, key, one(asm.Add.Imm(asm.R2, 1)), one(asm.FnMapLookupElem.Call())),
		"key null":               join(hash, one(asm.Mov.Imm(asm.R2, 0)), one(asm.FnMapDeleteElem.Call())),
		"value outside":          join(hash, key, value, one(asm.Add.Imm(asm.R3, 9)), one(asm.FnMapUpdateElem.Call())),
		"value null":             join(hash, key, one(asm.Mov.Imm(asm.R3, 0)), one(asm.FnMapUpdateElem.Call())),
		"update of a constant":   join(constants, key, value, one(asm.FnMapUpdateElem.Call())),
		"deletion of a constant": join(constants, key, one(asm.FnMapDeleteElem.Call())),
	} {
		p, _ := compile(t, abi.FilterRx, join(code, one(asm.Mov.Imm(asm.R0, abi.FilterPass)), one(asm.Return())), specs...)
		if _, err := p.Filter(make([]byte, 64), 0); !errors.Is(err, machine.ErrTrap) {
			t.Errorf("%s: %v", name, err)
		} else {
			fault(t, err, abi.FilterRx, slots(code)-1, machine.ErrTrap)
		}
	}
}

// TestTrapsInMerged: what is merged names the instruction at which it traps.
func TestTrapsInMerged(t *testing.T) {
	for _, size := range []asm.Size{asm.Half, asm.Word} {
		n := size.Sizeof()
		p, _ := compile(t, abi.FilterRx, asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, abi.FrameData, asm.Word),
			asm.LoadMem(asm.R3, asm.R1, abi.FrameQueue, asm.Word),
			asm.LoadMem(asm.R4, asm.R2, int16(65-n), size),
			asm.HostTo(asm.BE, asm.R4, size),
			asm.Return(),
		})
		_, err := p.Filter(make([]byte, 64), 0)
		fault(t, err, abi.FilterRx, 2, machine.ErrTrap)
		_, err = p.Filter(make([]byte, 65), 0)
		should.OK(t, err)
		should.Refuse(p.Filter(make([]byte, machine.MaxFrame+1), 0))(t, machine.ErrTrap, "frame that is too long")
	}
}

package machine_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// TestCompileRefuses compiles what is no program.
func TestCompileRefuses(t *testing.T) {
	specs := []abi.Map{
		{Name: "array", Type: abi.MapArray, Key: 4, Value: 16, Entries: 4},
		{Name: "hash", Type: abi.MapHash, Key: 4, Value: 16, Entries: 4},
	}
	op := func(class asm.Class, more asm.OpCode) asm.OpCode { return asm.OpCode(class) | more }
	with := func(ins asm.Instruction, change func(*asm.Instruction)) asm.Instruction {
		change(&ins)
		return ins
	}
	for name, ins := range map[string]asm.Instruction{
		"invalid opcode":               {OpCode: asm.InvalidOpCode},
		"write to R10":                 asm.Mov.Imm(asm.R10, 1),
		"load into R10":                asm.LoadMem(asm.R10, asm.R1, 0, asm.Word),
		"constant into R10":            asm.LoadImm(asm.R10, 1, asm.DWord),
		"fetch into R10":               asm.FetchAdd.Mem(asm.R1, asm.R10, asm.DWord, 0),
		"swap of R10":                  asm.HostTo(asm.BE, asm.R10, asm.Half),
		"register 11":                  asm.Mov.Reg(asm.R0, 11),
		"register 255":                 asm.Mov.Reg(255, asm.R0),
		"register 11 in a jump":        distance(asm.JEq.Reg(asm.R0, 11, "x"), 0),
		"register 15 in a load":        asm.LoadMem(asm.R0, 15, 0, asm.Word),
		"register 15 in a store":       asm.StoreMem(15, 0, asm.R0, asm.Word),
		"register 15 in an atomic":     asm.AddAtomic.Mem(15, asm.R0, asm.Word, 0),
		"division by the constant 0":   asm.Div.Imm(asm.R0, 0),
		"remainder by the constant 0":  asm.SMod.Imm32(asm.R0, 0),
		"shift by 64":                  asm.LSh.Imm(asm.R0, 64),
		"shift by -1":                  asm.ArSh.Imm(asm.R0, -1),
		"32-bit shift by 32":           asm.RSh.Imm32(asm.R0, 32),
		"move of a signed constant":    asm.MovSX8.Imm(asm.R0, 1),
		"32-bit move of 32 bits":       asm.MovSX32.Reg32(asm.R0, asm.R1),
		"negation of a register":       {OpCode: asm.Neg.Op(asm.RegSource)},
		"negation with a constant":     {OpCode: asm.Neg.Op(asm.ImmSource), Constant: 1},
		"swap of 8 bits":               {OpCode: asm.BSwap(asm.R0, asm.Half).OpCode, Constant: 8},
		"swap, big-endian, 64":         {OpCode: asm.BSwap(asm.R0, asm.Half).OpCode | 8, Constant: 16},
		"no such operation":            {OpCode: op(asm.ALU64Class, 0xe0)},
		"operation, unknown extension": {OpCode: asm.Add.Op(asm.RegSource) | 0x100},
		"offset of an operation":       with(asm.Add.Imm(asm.R0, 1), func(i *asm.Instruction) { i.Offset = 1 }),
		"register of a constant":       with(asm.Add.Imm(asm.R0, 1), func(i *asm.Instruction) { i.Src = asm.R1 }),
		"constant of a register":       with(asm.Add.Reg(asm.R0, asm.R1), func(i *asm.Instruction) { i.Constant = 1 }),
		"constant of 33 bits":          with(asm.Add.Imm(asm.R0, 1), func(i *asm.Instruction) { i.Constant = 1 << 32 }),
		"constant of a load":           with(asm.LoadMem(asm.R0, asm.R1, 0, asm.Word), func(i *asm.Instruction) { i.Constant = 1 }),
		"constant of a store":          with(asm.StoreMem(asm.R1, 0, asm.R1, asm.Word), func(i *asm.Instruction) { i.Constant = 1 }),
		"register of a stored number":  {OpCode: asm.StoreImmOp(asm.Word), Src: asm.R1},
		"signed load of 64 bits":       {OpCode: asm.LoadMemSXOp(asm.DWord)},
		"load of a packet's byte":      asm.LoadAbs(0, asm.Byte),
		"load of a packet's byte, too": asm.LoadInd(asm.R0, asm.R1, 0, asm.Byte),
		"atomic on a byte":             {OpCode: asm.AddAtomic.OpCode(asm.Word) | asm.OpCode(asm.Byte)},
		"no such atomic":               {OpCode: asm.AddAtomic.OpCode(asm.Word) | 0x2000},
		"atomic with a constant":       with(asm.FetchAdd.Mem(asm.R1, asm.R2, asm.Word, 0), func(i *asm.Instruction) { i.Constant = 2 }),
		"long constant with an offset": with(asm.LoadImm(asm.R0, 1, asm.DWord), func(i *asm.Instruction) { i.Offset = 1 }),
		"address of a function":        {OpCode: asm.LoadImmOp(asm.DWord), Src: asm.PseudoFunc},
		"map with an offset":           with(asm.LoadMapPtr(asm.R0, 0), func(i *asm.Instruction) { i.Constant |= 1 << 32 }),
		"map too far":                  asm.LoadMapPtr(asm.R0, 2),
		"value of a map too far":       asm.LoadMapValue(asm.R0, 2, 0),
		"address behind a value":       asm.LoadMapValue(asm.R0, 0, 16),
		"value of a hash map":          asm.LoadMapValue(asm.R0, 1, 0),
		"jump before the program":      distance(asm.Ja.Label("x"), -2),
		"jump behind the program":      distance(asm.Ja.Label("x"), 3),
		"jump far away":                distance(asm.JEq.Imm(asm.R0, 0, "x"), 32767),
		"jump into an instruction":     distance(asm.JEq.Imm(asm.R0, 0, "x"), 1),
		"jump with a constant":         with(distance(asm.Ja.Label("x"), 0), func(i *asm.Instruction) { i.Constant = 1 }),
		"jump with a register":         with(distance(asm.Ja.Label("x"), 0), func(i *asm.Instruction) { i.Dst = 1 }),
		"long jump with an offset":     {OpCode: asm.LongJump("x").OpCode, Offset: 1},
		"long jump of 33 bits":         {OpCode: asm.LongJump("x").OpCode, Constant: 1 << 32},
		"jump that may go":             {OpCode: op(asm.JumpClass, asm.OpCode(asm.JCOND))},
		"no such jump":                 {OpCode: op(asm.Jump32Class, 0xf0)},
		"32-bit exit":                  {OpCode: op(asm.Jump32Class, asm.OpCode(asm.Exit))},
		"32-bit call":                  {OpCode: op(asm.Jump32Class, asm.OpCode(asm.Call))},
		"exit with a constant":         with(asm.Return(), func(i *asm.Instruction) { i.Constant = 1 }),
		"jump, upper bits":             {OpCode: asm.JEq.Op(asm.ImmSource) | 0x100},
		"call of a function":           {OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall},
		"call of a kernel's function":  {OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall},
		"call of the kernel's printk":  asm.FnTracePrintk.Call(),
		"call of helper 0":             asm.FnUnspec.Call(),
		"call of a negative helper":    with(asm.FnUnspec.Call(), func(i *asm.Instruction) { i.Constant = -1 }),
		"call by a register":           {OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call).SetSource(asm.RegSource), Constant: 1},
		"call with an offset":          with(asm.FnMapLookupElem.Call(), func(i *asm.Instruction) { i.Offset = 1 }),
	} {
		code := asm.Instructions{ins, asm.LoadImm(asm.R0, 0, asm.DWord), asm.Return()}
		_, err := machine.Compile(abi.Program{Hook: abi.FilterRx, Instructions: code, Maps: specs}, newMaps(t, specs...), nil)
		var refusal *checker.Refusal
		if !errors.As(err, &refusal) || refusal.Instruction != 0 || refusal.Hook != abi.FilterRx {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCompileRefusesPrograms: what concerns no single instruction.
func TestCompileRefusesPrograms(t *testing.T) {
	exit := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	long := append(times(abi.MaxInstructions-1, asm.Mov.Imm(asm.R0, 0)), asm.Return())
	spec := abi.Map{Name: "m", Type: abi.MapArray, Key: 4, Value: 4, Entries: 1}
	maps := newMaps(t, spec)
	for name, c := range map[string]struct {
		program abi.Program
		maps    []*machine.Map
		reason  error
	}{
		"empty":                   {abi.Program{}, nil, checker.ErrSize},
		"too long":                {abi.Program{Instructions: append(asm.Instructions{asm.Mov.Imm(asm.R0, 0)}, long...)}, nil, checker.ErrSize},
		"too long by half":        {abi.Program{Instructions: append(asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord)}, long[1:]...)}, nil, checker.ErrSize},
		"maps that are not there": {abi.Program{Instructions: exit, Maps: []abi.Map{spec}}, nil, machine.ErrMap},
		"maps too many":           {abi.Program{Instructions: exit}, maps, machine.ErrMap},
		"no such hook":            {abi.Program{Hook: abi.Hooks, Instructions: exit}, nil, nil},
	} {
		_, err := machine.Compile(c.program, c.maps, nil)
		if err == nil || c.reason != nil && !errors.Is(err, c.reason) {
			t.Errorf("%s: %v, want %v", name, err, c.reason)
		}
	}
	if _, err := machine.Compile(abi.Program{Hook: abi.FilterRx, Instructions: long}, nil, nil); err != nil {
		t.Errorf("as long as can be: %v", err)
	}
}

func TestBadMaps(t *testing.T) {
	good := abi.Map{Name: "m", Type: abi.MapHash, Key: 8, Value: 8, Entries: 8}
	for name, change := range map[string]func(*abi.Map){
		"no type":             func(m *abi.Map) { m.Type = 0 },
		"unknown type":        func(m *abi.Map) { m.Type = 3 },
		"no key":              func(m *abi.Map) { m.Key = 0 },
		"long key":            func(m *abi.Map) { m.Key = abi.MaxKey + 1 },
		"array with long key": func(m *abi.Map) { m.Type = abi.MapArray },
		"no value":            func(m *abi.Map) { m.Value = 0 },
		"long value":          func(m *abi.Map) { m.Value = abi.MaxValue + 1 },
		"no entries":          func(m *abi.Map) { m.Entries = 0 },
		"too many entries":    func(m *abi.Map) { m.Entries = abi.MaxEntries + 1 },
		"huge":                func(m *abi.Map) { m.Value, m.Entries = abi.MaxValue, abi.MaxEntries },
		"hash with contents":  func(m *abi.Map) { m.Contents = []byte{1} },
		"too much content":    func(m *abi.Map) { m.Type, m.Key, m.Contents = abi.MapArray, 4, make([]byte, 65) },
	} {
		m := good
		change(&m)
		if _, err := machine.StorageSize(m); !errors.Is(err, machine.ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := machine.NewMap(m, make([]byte, 1<<20)); !errors.Is(err, machine.ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	size, err := machine.StorageSize(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := machine.NewMap(good, make([]byte, size-1)); !errors.Is(err, machine.ErrStorage) {
		t.Errorf("memory that is too small: %v", err)
	}
}

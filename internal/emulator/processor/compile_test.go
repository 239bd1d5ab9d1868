package processor_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
	"github.com/trapeze-nic/trapeze/internal/emulator/processor"
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
	for name, c := range map[string]struct {
		ins    asm.Instruction
		reason error
	}{
		"invalid opcode":               {asm.Instruction{OpCode: asm.InvalidOpCode}, processor.ErrInstruction},
		"write to R10":                 {asm.Mov.Imm(asm.R10, 1), processor.ErrRegister},
		"load into R10":                {asm.LoadMem(asm.R10, asm.R1, 0, asm.Word), processor.ErrRegister},
		"constant into R10":            {asm.LoadImm(asm.R10, 1, asm.DWord), processor.ErrRegister},
		"fetch into R10":               {asm.FetchAdd.Mem(asm.R1, asm.R10, asm.DWord, 0), processor.ErrRegister},
		"swap of R10":                  {asm.HostTo(asm.BE, asm.R10, asm.Half), processor.ErrRegister},
		"register 11":                  {asm.Mov.Reg(asm.R0, 11), processor.ErrRegister},
		"register 255":                 {asm.Mov.Reg(255, asm.R0), processor.ErrRegister},
		"register 11 in a jump":        {distance(asm.JEq.Reg(asm.R0, 11, "x"), 0), processor.ErrRegister},
		"register 15 in a load":        {asm.LoadMem(asm.R0, 15, 0, asm.Word), processor.ErrRegister},
		"register 15 in a store":       {asm.StoreMem(15, 0, asm.R0, asm.Word), processor.ErrRegister},
		"register 15 in an atomic":     {asm.AddAtomic.Mem(15, asm.R0, asm.Word, 0), processor.ErrRegister},
		"division by the constant 0":   {asm.Div.Imm(asm.R0, 0), processor.ErrInstruction},
		"remainder by the constant 0":  {asm.SMod.Imm32(asm.R0, 0), processor.ErrInstruction},
		"shift by 64":                  {asm.LSh.Imm(asm.R0, 64), processor.ErrInstruction},
		"shift by -1":                  {asm.ArSh.Imm(asm.R0, -1), processor.ErrInstruction},
		"32-bit shift by 32":           {asm.RSh.Imm32(asm.R0, 32), processor.ErrInstruction},
		"move of a signed constant":    {asm.MovSX8.Imm(asm.R0, 1), processor.ErrInstruction},
		"32-bit move of 32 bits":       {asm.MovSX32.Reg32(asm.R0, asm.R1), processor.ErrInstruction},
		"negation of a register":       {asm.Instruction{OpCode: asm.Neg.Op(asm.RegSource)}, processor.ErrInstruction},
		"negation with a constant":     {asm.Instruction{OpCode: asm.Neg.Op(asm.ImmSource), Constant: 1}, processor.ErrInstruction},
		"swap of 8 bits":               {asm.Instruction{OpCode: asm.BSwap(asm.R0, asm.Half).OpCode, Constant: 8}, processor.ErrInstruction},
		"swap, big-endian, 64":         {asm.Instruction{OpCode: asm.BSwap(asm.R0, asm.Half).OpCode | 8, Constant: 16}, processor.ErrInstruction},
		"no such operation":            {asm.Instruction{OpCode: op(asm.ALU64Class, 0xe0)}, processor.ErrInstruction},
		"operation, unknown extension": {asm.Instruction{OpCode: asm.Add.Op(asm.RegSource) | 0x100}, processor.ErrInstruction},
		"offset of an operation":       {with(asm.Add.Imm(asm.R0, 1), func(i *asm.Instruction) { i.Offset = 1 }), processor.ErrInstruction},
		"register of a constant":       {with(asm.Add.Imm(asm.R0, 1), func(i *asm.Instruction) { i.Src = asm.R1 }), processor.ErrInstruction},
		"constant of a register":       {with(asm.Add.Reg(asm.R0, asm.R1), func(i *asm.Instruction) { i.Constant = 1 }), processor.ErrInstruction},
		"constant of 33 bits":          {with(asm.Add.Imm(asm.R0, 1), func(i *asm.Instruction) { i.Constant = 1 << 32 }), processor.ErrInstruction},
		"constant of a load":           {with(asm.LoadMem(asm.R0, asm.R1, 0, asm.Word), func(i *asm.Instruction) { i.Constant = 1 }), processor.ErrInstruction},
		"constant of a store":          {with(asm.StoreMem(asm.R1, 0, asm.R1, asm.Word), func(i *asm.Instruction) { i.Constant = 1 }), processor.ErrInstruction},
		"register of a stored number":  {asm.Instruction{OpCode: asm.StoreImmOp(asm.Word), Src: asm.R1}, processor.ErrInstruction},
		"signed load of 64 bits":       {asm.Instruction{OpCode: asm.LoadMemSXOp(asm.DWord)}, processor.ErrInstruction},
		"load of a packet's byte":      {asm.LoadAbs(0, asm.Byte), processor.ErrInstruction},
		"load of a packet's byte, too": {asm.LoadInd(asm.R0, asm.R1, 0, asm.Byte), processor.ErrInstruction},
		"atomic on a byte":             {asm.Instruction{OpCode: asm.AddAtomic.OpCode(asm.Word) | asm.OpCode(asm.Byte)}, processor.ErrInstruction},
		"no such atomic":               {asm.Instruction{OpCode: asm.AddAtomic.OpCode(asm.Word) | 0x2000}, processor.ErrInstruction},
		"atomic with a constant":       {with(asm.FetchAdd.Mem(asm.R1, asm.R2, asm.Word, 0), func(i *asm.Instruction) { i.Constant = 2 }), processor.ErrInstruction},
		"long constant with an offset": {with(asm.LoadImm(asm.R0, 1, asm.DWord), func(i *asm.Instruction) { i.Offset = 1 }), processor.ErrInstruction},
		"address of a function":        {asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Src: asm.PseudoFunc}, processor.ErrInstruction},
		"map with an offset":           {with(asm.LoadMapPtr(asm.R0, 0), func(i *asm.Instruction) { i.Constant |= 1 << 32 }), processor.ErrInstruction},
		"map too far":                  {asm.LoadMapPtr(asm.R0, 2), processor.ErrMap},
		"value of a map too far":       {asm.LoadMapValue(asm.R0, 2, 0), processor.ErrMap},
		"address behind a value":       {asm.LoadMapValue(asm.R0, 0, 16), processor.ErrMap},
		"value of a hash map":          {asm.LoadMapValue(asm.R0, 1, 0), processor.ErrMap},
		"jump before the program":      {distance(asm.Ja.Label("x"), -2), processor.ErrJump},
		"jump behind the program":      {distance(asm.Ja.Label("x"), 3), processor.ErrJump},
		"jump far away":                {distance(asm.JEq.Imm(asm.R0, 0, "x"), 32767), processor.ErrJump},
		"jump into an instruction":     {distance(asm.JEq.Imm(asm.R0, 0, "x"), 1), processor.ErrJump},
		"jump with a constant":         {with(distance(asm.Ja.Label("x"), 0), func(i *asm.Instruction) { i.Constant = 1 }), processor.ErrInstruction},
		"jump with a register":         {with(distance(asm.Ja.Label("x"), 0), func(i *asm.Instruction) { i.Dst = 1 }), processor.ErrInstruction},
		"long jump with an offset":     {asm.Instruction{OpCode: asm.LongJump("x").OpCode, Offset: 1}, processor.ErrInstruction},
		"long jump of 33 bits":         {asm.Instruction{OpCode: asm.LongJump("x").OpCode, Constant: 1 << 32}, processor.ErrInstruction},
		"jump that may go":             {asm.Instruction{OpCode: op(asm.JumpClass, asm.OpCode(asm.JCOND))}, processor.ErrInstruction},
		"no such jump":                 {asm.Instruction{OpCode: op(asm.Jump32Class, 0xf0)}, processor.ErrInstruction},
		"32-bit exit":                  {asm.Instruction{OpCode: op(asm.Jump32Class, asm.OpCode(asm.Exit))}, processor.ErrInstruction},
		"32-bit call":                  {asm.Instruction{OpCode: op(asm.Jump32Class, asm.OpCode(asm.Call))}, processor.ErrInstruction},
		"exit with a constant":         {with(asm.Return(), func(i *asm.Instruction) { i.Constant = 1 }), processor.ErrInstruction},
		"jump, upper bits":             {asm.Instruction{OpCode: asm.JEq.Op(asm.ImmSource) | 0x100}, processor.ErrInstruction},
		"call of a function":           {asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall}, processor.ErrHelper},
		"call of a kernel's function":  {asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall}, processor.ErrHelper},
		"call of the kernel's printk":  {asm.FnTracePrintk.Call(), processor.ErrHelper},
		"call of helper 0":             {asm.FnUnspec.Call(), processor.ErrHelper},
		"call of a negative helper":    {with(asm.FnUnspec.Call(), func(i *asm.Instruction) { i.Constant = -1 }), processor.ErrHelper},
		"call by a register":           {asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call).SetSource(asm.RegSource), Constant: 1}, processor.ErrInstruction},
		"call with an offset":          {with(asm.FnMapLookupElem.Call(), func(i *asm.Instruction) { i.Offset = 1 }), processor.ErrInstruction},
	} {
		code := asm.Instructions{c.ins, asm.LoadImm(asm.R0, 0, asm.DWord), asm.Return()}
		_, err := processor.Compile(abi.Program{Hook: abi.FilterRx, Instructions: code, Maps: specs}, newMaps(t, specs...), nil)
		var ce *processor.CompileError
		if !errors.As(err, &ce) || !errors.Is(err, c.reason) || ce.Instruction != 0 || ce.Hook != abi.FilterRx {
			t.Errorf("%s: %v, want %v", name, err, c.reason)
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
		maps    []*processor.Map
		reason  error
	}{
		"empty":                   {abi.Program{}, nil, processor.ErrLength},
		"too long":                {abi.Program{Instructions: append(asm.Instructions{asm.Mov.Imm(asm.R0, 0)}, long...)}, nil, processor.ErrLength},
		"too long by half":        {abi.Program{Instructions: append(asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord)}, long[1:]...)}, nil, processor.ErrLength},
		"no exit":                 {abi.Program{Instructions: exit[:1]}, nil, processor.ErrLength},
		"maps that are not there": {abi.Program{Instructions: exit, Maps: []abi.Map{spec}}, nil, processor.ErrMap},
		"maps too many":           {abi.Program{Instructions: exit}, maps, processor.ErrMap},
		"no such hook":            {abi.Program{Hook: abi.Hooks, Instructions: exit}, nil, nil},
	} {
		_, err := processor.Compile(c.program, c.maps, nil)
		if err == nil || c.reason != nil && !errors.Is(err, c.reason) {
			t.Errorf("%s: %v, want %v", name, err, c.reason)
		}
	}
	if _, err := processor.Compile(abi.Program{Hook: abi.FilterRx, Instructions: long}, nil, nil); err != nil {
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
		if _, err := processor.StorageSize(m); !errors.Is(err, processor.ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := processor.NewMap(m, make([]byte, 1<<20)); !errors.Is(err, processor.ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	size, err := processor.StorageSize(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := processor.NewMap(good, make([]byte, size-1)); !errors.Is(err, processor.ErrStorage) {
		t.Errorf("memory that is too small: %v", err)
	}
}

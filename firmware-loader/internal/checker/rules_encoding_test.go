package checker_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// changed returns an instruction with a change.
func changed(ins asm.Instruction, change func(*asm.Instruction)) asm.Instruction {
	ins.Metadata = asm.Metadata{}
	change(&ins)
	return ins
}

// Every field that has no meaning must be zero, and every operation known.
func TestEncodings(t *testing.T) {
	src := func(ins *asm.Instruction) { ins.Src = asm.R1 }
	dst := func(ins *asm.Instruction) { ins.Dst = asm.R2 }
	off := func(ins *asm.Instruction) { ins.Offset = 1 }
	imm := func(ins *asm.Instruction) { ins.Constant = 1 }
	neg := asm.Instruction{OpCode: asm.Neg.Op(asm.ImmSource), Dst: asm.R0}
	ja, long := asm.Ja.Label(""), asm.LongJump("")
	opcode := func(op asm.OpCode) asm.Instruction { return asm.Instruction{OpCode: op} }
	tests := []struct {
		name   string
		ins    asm.Instruction
		reason error
	}{
		{"immediate with source", changed(asm.Add.Imm(asm.R0, 1), src), checker.ErrField},
		{"register with constant", changed(asm.Add.Reg(asm.R0, asm.R0), imm), checker.ErrField},
		{"arithmetic with offset", changed(asm.Add.Imm(asm.R0, 1), off), checker.ErrField},
		{"negation with source", changed(neg, src), checker.ErrField},
		{"negation with constant", changed(neg, imm), checker.ErrField},
		{"negation of a register", opcode(asm.Neg.Op(asm.RegSource)), checker.ErrField},
		{"swap with source", changed(asm.BSwap(asm.R0, asm.Word), src), checker.ErrField},
		{"swap of 8 bits", changed(asm.BSwap(asm.R0, asm.Word), func(i *asm.Instruction) { i.Constant = 8 }), checker.ErrField},
		{"swap to big endian of 64", opcode(asm.Swap.Op(asm.RegSource)), checker.ErrInstruction},
		{"shift by 64", asm.LSh.Imm(asm.R0, 64), checker.ErrField},
		{"shift by 32 of 32", asm.ArSh.Imm32(asm.R0, 32), checker.ErrField},
		{"shift by -1", asm.RSh.Imm(asm.R0, -1), checker.ErrField},
		{"division by 0", asm.Div.Imm(asm.R0, 0), checker.ErrField},
		{"signed remainder by 0", asm.SMod.Imm32(asm.R0, 0), checker.ErrField},
		{"sign extension of a constant", asm.MovSX8.Imm(asm.R0, 1), checker.ErrInstruction},
		{"sign extension of 32 bits to 32", asm.MovSX32.Reg32(asm.R0, asm.R1), checker.ErrInstruction},
		{"arithmetic opcode 0xe0", opcode(0xe7), checker.ErrInstruction},
		{"extended addition", opcode(asm.Add.Op(asm.ImmSource) | 0x100), checker.ErrInstruction},
		{"invalid opcode", opcode(asm.InvalidOpCode), checker.ErrInstruction},
		{"opcode with high bits", opcode(1 << 31), checker.ErrInstruction},
		{"jump with destination", changed(ja, dst), checker.ErrField},
		{"jump with constant", changed(ja, imm), checker.ErrField},
		{"long jump with offset", changed(long, off), checker.ErrField},
		{"jump on a register", opcode(asm.Ja.Op(asm.RegSource)), checker.ErrField},
		{"exit with constant", changed(asm.Return(), imm), checker.ErrField},
		{"exit of 32 bits", opcode(asm.OpCode(asm.Jump32Class) | asm.OpCode(asm.Exit)), checker.ErrField},
		{"comparison with source", changed(asm.JEq.Imm(asm.R0, 0, ""), src), checker.ErrField},
		{"comparison with constant", changed(asm.JEq.Reg(asm.R0, asm.R0, ""), imm), checker.ErrField},
		{"may_goto", opcode(asm.OpCode(asm.JumpClass) | asm.OpCode(asm.JCOND)), checker.ErrInstruction},
		{"jump opcode 0xf0", opcode(asm.OpCode(asm.JumpClass) | 0xf0), checker.ErrInstruction},
		{"call of a function", asm.Instruction{OpCode: asm.Call.Op(asm.ImmSource), Src: asm.PseudoCall}, checker.ErrHelper},
		{"call of a kernel function", asm.Instruction{OpCode: asm.Call.Op(asm.ImmSource), Src: asm.PseudoKfuncCall}, checker.ErrHelper},
		{"call of a register", opcode(asm.Call.Op(asm.RegSource)), checker.ErrInstruction},
		{"call of 32 bits", opcode(asm.OpCode(asm.Jump32Class) | asm.OpCode(asm.Call)), checker.ErrInstruction},
		{"call with destination", changed(asm.FnKtimeGetNs.Call(), dst), checker.ErrField},
		{"tail call", asm.FnTailCall.Call(), checker.ErrHelper},
		{"random number", asm.FnGetPrandomU32.Call(), checker.ErrHelper},
		{"negative helper", changed(asm.FnKtimeGetNs.Call(), func(i *asm.Instruction) { i.Constant = -5 }), checker.ErrHelper},
		{"load with constant", changed(asm.LoadMem(asm.R0, asm.R1, 0, asm.Word), imm), checker.ErrField},
		{"sign-extending load of 64 bits", opcode(asm.LoadMemSXOp(asm.DWord)), checker.ErrInstruction},
		{"atomic load", opcode(asm.OpCode(asm.LdXClass) | asm.OpCode(asm.AtomicMode)), checker.ErrInstruction},
		{"load-acquire", asm.LoadAcquire(asm.R0, asm.R10, asm.DWord, -8), checker.ErrInstruction},
		{"store-release", asm.StoreRelease(asm.R10, asm.R0, asm.DWord, -8), checker.ErrInstruction},
		{"atomic operation on 2 bytes", changed(asm.AddAtomic.Mem(asm.R10, asm.R0, asm.Word, -8),
			func(i *asm.Instruction) { i.OpCode = i.OpCode.SetSize(asm.Half) }), checker.ErrInstruction},
		{"unknown atomic operation", changed(asm.AddAtomic.Mem(asm.R10, asm.R0, asm.Word, -8),
			func(i *asm.Instruction) { i.OpCode |= 0x2000 }), checker.ErrInstruction},
		{"atomic operation with other flags", changed(asm.FetchAdd.Mem(asm.R10, asm.R0, asm.Word, -8),
			func(i *asm.Instruction) { i.Constant = 0x2001 }), checker.ErrInstruction},
		{"store of a constant and a register", changed(asm.StoreImm(asm.R10, -8, 1, asm.Word), src), checker.ErrField},
		{"store of a register and a constant", changed(asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord), imm), checker.ErrField},
		{"store in another mode", opcode(asm.OpCode(asm.StClass) | asm.OpCode(asm.AtomicMode)), checker.ErrInstruction},
		{"packet load of old", asm.LoadAbs(0, asm.Word), checker.ErrInstruction},
		{"indirect packet load of old", asm.LoadInd(asm.R0, asm.R1, 0, asm.Word), checker.ErrInstruction},
		{"32-bit constant load", asm.LoadImm(asm.R0, 1, asm.Word), checker.ErrInstruction},
		{"constant load with offset", changed(asm.LoadImm(asm.R0, 1, asm.DWord), off), checker.ErrField},
		{"constant load of another kind", asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Src: asm.PseudoFunc}, checker.ErrInstruction},
		{"map that is not there", asm.LoadMapPtr(asm.R0, 4), checker.ErrMap},
		{"map far away", asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Src: asm.PseudoMapFD, Constant: math.MaxUint32}, checker.ErrMap},
		{"map with offset", asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Src: asm.PseudoMapFD, Constant: 1 << 32}, checker.ErrField},
		{"value of a hash", asm.LoadMapValue(asm.R0, flows, 0), checker.ErrMap},
		{"value of many", asm.LoadMapValue(asm.R0, table, 0), checker.ErrMap},
		{"value behind the value", asm.LoadMapValue(asm.R0, globals, 32), checker.ErrBounds},
		{"write of r10", asm.Mov.Imm(asm.R10, 0), checker.ErrRegister},
		{"load to r10", asm.LoadMem(asm.R10, asm.R1, 0, asm.Word), checker.ErrRegister},
		{"constant to r10", asm.LoadImm(asm.R10, 0, asm.DWord), checker.ErrRegister},
		{"fetch to r10", asm.FetchAdd.Mem(asm.R10, asm.R10, asm.DWord, -8), checker.ErrRegister},
		{"register 11", asm.Mov.Imm(11, 0), checker.ErrRegister},
		{"register 255", asm.Mov.Reg(asm.R0, 255), checker.ErrRegister},
		{"constant of 33 bits", changed(asm.Mov.Imm(asm.R0, 0), func(i *asm.Instruction) { i.Constant = math.MaxUint32 }), checker.ErrField},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.ins.Metadata = asm.Metadata{}
			p := abi.Program{Hook: abi.PulseTx, Maps: testMaps(), Instructions: join(exitWith(0)[:1], asm.Instructions{tt.ins}, exitWith(0))}
			_, err := checker.Check(p)
			var refusal *checker.Refusal
			should.Hold(t, errors.As(err, &refusal) && errors.Is(err, tt.reason) && refusal.Instruction == 1,
				"%v, want %v at instruction 1", err, tt.reason)
		})
	}
}

// Every operation that the processor has.
func TestOperations(t *testing.T) {
	var code asm.Instructions
	add := func(ins ...asm.Instruction) { code = append(code, ins...) }
	add(asm.Mov.Imm(asm.R0, 5), asm.Mov.Imm(asm.R2, 3), asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord))
	for _, op := range []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Div, asm.SDiv, asm.Mod, asm.SMod, asm.Or, asm.And, asm.Xor,
		asm.LSh, asm.RSh, asm.ArSh, asm.Mov} {
		add(op.Imm(asm.R0, 3), op.Reg(asm.R0, asm.R2), op.Imm32(asm.R0, 3), op.Reg32(asm.R0, asm.R2))
	}
	for _, op := range []asm.ALUOp{asm.MovSX8, asm.MovSX16, asm.MovSX32} {
		add(op.Reg(asm.R0, asm.R2))
	}
	add(asm.MovSX8.Reg32(asm.R0, asm.R2), asm.MovSX16.Reg32(asm.R0, asm.R2))
	add(asm.Instruction{OpCode: asm.Neg.Op(asm.ImmSource)}, asm.Instruction{OpCode: asm.Neg.Op32(asm.ImmSource)})
	for _, size := range []asm.Size{asm.Half, asm.Word, asm.DWord} {
		add(asm.HostTo(asm.BE, asm.R0, size), asm.HostTo(asm.LE, asm.R0, size), asm.BSwap(asm.R0, size))
	}
	for _, op := range comparisons {
		add(jump(op.Imm(asm.R0, 1, ""), 0), jump(op.Reg(asm.R0, asm.R2, ""), 0), jump(op.Imm32(asm.R0, 1, ""), 0), jump(op.Reg32(asm.R0, asm.R2, ""), 0))
	}
	for _, size := range []asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord} {
		add(asm.LoadMem(asm.R0, asm.R10, -8, size), asm.StoreMem(asm.R10, -8, asm.R2, size))
		if size != asm.DWord {
			add(asm.LoadMemSX(asm.R0, asm.R10, -8, size), asm.StoreImm(asm.R10, -8, 1, size))
		}
	}
	add(asm.Instruction{OpCode: asm.StoreImmOp(asm.DWord), Dst: asm.R10, Offset: -8, Constant: -1})
	for _, op := range []asm.AtomicOp{asm.AddAtomic, asm.FetchAdd, asm.AndAtomic, asm.FetchAnd, asm.OrAtomic, asm.FetchOr,
		asm.XorAtomic, asm.FetchXor, asm.Xchg, asm.CmpXchg} {
		add(op.Mem(asm.R10, asm.R2, asm.Word, -8), op.Mem(asm.R10, asm.R2, asm.DWord, -8))
	}
	add(jump(asm.Ja.Label(""), 0), jump(asm.LongJump(""), 0), asm.LoadImm(asm.R3, -1, asm.DWord), asm.Return())
	p := abi.Program{Hook: abi.PulseTx, Instructions: code}
	report := must.Get(checker.Check(p))(t)
	should.Be(t, report.WorstCase, len(code))
}

// TestMaps: the rules are those of package flat, which has their tests.
func TestMaps(t *testing.T) {
	tests := []struct {
		name   string
		change func(*abi.Map)
		detail string
	}{
		{"long name", func(m *abi.Map) { m.Name = strings.Repeat("x", 1<<20) }, "name"},
		{"absurd value", func(m *abi.Map) { m.Value = math.MaxUint32 }, "value: 4294967295"},
		{"absurd entries", func(m *abi.Map) { m.Entries = math.MaxUint32 }, "entries: 4294967295"},
		{"unknown flags", func(m *abi.Map) { m.Flags = 1 }, "flags: 0x1"},
		{"contents of a hash", func(m *abi.Map) { m.Type, m.Contents = abi.MapHash, []byte{1} }, "starts empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			maps := testMaps()
			tt.change(&maps[globals])
			_, err := checker.Check(abi.Program{Instructions: exitWith(0), Maps: maps})
			var refusal *checker.Refusal
			if !errors.As(err, &refusal) || !errors.Is(err, checker.ErrMap) || !strings.Contains(refusal.Detail, tt.detail) ||
				refusal.Instruction != -1 || len(err.Error()) > 300 {
				t.Errorf("%v, want %v with %q", err, checker.ErrMap, tt.detail)
			}
		})
	}
	should.Refuse(checker.Check(abi.Program{Instructions: exitWith(0), Maps: make([]abi.Map, 1000)}))(t, checker.ErrMap, "1000 maps")
}

func TestProgramSizes(t *testing.T) {
	fill := func(n int, ins asm.Instruction) asm.Instructions {
		var code asm.Instructions
		for range n {
			code = append(code, ins)
		}
		return append(code, exitWith(0)...)
	}
	nop, wide := jump(asm.Ja.Label(""), 0), asm.LoadImm(asm.R2, 1, asm.DWord)
	tests := []struct {
		name   string
		code   asm.Instructions
		reason error
	}{
		{"nothing", nil, checker.ErrSize},
		{"all", fill(abi.MaxInstructions-2, nop), nil},
		{"one more", fill(abi.MaxInstructions-1, nop), checker.ErrSize},
		{"many", fill(1<<20, nop), checker.ErrSize},
		{"all in wide loads", fill(abi.MaxInstructions/2-1, wide), nil},
		{"one more wide load", fill(abi.MaxInstructions/2, wide), checker.ErrSize},
		{"nil instructions", make(asm.Instructions, 10), checker.ErrInstruction},
	}
	for _, tt := range tests {
		should.Refuse(checker.Check(abi.Program{Hook: abi.FilterTx, Instructions: tt.code}))(t, tt.reason, "%s", tt.name)
	}
}

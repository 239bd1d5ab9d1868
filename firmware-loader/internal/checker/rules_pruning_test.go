package checker_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// meet is a program of two paths that meet: the first is followed to its end before
// the second one arrives. R7 has the address of 32 bytes of global variables, R6 the
// context.
func meet(first, second, then []asm.Instruction) asm.Instructions {
	second = append([]asm.Instruction{}, second...)
	then = append([]asm.Instruction{}, then...)
	second[0] = second[0].WithSymbol("second")
	then[0] = then[0].WithSymbol("both")
	return join(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMapValue(asm.R7, globals, 0),
		asm.LoadMem(asm.R2, asm.R6, abi.PulseLength, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "second"),
	}, first, asm.Instructions{asm.Ja.Label("both")}, second, then, leave(0))
}

// A path ends where another one stood before only if that one knew no more that
// matters. Here it did: the first path alone would be accepted.
func TestSecondPathIsFollowed(t *testing.T) {
	unknown := func(r asm.Register) asm.Instruction { return asm.LoadMem(r, asm.R6, abi.PulseFrame, asm.Word) }
	access := func(by asm.Register) []asm.Instruction {
		return []asm.Instruction{asm.Add.Reg(asm.R7, by), asm.LoadMem(asm.R5, asm.R7, 0, asm.DWord)}
	}
	spill := func(r asm.Register) asm.Instruction { return asm.StoreMem(asm.R10, -16, r, asm.DWord) }
	nop := asm.Mov.Imm(asm.R9, 0)
	tests := []struct {
		name                string
		first, second, then []asm.Instruction
		reason              error
	}{
		{
			"another constant", []asm.Instruction{asm.Mov.Imm(asm.R3, 24)}, []asm.Instruction{asm.Mov.Imm(asm.R3, 25)},
			access(asm.R3), checker.ErrBounds,
		},
		{
			"wider bounds", []asm.Instruction{unknown(asm.R3), asm.And.Imm(asm.R3, 15)}, []asm.Instruction{unknown(asm.R3), asm.And.Imm(asm.R3, 31)},
			access(asm.R3), checker.ErrBounds,
		},
		{
			"other registers with the same number",
			[]asm.Instruction{unknown(asm.R3), asm.Mov.Reg(asm.R4, asm.R3)}, []asm.Instruction{unknown(asm.R3), unknown(asm.R4)},
			append([]asm.Instruction{asm.JGT.Imm(asm.R3, 24, "out")}, access(asm.R4)...), checker.ErrBounds,
		},
		{
			"another limit to compare with", []asm.Instruction{asm.Mov.Imm(asm.R3, 24)}, []asm.Instruction{asm.Mov.Imm(asm.R3, 1000)},
			append([]asm.Instruction{unknown(asm.R4), asm.JGT.Reg(asm.R4, asm.R3, "out")}, access(asm.R4)...), checker.ErrBounds,
		},
		{
			"another spilled number", []asm.Instruction{asm.Mov.Imm(asm.R3, 24), spill(asm.R3)}, []asm.Instruction{asm.Mov.Imm(asm.R3, 25), spill(asm.R3)},
			append([]asm.Instruction{asm.LoadMem(asm.R3, asm.R10, -16, asm.DWord)}, access(asm.R3)...), checker.ErrBounds,
		},
		{
			"another spilled number, read by another address",
			[]asm.Instruction{asm.Mov.Imm(asm.R3, 24), spill(asm.R3)}, []asm.Instruction{asm.Mov.Imm(asm.R3, 25), spill(asm.R3)},
			append([]asm.Instruction{asm.Mov.Reg(asm.R4, asm.R10), asm.Add.Imm(asm.R4, -16), asm.Mov.Imm(asm.R3, 0),
				asm.LoadMem(asm.R3, asm.R4, 0, asm.DWord)}, access(asm.R3)...), checker.ErrBounds,
		},
		{
			"another spilled number, read by an address that was spilled",
			[]asm.Instruction{asm.Mov.Imm(asm.R3, 24), spill(asm.R3)}, []asm.Instruction{asm.Mov.Imm(asm.R3, 25), spill(asm.R3)},
			append([]asm.Instruction{asm.StoreMem(asm.R10, -8, asm.R10, asm.DWord), asm.LoadMem(asm.R4, asm.R10, -8, asm.DWord),
				asm.Mov.Imm(asm.R3, 0), asm.LoadMem(asm.R3, asm.R4, -16, asm.DWord)}, access(asm.R3)...), checker.ErrBounds,
		},
		{
			"a spilled address rather than a number", []asm.Instruction{asm.Mov.Imm(asm.R3, 24), spill(asm.R3)}, []asm.Instruction{spill(asm.R7)},
			[]asm.Instruction{asm.LoadMem(asm.R3, asm.R10, -16, asm.DWord), asm.StoreMem(asm.R7, 0, asm.R3, asm.DWord)}, checker.ErrLeak,
		},
		{
			"half of a slot", []asm.Instruction{asm.Mov.Imm(asm.R3, 24), spill(asm.R3)}, []asm.Instruction{nop},
			[]asm.Instruction{asm.StoreImm(asm.R10, -16, 0, asm.Word), asm.LoadMem(asm.R3, asm.R10, -12, asm.Byte)}, checker.ErrUninitialized,
		},
		{
			"no key", []asm.Instruction{asm.StoreImm(asm.R10, -4, 0, asm.Word)}, []asm.Instruction{nop},
			lookup(table, -4), checker.ErrUninitialized,
		},
		{
			"no register", []asm.Instruction{asm.Mov.Imm(asm.R3, 0)}, []asm.Instruction{nop},
			[]asm.Instruction{asm.Add.Imm(asm.R3, 1)}, checker.ErrUninitialized,
		},
		{
			"another map", []asm.Instruction{asm.LoadMapValue(asm.R7, rodata, 0)}, []asm.Instruction{nop},
			[]asm.Instruction{asm.LoadMem(asm.R3, asm.R7, 32, asm.Word)}, checker.ErrBounds,
		},
		{
			"a condition that is decided later",
			[]asm.Instruction{asm.Mov.Imm(asm.R3, 1)}, []asm.Instruction{asm.Mov.Imm(asm.R3, 2)},
			[]asm.Instruction{asm.JEq.Imm(asm.R3, 1, "out"), asm.Mov.Reg(asm.R4, asm.R5)}, checker.ErrUninitialized,
		},
	}
	for _, tt := range tests {
		testRules(t, []rule{{tt.name + ", first path alone", abi.PulseTx, meet(tt.first, tt.first, tt.then), nil, 0, ""}})
		t.Run(tt.name, func(t *testing.T) {
			report, err := checker.Check(link(t, abi.PulseTx, meet(tt.first, tt.second, tt.then)))
			should.Hold(t, isReason(err, tt.reason), "%+v, %v, want %v", report, err, tt.reason)
		})
	}
}

// A path that ends where another one stood is as long as that one from there on.
func TestBudgetOfPathsThatMeet(t *testing.T) {
	times := func(n int) []asm.Instruction {
		code := make([]asm.Instruction, n)
		for i := range code {
			code[i] = asm.Mov.Imm(asm.R3, 0)
		}
		return code
	}
	testRules(t, []rule{
		{"at the budget", abi.PulseTx, meet(times(1), times(200), times(512-200-6)), nil, 0, ""},
		{"over the budget", abi.PulseTx, meet(times(1), times(200), times(513-200-6)), checker.ErrBudget, 207, "513"},
	})
}

// What is known of one register says nothing of another one.
func TestLearningFromCopies(t *testing.T) {
	unknown := asm.LoadMem(asm.R2, asm.R1, abi.PulseFrame, asm.Word)
	value := asm.LoadMapValue(asm.R7, globals, 0)
	access := asm.Instructions{asm.Add.Reg(asm.R7, asm.R2), asm.LoadMem(asm.R5, asm.R7, 0, asm.Byte)}
	limited := func(n asm.Register, limit int32) asm.Instruction { return asm.JGT.Imm(n, limit, "out") }
	program := func(code ...asm.Instruction) asm.Instructions { return join(asm.Instructions(code), access, leave(0)) }
	testRules(t, []rule{
		{"copy", abi.PulseTx, program(unknown, value, asm.Mov.Reg(asm.R3, asm.R2), limited(asm.R3, 31)), nil, 0, ""},
		{"copy of 32 bits", abi.PulseTx, program(unknown, value, asm.Mov.Reg32(asm.R3, asm.R2), limited(asm.R3, 31)), nil, 0, ""},
		{"copy of a copy", abi.PulseTx, program(unknown, value, asm.Mov.Reg(asm.R3, asm.R2), asm.Mov.Reg(asm.R4, asm.R3), limited(asm.R4, 31)), nil, 0, ""},
		{"spilled copy", abi.PulseTx, program(unknown, value, asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord),
			asm.LoadMem(asm.R3, asm.R10, -8, asm.DWord), limited(asm.R3, 31)), nil, 0, ""},
		{"changed copy", abi.PulseTx, program(unknown, value, asm.Mov.Reg(asm.R3, asm.R2), asm.Mul.Imm(asm.R3, 1), limited(asm.R3, 31)),
			checker.ErrBounds, 6, "limit"},
		{"low half of a number", abi.PulseTx, program(value, asm.LoadMem(asm.R2, asm.R7, 0, asm.DWord), asm.Mov.Reg32(asm.R3, asm.R2), limited(asm.R3, 31)),
			checker.ErrBounds, 5, "limit"},
		{"spilled low half of a number", abi.PulseTx, program(value, asm.LoadMem(asm.R2, asm.R7, 0, asm.DWord), asm.Mov.Reg(asm.R4, asm.R2),
			asm.StoreMem(asm.R10, -8, asm.R2, asm.Word), asm.LoadMem(asm.R3, asm.R10, -8, asm.Word), limited(asm.R3, 31)), checker.ErrBounds, 7, "limit"},
		{"extended sign", abi.PulseTx, program(value, asm.LoadMem(asm.R2, asm.R7, 0, asm.Byte), asm.MovSX8.Reg(asm.R3, asm.R2),
			asm.JSGT.Imm(asm.R3, -101, "out"), asm.Add.Imm(asm.R2, 128)), checker.ErrBounds, 7, ""},
		{"sign that is known", abi.PulseTx, program(value, asm.LoadMem(asm.R2, asm.R7, 0, asm.Byte), asm.MovSX16.Reg(asm.R3, asm.R2),
			limited(asm.R3, 31)), nil, 0, ""},
		{"overwritten by an atomic operation", abi.PulseTx, program(value, asm.Mov.Imm(asm.R3, 1), asm.StoreMem(asm.R10, -8, asm.R3, asm.DWord),
			asm.AddAtomic.Mem(asm.R10, asm.R3, asm.DWord, -8), asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)), checker.ErrBounds, 6, "limit"},
		{"overwritten somewhere", abi.PulseTx, program(unknown, value, asm.And.Imm(asm.R2, 8), asm.Mov.Imm(asm.R3, 1),
			asm.StoreMem(asm.R10, -8, asm.R3, asm.DWord), asm.StoreMem(asm.R10, -16, asm.R3, asm.DWord), asm.Add.Reg(asm.R2, asm.R10),
			asm.StoreMem(asm.R2, -16, asm.R7, asm.DWord)), checker.ErrPointer, 8, "not known"},
		{"number overwritten somewhere", abi.PulseTx, program(unknown, value, asm.And.Imm(asm.R2, 8), asm.Mov.Imm(asm.R3, 1),
			asm.StoreMem(asm.R10, -8, asm.R3, asm.DWord), asm.StoreMem(asm.R10, -16, asm.R3, asm.DWord), asm.Add.Reg(asm.R2, asm.R10),
			asm.StoreMem(asm.R2, -16, asm.R3, asm.DWord), asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)), checker.ErrBounds, 10, "limit"},
	})
	testRules(t, []rule{{"another variable offset in the frame", abi.DemuxRx, join(frameStart(14), asm.Instructions{
		asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte),
		asm.LoadMem(asm.R4, asm.R6, 1, asm.Byte),
		asm.Add.Reg(asm.R3, asm.R6),
		asm.Add.Reg(asm.R4, asm.R6),
		asm.Mov.Reg(asm.R5, asm.R3),
		asm.Add.Imm(asm.R5, 8),
		asm.JGT.Reg(asm.R5, asm.R7, "out"),
		asm.LoadMem(asm.R2, asm.R3, 7, asm.Byte),
		asm.LoadMem(asm.R2, asm.R4, 0, asm.Byte),
	}, leave(0)), checker.ErrBounds, 13, "shown 0"}})
}

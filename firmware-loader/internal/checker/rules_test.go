package checker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// rule is a small program and what the checker says of it.
type rule struct {
	name   string
	hook   abi.Hook
	code   asm.Instructions
	reason error  // nil: accepted
	slot   int    // of the instruction that is refused
	detail string // a part of the detail
}

func testRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			report, err := checker.Check(link(t, r.hook, r.code))
			if r.reason == nil {
				must.OK(t, err)
				return
			}
			var refusal *checker.Refusal
			switch {
			case err == nil:
				t.Fatalf("accepted: %+v", report)
			case !errors.As(err, &refusal):
				t.Fatalf("%T", err)
			case !errors.Is(err, r.reason):
				t.Errorf("refused with %v, want %v", err, r.reason)
			case refusal.Instruction != r.slot:
				t.Errorf("%v: instruction %d, want %d", err, refusal.Instruction, r.slot)
			case !strings.Contains(refusal.Detail, r.detail):
				t.Errorf("%v: want a detail with %q", err, r.detail)
			case refusal.Hook != r.hook || report != (checker.Report{}):
				t.Errorf("%v with hook %v and report %+v", err, refusal.Hook, report)
			}
		})
	}
}

func isReason(err, reason error) bool { return err != nil && errors.Is(err, reason) }

// answer returns what comes before and an exit with the answer 0.
func answer(before ...asm.Instruction) asm.Instructions {
	return join(before, exitWith(0))
}

func TestRegisters(t *testing.T) {
	testRules(t, []rule{
		{"an answer", abi.PulseTx, exitWith(7), nil, 0, ""},
		{"no answer", abi.PulseTx, asm.Instructions{asm.Return()}, checker.ErrUninitialized, 0, "r0"},
		{"uninitialized operand", abi.PulseTx, answer(asm.Mov.Reg(asm.R2, asm.R3)), checker.ErrUninitialized, 0, "r3"},
		{"uninitialized destination", abi.PulseTx, answer(asm.Add.Imm(asm.R2, 1)), checker.ErrUninitialized, 0, "r2"},
		{"uninitialized swap", abi.PulseTx, answer(asm.BSwap(asm.R2, asm.Word)), checker.ErrUninitialized, 0, "r2"},
		{"uninitialized base", abi.PulseTx, answer(asm.LoadMem(asm.R2, asm.R4, 0, asm.Byte)), checker.ErrUninitialized, 0, "r4"},
		{"uninitialized store", abi.PulseTx, answer(asm.StoreMem(asm.R10, -8, asm.R4, asm.DWord)), checker.ErrUninitialized, 0, "r4"},
		{"uninitialized condition", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.JEq.Imm(asm.R8, 0, "end"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("end"),
		}, checker.ErrUninitialized, 1, "r8"},
		{"uninitialized on one path", abi.PulseTx, asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
			asm.JEq.Imm(asm.R2, 0, "end"),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return().WithSymbol("end"),
		}, checker.ErrUninitialized, 3, "r0"},
		{"lost by a call", abi.PulseTx, answer(asm.FnKtimeGetNs.Call(), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)),
			checker.ErrUninitialized, 1, "r1"},
		{"kept by a call", abi.PulseTx, answer(asm.Mov.Reg(asm.R6, asm.R1), asm.FnKtimeGetNs.Call(),
			asm.LoadMem(asm.R2, asm.R6, 0, asm.Word)), nil, 0, ""},
		{"answer of a call", abi.PulseTx, asm.Instructions{asm.FnKtimeGetNs.Call(), asm.Return()}, nil, 0, ""},
		{"address as answer", abi.PulseTx, asm.Instructions{asm.Mov.Reg(asm.R0, asm.R1), asm.Return()}, checker.ErrLeak, 1, "context"},
	})
}

func TestPointers(t *testing.T) {
	value := asm.LoadMapValue(asm.R6, globals, 0) // two slots
	testRules(t, []rule{
		{"multiplied", abi.PulseTx, answer(asm.Mul.Imm(asm.R1, 2)), checker.ErrPointer, 0, "the context"},
		{"32 bits", abi.PulseTx, answer(asm.Add.Imm32(asm.R1, 2)), checker.ErrPointer, 0, "32 bits"},
		{"32 bits copied", abi.PulseTx, answer(asm.Mov.Reg32(asm.R2, asm.R1)), checker.ErrPointer, 0, "32 bits"},
		{"negated", abi.PulseTx, answer(asm.Instruction{OpCode: asm.Neg.Op(asm.ImmSource), Dst: asm.R1}), checker.ErrPointer, 0, ""},
		{"swapped", abi.PulseTx, answer(asm.BSwap(asm.R1, asm.DWord)), checker.ErrPointer, 0, "swapped"},
		{"sign extended", abi.PulseTx, answer(asm.MovSX32.Reg(asm.R2, asm.R1)), checker.ErrPointer, 0, "sign"},
		{"subtracted from a number", abi.PulseTx, answer(asm.Mov.Imm(asm.R2, 1), asm.Sub.Reg(asm.R2, asm.R1)), checker.ErrPointer, 1, "subtracted"},
		{"added to a number", abi.PulseTx, answer(value, asm.Mov.Imm(asm.R2, 8), asm.Add.Reg(asm.R2, asm.R6),
			asm.LoadMem(asm.R3, asm.R2, 0, asm.DWord)), nil, 0, ""},
		{"subtraction from the stack", abi.PulseTx, answer(asm.Mov.Reg(asm.R2, asm.R10), asm.Sub.Imm(asm.R2, 8)), checker.ErrPointer, 1, "add a negative"},
		{"arithmetic on a map", abi.PulseTx, answer(asm.LoadMapPtr(asm.R2, flows), asm.Add.Imm(asm.R2, 8)), checker.ErrPointer, 2, "a map"},
		{"difference of values", abi.PulseTx, answer(value, asm.Mov.Reg(asm.R7, asm.R6), asm.Sub.Reg(asm.R7, asm.R6)), checker.ErrPointer, 3, "differences"},
		{"huge offset", abi.PulseTx, answer(value, asm.Add.Imm(asm.R6, 1<<29)), checker.ErrBounds, 2, "is added"},
		{"offsets that add up", abi.PulseTx, answer(value, asm.Add.Imm(asm.R6, 1<<28), asm.Add.Imm(asm.R6, 1<<28)), checker.ErrBounds, 3, "offset"},
		{"number without bounds", abi.PulseTx, answer(value, asm.LoadMem(asm.R2, asm.R6, 0, asm.DWord), asm.Add.Reg(asm.R6, asm.R2)),
			checker.ErrBounds, 3, ""},
		{"compared with a number", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.JEq.Imm(asm.R1, 5, "end"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("end"),
		}, checker.ErrPointer, 1, "a number"},
		{"compared with other memory", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.JEq.Reg(asm.R1, asm.R10, "end"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("end"),
		}, checker.ErrPointer, 1, "the context is compared with the stack"},
		{"compared with the same memory", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.LoadMapValue(asm.R6, globals, 0), asm.LoadMapValue(asm.R7, globals, 4),
			asm.JLT.Reg(asm.R6, asm.R7, "end"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("end"),
		}, nil, 0, ""},
		{"signed comparison", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.JSLT.Reg(asm.R10, asm.R10, "end"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("end"),
		}, checker.ErrPointer, 1, "addresses do not have"},
		{"32 bits compared", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.JEq.Imm32(asm.R1, 0, "end"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("end"),
		}, checker.ErrPointer, 1, "32 bits"},
		{"a value is not null", abi.PulseTx, asm.Instructions{
			value, asm.JNE.Imm(asm.R6, 0, "end"), asm.Mov.Reg(asm.R0, asm.R9), asm.Mov.Imm(asm.R0, 1).WithSymbol("end"), asm.Return(),
		}, nil, 0, ""},
		{"changed context", abi.PulseTx, answer(asm.Add.Imm(asm.R1, 4), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)), checker.ErrPointer, 1, "changed by 4"},
		{"context changed and back", abi.PulseTx, answer(asm.Add.Imm(asm.R1, 4), asm.Add.Imm(asm.R1, -4),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)), nil, 0, ""},
		{"context changed by a variable", abi.PulseTx, answer(asm.LoadMem(asm.R2, asm.R1, 0, asm.Byte), asm.Add.Reg(asm.R1, asm.R2)),
			checker.ErrPointer, 1, "not known"},
		{"context or other memory", abi.PulseTx, asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.JEq.Imm(asm.R2, 0, "load"), asm.LoadMapValue(asm.R1, globals, 0),
			asm.LoadMem(asm.R0, asm.R1, 0, asm.Word).WithSymbol("load"), asm.Return(),
		}, checker.ErrPointer, 4, "from a map's value on one path and from the context"},
		{"a number as an address", abi.PulseTx, answer(asm.Mov.Imm(asm.R2, 4096), asm.LoadMem(asm.R3, asm.R2, 0, asm.Word)),
			checker.ErrNotPointer, 1, "the number 4096"},
		{"a map as an address", abi.PulseTx, answer(asm.LoadMapPtr(asm.R2, flows), asm.LoadMem(asm.R3, asm.R2, 0, asm.Word)),
			checker.ErrNotPointer, 2, "a map"},
	})
}

// testAccepted shows the rules that the checker accepts to the kernel too.
func testAccepted(t *testing.T, rules []rule) {
	t.Helper()
	testRules(t, rules)
	k := newKernel(t, testMaps())
	for _, r := range rules {
		if p := link(t, r.hook, r.code); r.reason == nil && k.load(p, false) != nil {
			t.Errorf("%s: %s", r.name, k.why(p))
		}
	}
}

// linked is a program that uses R2, a number that it knows nothing of but what some
// code says, as an index of 32 bytes.
func linked(code ...asm.Instruction) asm.Instructions {
	return join(asm.Instructions{
		asm.LoadMapValue(asm.R7, globals, 0),
		asm.LoadMem(asm.R4, asm.R7, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R7, 8, asm.Word),
	}, code, asm.Instructions{
		asm.Add.Reg(asm.R7, asm.R2),
		asm.LoadMem(asm.R5, asm.R7, 0, asm.Byte),
	}, leave(0))
}

// What compilers make of `if (i + 4 > n) return; use(i)` and of its relatives: they
// compare one register and use another, which is a constant away.
func TestSumsOfCopies(t *testing.T) {
	above := func(n asm.Register, limit int32) asm.Instruction { return asm.JGT.Imm(n, limit, "out") }
	above32 := func(n asm.Register, limit int32) asm.Instruction { return asm.JGT.Imm32(n, limit, "out") }
	below := func(n asm.Register, limit int32) asm.Instruction { return asm.JLT.Imm(n, limit, "out") }
	copied, copied32 := asm.Mov.Reg(asm.R3, asm.R2), asm.Mov.Reg32(asm.R3, asm.R2)
	wide, wide32 := asm.Mov.Reg(asm.R2, asm.R4), asm.Mov.Reg32(asm.R3, asm.R4)
	testAccepted(t, []rule{
		{"sum", abi.PulseTx, linked(copied, asm.Add.Imm(asm.R3, 4), above(asm.R3, 35), below(asm.R3, 4)), nil, 0, ""},
		{"sum, one more", abi.PulseTx, linked(copied, asm.Add.Imm(asm.R3, 4), above(asm.R3, 36), below(asm.R3, 4)), checker.ErrBounds, 9, "0 to 32"},
		{"sum that may have wrapped", abi.PulseTx, linked(wide, copied, asm.Add.Imm(asm.R3, 4), above(asm.R3, 35)), checker.ErrBounds, 9, "-4 to 31"},
		{"difference", abi.PulseTx, linked(copied, asm.Sub.Imm(asm.R3, 1), above(asm.R3, 30)), nil, 0, ""},
		{"difference, one more", abi.PulseTx, linked(copied, asm.Sub.Imm(asm.R3, 1), above(asm.R3, 31)), checker.ErrBounds, 8, "1 to 32"},
		{"negative sum", abi.PulseTx, linked(copied, asm.Add.Imm(asm.R3, -1), above(asm.R3, 30)), nil, 0, ""},
		{"sum of 32 bits", abi.PulseTx, linked(copied32, asm.Add.Imm32(asm.R3, -1), above32(asm.R3, 30)), nil, 0, ""},
		{"sum of 32 bits, one more", abi.PulseTx, linked(copied32, asm.Add.Imm32(asm.R3, -1), above32(asm.R3, 31)), checker.ErrBounds, 8, "1 to 32"},
		{"difference of 32 bits", abi.PulseTx, linked(copied32, asm.Sub.Imm32(asm.R3, 1), above32(asm.R3, 30)), nil, 0, ""},
		// The upper half of R4 is not known: R3 says nothing of it.
		{"sum of a low half", abi.PulseTx, linked(wide, copied, asm.Add.Imm32(asm.R3, 1), above(asm.R3, 16)), checker.ErrBounds, 8, "limit"},
		{"sum of a copied low half", abi.PulseTx, linked(wide, wide32, asm.Add.Imm32(asm.R3, 1), above(asm.R3, 16)), checker.ErrBounds, 8, "limit"},
		{"sums of both widths", abi.PulseTx, linked(copied, asm.Add.Imm(asm.R2, 1), asm.Add.Imm32(asm.R3, 1), above(asm.R3, 16)), checker.ErrBounds, 8, ""},
		{"a constant in a register", abi.PulseTx, linked(asm.Mov.Imm(asm.R5, 3), copied, asm.Add.Reg(asm.R3, asm.R5), above(asm.R3, 34), below(asm.R3, 3)), nil, 0, ""},
		{"two sums", abi.PulseTx, linked(copied, asm.Add.Imm(asm.R3, 1), asm.Add.Imm(asm.R3, 1), above(asm.R3, 31)), checker.ErrBounds, 8, ""},
		{"copy of a sum", abi.PulseTx, linked(copied, asm.Add.Imm(asm.R3, 1), asm.Mov.Reg(asm.R5, asm.R3), above(asm.R5, 31)), checker.ErrBounds, 8, ""},
		{"two sums of copies", abi.PulseTx, linked(copied, asm.Mov.Reg(asm.R5, asm.R2), asm.Add.Imm(asm.R3, 8), asm.Sub.Imm(asm.R5, 2),
			above(asm.R5, 29)), nil, 0, ""},
		{"the smallest constant", abi.PulseTx, linked(wide, copied, asm.Sub.Imm(asm.R3, -1<<31), above(asm.R3, 16)), checker.ErrBounds, 8, ""},
		{"spilled copy of a sum", abi.PulseTx, linked(copied, asm.Sub.Imm(asm.R3, 1), asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord),
			above(asm.R3, 30), asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)), nil, 0, ""},
		{"six copies", abi.PulseTx, linked(copies(asm.R0, asm.R3, asm.R4, asm.R5, asm.R6)...), nil, 0, ""},
		{"seven copies", abi.PulseTx, linked(copies(asm.R0, asm.R1, asm.R3, asm.R4, asm.R5, asm.R6)...), checker.ErrBounds, 17, "limit"},
	})
}

// copies copies R2 to the registers, compares the first one, and adds up all of them
// but the last one, which it copies back.
func copies(to ...asm.Register) []asm.Instruction {
	var code []asm.Instruction
	for _, r := range to {
		code = append(code, asm.Mov.Reg(r, asm.R2))
	}
	last := to[len(to)-1]
	code = append(code, asm.JGT.Imm(to[0], 31, "out"))
	for _, r := range to[:len(to)-1] {
		code = append(code, asm.Xor.Reg(r, asm.R2))
	}
	return append(code, asm.Mov.Reg(asm.R2, last))
}

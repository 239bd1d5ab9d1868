package checker_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

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

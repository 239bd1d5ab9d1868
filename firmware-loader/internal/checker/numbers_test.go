package checker_test

import (
	"math"
	"sort"
	"testing"

	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// numbers draws a program's beginning that computes a number in R6 from numbers that
// are not known, by arithmetic, jumps and the stack.
func numbers(t *rapid.T) []step {
	g := &generator{T: t, hook: abi.FilterRx, maps: testMaps()}
	g.emit(asm.LoadMapValue(asm.R9, rodata, 0))
	for r := asm.R6; r <= asm.R8; r++ {
		g.set(r, aNumber)
		size := pick(g, asm.Byte, asm.Half, asm.Word, asm.DWord, asm.DWord)
		switch g.number("source", 0, 7) {
		case 0:
			g.emit(asm.Mov.Imm(r, g.constant()))
		case 1:
			if size != asm.DWord {
				g.emit(asm.LoadMemSX(r, asm.R9, 8, size))
				continue
			}
			fallthrough
		default:
			g.emit(asm.LoadMem(r, asm.R9, 8, size))
		}
	}
	for range g.number("operations", 1, 8) {
		r := pick(g, asm.R6, asm.R6, asm.R6, asm.R7, asm.R8)
		switch g.number("kind", 0, 11) {
		case 0, 1:
			g.leave(g.comparison(r))
		case 2:
			// The side on which the condition does not hold.
			g.emit(g.comparison(r))
			g.steps[len(g.steps)-1].target = len(g.steps) + 1
			g.leave(asm.Ja.Label(""))
		case 3:
			size := pick(g, asm.DWord, asm.Word, asm.Half, asm.Byte)
			g.emit(asm.StoreMem(asm.R10, -8, r, size), asm.LoadMem(asm.R6, asm.R10, -8, size))
		case 4:
			g.emit(pick(g, asm.Mov.Reg, asm.Mov.Reg32)(pick(g, asm.R6, asm.R7), r))
		case 5:
			// What compilers do to extend a sign.
			n := pick[int32](g, 32, 32, 48, 56, 16)
			g.emit(asm.LSh.Imm(r, n), pick(g, asm.ArSh, asm.RSh).Imm(r, n))
		case 6, 7:
			// A copy that a constant is added to, and a comparison of one of them.
			copied := pick(g, asm.R6, asm.R7)
			g.emit(pick(g, asm.Mov.Reg, asm.Mov.Reg32)(copied, r))
			add := pick(g, asm.Add, asm.Sub)
			g.emit(pick(g, add.Imm, add.Imm32)(pick(g, copied, r), g.constant()))
			g.leave(g.comparison(pick(g, copied, r)))
		default:
			ins := g.arithmetic(r)
			if op := ins.OpCode.ALUOp(); op == asm.Div || op == asm.Mod || op == asm.SDiv || op == asm.SMod {
				ins = asm.And.Imm(r, g.constant()) // of the others nothing is known
			}
			g.emit(ins)
		}
	}
	return g.steps
}

// probe is a program that is safe only if R6, or its low half, never compares so with
// a constant.
func probe(beginning []step, op asm.JumpOp, narrow, safeIfTaken bool, c uint64) abi.Program {
	jump := op.Reg(asm.R6, asm.R5, "")
	if narrow {
		jump = op.Reg32(asm.R6, asm.R5, "")
	}
	jump.Metadata = asm.Metadata{}
	unsafe, safe := len(beginning)+4, len(beginning)+2
	if safeIfTaken {
		unsafe, safe = safe, unsafe
	}
	ends := map[int][]step{
		safe:   {{ins: asm.Mov.Imm(asm.R0, 0)}, {ins: asm.Return()}},
		unsafe: {{ins: asm.Mov.Reg(asm.R0, asm.R4)}, {ins: asm.Return()}}, // R4 was never written
	}
	steps := append(append([]step{}, beginning...),
		step{ins: asm.LoadImm(asm.R5, int64(c), asm.DWord)}, step{ins: jump, target: len(beginning) + 4})
	steps = append(append(steps, ends[len(beginning)+2]...), ends[len(beginning)+4]...)
	return linkSteps(abi.FilterRx, testMaps(), steps)
}

// edges are the comparisons that show a bound of a number. Bounds are at the first
// constant, counted from lowest in steps, with which the checker accepts the program.
var edges = []struct {
	op     asm.JumpOp
	narrow bool
	lowest uint64
	step   int64
	span   uint64
}{
	{asm.JGT, false, 0, 1, math.MaxUint64},
	{asm.JLT, false, math.MaxUint64, -1, math.MaxUint64},
	{asm.JSGT, false, 1 << 63, 1, math.MaxUint64},
	{asm.JSLT, false, math.MaxInt64, -1, math.MaxUint64},
	{asm.JGT, true, 0, 1, math.MaxUint32},
	{asm.JLT, true, math.MaxUint32, -1, math.MaxUint32},
	{asm.JSGT, true, 1 << 31, 1, math.MaxUint32},
	{asm.JSLT, true, math.MaxInt32, -1, math.MaxUint32},
}

// The kernel's verifier must know of every number what the checker knows: programs
// that depend on each single bound or bit that the checker knows are shown to it.
func TestNumbersAgainstKernel(t *testing.T) {
	k := newKernel(t, testMaps())
	checks(t, 500)
	rapid.Check(t, func(t *rapid.T) {
		beginning := numbers(t)
		accepted := func(p abi.Program) bool {
			_, err := checker.Check(p)
			return err == nil
		}
		show := func(p abi.Program) {
			if accepted(p) && k.load(p, false) != nil {
				t.Fatalf("accepted, but the kernel refuses it:\n%v\n%s", p.Instructions, k.why(p))
			}
		}
		for range 3 {
			e := rapid.SampledFrom(edges).Draw(t, "edge")
			at := func(n uint64) abi.Program {
				return probe(beginning, e.op, e.narrow, false, e.lowest+n*uint64(e.step))
			}
			// sort.Search counts in ints: the top bit first.
			offset := uint64(0)
			if e.span > math.MaxUint32 && !accepted(at(math.MaxInt64)) {
				offset = 1 << 63
			}
			n := sort.Search(int(e.span>>1|e.span&math.MaxUint32), func(n int) bool { return accepted(at(offset + uint64(n))) })
			show(at(offset + uint64(n)))
		}
		narrow := rapid.Bool().Draw(t, "narrow")
		var zeros uint64
		for range 8 {
			bit := uint64(1) << rapid.IntRange(0, 63).Draw(t, "bit")
			if accepted(probe(beginning, asm.JSet, narrow, false, bit)) {
				zeros |= bit
			}
			show(probe(beginning, asm.JSet, narrow, true, bit))
		}
		show(probe(beginning, asm.JSet, narrow, false, zeros))
	})
}

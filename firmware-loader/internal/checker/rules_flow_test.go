package checker_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// jump is a jump by an offset in slots.
func jump(ins asm.Instruction, off int) asm.Instruction {
	ins.Metadata = asm.Metadata{}
	if isLongJump(ins) {
		ins.Constant = int64(off)
	} else {
		ins.Offset = int16(off)
	}
	return ins
}

func TestJumps(t *testing.T) {
	ja, long := asm.Ja.Label(""), asm.LongJump("")
	never := asm.JNE.Imm(asm.R1, 0, "")
	wide := asm.LoadImm(asm.R2, 1, asm.DWord)
	testRules(t, []rule{
		{"over nothing", abi.PulseTx, answer(jump(ja, 0)), nil, 0, ""},
		{"long", abi.PulseTx, answer(jump(long, 0)), nil, 0, ""},
		{"behind the program", abi.PulseTx, answer(jump(never, 3)), checker.ErrJump, 0, "slot 4 of 3"},
		{"to the end of the program", abi.PulseTx, answer(jump(never, 2)), checker.ErrJump, 0, "slot 3 of 3"},
		{"before the program", abi.PulseTx, answer(jump(never, -2)), checker.ErrJump, 0, "slot -1"},
		{"far behind", abi.PulseTx, answer(jump(long, 1<<30)), checker.ErrJump, 0, ""},
		{"far before", abi.PulseTx, answer(jump(long, -1<<31)), checker.ErrJump, 0, ""},
		{"inside a 64-bit load", abi.PulseTx, answer(jump(never, 1), wide), checker.ErrJump, 0, "inside"},
		{"over a 64-bit load", abi.PulseTx, answer(jump(never, 2), wide), nil, 0, ""},
		{"unreachable", abi.PulseTx, answer(jump(ja, 1), asm.Mov.Imm(asm.R3, 0)), checker.ErrUnreachable, 1, ""},
		{"unreachable end", abi.PulseTx, join(exitWith(0), exitWith(0)), checker.ErrUnreachable, 2, ""},
		{"reachable by no value", abi.PulseTx, join(asm.Instructions{
			asm.Mov.Imm(asm.R2, 1), asm.JEq.Imm(asm.R2, 1, "end"), asm.Mov.Reg(asm.R0, asm.R9), asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
		}), nil, 0, ""},
		{"no exit", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 0)}, checker.ErrNoExit, 0, ""},
		{"no exit on one side", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return().WithSymbol("end"), jump(never, -2)},
			checker.ErrUnreachable, 2, ""},
		{"condition at the end", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 0), jump(ja, 1), asm.Return(), jump(never, -2)},
			checker.ErrNoExit, 3, ""},
		{"not linked", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("start"), asm.Return().WithSymbol("end"),
			asm.Ja.Label("end")}, checker.ErrUnreachable, 2, ""},
	})
	p := abi.Program{Hook: abi.PulseTx, Instructions: asm.Instructions{asm.Ja.Label("elsewhere"), asm.Return()}}
	should.Refuse(checker.Check(p))(t, checker.ErrJump, "a label that was not resolved")
}

// count is a loop of that many rounds of four instructions, and two more.
func count(rounds int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R0, 0),
		asm.Add.Imm(asm.R0, 1).WithSymbol("loop"),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Imm(asm.R3, 0),
		asm.JLT.Imm(asm.R0, rounds, "loop"),
		asm.Return(),
	}
}

func TestLoops(t *testing.T) {
	worst := func(hook abi.Hook, code asm.Instructions) int {
		t.Helper()
		report, err := checker.Check(link(t, hook, code))
		should.OK(t, err)
		return report.WorstCase
	}
	should.Be(t, worst(abi.PulseTx, count(127)), 2+4*127)
	should.Be(t, worst(abi.FilterTx, count(2047)), 2+4*2047)
	random := asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)
	data := asm.LoadMapValue(asm.R4, globals, 0)
	testRules(t, []rule{
		{"over the budget of pulses", abi.PulseTx, count(128), checker.ErrBudget, 4, "512"},
		{"over the budget of frames", abi.FilterTx, count(2048), checker.ErrBudget, 4, "8192"},
		{"empty", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 0), jump(asm.Ja.Label(""), -1)}, checker.ErrEndless, 1, ""},
		{"itself or the end", abi.PulseTx, answer(random, jump(asm.JEq.Imm(asm.R2, 0, ""), -1)), checker.ErrEndless, 1, ""},
		{"rounds that are not known", abi.PulseTx, answer(random, asm.Sub.Imm(asm.R2, 1), jump(asm.JNE.Imm(asm.R2, 0, ""), -2)),
			checker.ErrBudget, 4, ""},
		{"counter that is read again", abi.PulseTx, answer(data, asm.LoadMem(asm.R3, asm.R4, 0, asm.Word), jump(asm.JNE.Imm(asm.R3, 0, ""), -2)),
			checker.ErrEndless, 2, ""},
		{"sum that ends nothing", abi.PulseTx, answer(data, asm.Mov.Imm(asm.R5, 0), asm.Add.Imm(asm.R5, 1),
			asm.LoadMem(asm.R3, asm.R4, 0, asm.Word), jump(asm.JNE.Imm(asm.R3, 0, ""), -3)), checker.ErrEndless, 3, ""},
		{"wrong direction", abi.FilterTx, answer(asm.Mov.Imm(asm.R2, 0), asm.Sub.Imm(asm.R2, 1), jump(asm.JSLT.Imm(asm.R2, 10, ""), -2)),
			checker.ErrBudget, 2, ""},
		{"bounded by a comparison", abi.PulseTx, asm.Instructions{
			random, asm.Mov.Imm(asm.R0, 0), asm.JGT.Imm(asm.R2, 50, "end"),
			asm.JGE.Reg(asm.R0, asm.R2, "end").WithSymbol("loop"), asm.Add.Imm(asm.R0, 1), asm.Ja.Label("loop"),
			asm.Return().WithSymbol("end"),
		}, nil, 0, ""},
	})
}

// Where paths meet again and know no more than others before, they are not followed
// twice: the work grows with the program, not with the number of paths.
func TestPathsThatMeetAgain(t *testing.T) {
	code := asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R0, 0)}
	for i := range 31 {
		code = append(code,
			jump(asm.JSet.Imm(asm.R2, 1<<i, ""), 1),
			asm.Add.Imm(asm.R3, int32(i)), // decides nothing
		)
	}
	report := must.Get(checker.Check(link(t, abi.PulseTx, append(code, asm.Return()))))(t)
	if report.WorstCase != len(code)+1 || report.Explored > 20*len(code) {
		t.Errorf("%+v of %d instructions", report, len(code)+1)
	}
}

// The longest path counts, wherever paths join.
func TestWorstCaseIsTheLongestPath(t *testing.T) {
	for _, long := range []string{"first", "second"} {
		code := asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), jump(asm.JEq.Imm(asm.R2, 0, ""), 3)}
		filler := asm.Mov.Imm(asm.R3, 0)
		if long == "first" {
			code = append(code, filler, filler, jump(asm.Ja.Label(""), 1), filler) // 3 or 1
		} else {
			code[1].Offset = 2
			code = append(code, filler, jump(asm.Ja.Label(""), 3), filler, filler, filler) // 2 or 3
		}
		report := must.Get(checker.Check(link(t, abi.PulseTx, append(code, exitWith(0)...))))(t)
		should.Be(t, report.WorstCase, 2+3+2, "%s side", long)
	}
}

// The work of a check is bounded: the first of these programs has 2^25 paths, each with
// its own number in R3, which decides where an access ends up. In the second one R3 is
// not known on any of them, so they are all alike.
func TestTooComplex(t *testing.T) {
	program := func(first asm.Instruction, op asm.ALUOp) asm.Instructions {
		code := asm.Instructions{first, asm.LoadMem(asm.R2, asm.R1, abi.FrameQueue, asm.Word)}
		for i := range 25 {
			code = append(code, jump(asm.JSet.Imm(asm.R2, 1<<i, ""), 1), op.Imm(asm.R3, 1<<i))
		}
		return append(code, asm.And.Imm(asm.R3, 7), asm.LoadMapValue(asm.R4, globals, 0), asm.Add.Reg(asm.R4, asm.R3),
			asm.LoadMem(asm.R0, asm.R4, 0, asm.Byte), asm.Return())
	}
	_, err := checker.Check(link(t, abi.FilterRx, program(asm.Mov.Imm(asm.R3, 0), asm.Add)))
	should.Hold(t, errors.Is(err, checker.ErrComplex), "2^25 different paths: %v", err)
	alike := program(asm.LoadMem(asm.R3, asm.R1, abi.FrameQueue, asm.Word), asm.Xor)
	report, err := checker.Check(link(t, abi.FilterRx, alike))
	should.Hold(t, err == nil && report.Explored <= 1000, "2^25 paths that are alike: %+v, %v", report, err)
}

func TestReport(t *testing.T) {
	code := answer(asm.LoadImm(asm.R2, 1, asm.DWord), asm.StoreMem(asm.R10, -24, asm.R2, asm.Byte))
	report := must.Get(checker.Check(link(t, abi.FilterRx, code)))(t)
	want := checker.Report{Instructions: 5, WorstCase: 4, Stack: 24, Explored: 4}
	should.Be(t, report, want)
	again, err := checker.Check(link(t, abi.FilterRx, code))
	should.Give(again, err)(t, report, "a second time")
}

func TestRefusalSaysWhere(t *testing.T) {
	code := asm.Instructions{
		asm.LoadImm(asm.R3, 1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSource(asm.Comment("acl.c:12: return r2;")),
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.Return(),
	}
	_, err := checker.Check(link(t, abi.FilterRx, code))
	want := "filter/rx: instruction 3 (MovReg dst: r0 src: r2): acl.c:12: return r2;: " +
		"read of what was never written: r2 holds nothing on some path to here"
	should.Hold(t, err != nil && err.Error() == want, "%v\nwant\n%s", err, want)
	_, err = checker.Check(abi.Program{Hook: 77})
	want = fmt.Sprintf("hook 77: unknown hook: there are %d hooks", abi.Hooks)
	should.Hold(t, err != nil && err.Error() == want, "%v, want %s", err, want)
}

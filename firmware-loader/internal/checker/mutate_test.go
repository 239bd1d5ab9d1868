package checker_test

import (
	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"
)

// mutate changes a program in one to three places.
func mutate(t *rapid.T, steps []step) []step {
	g := &generator{T: t}
	for range g.number("mutations", 1, 3) {
		steps = g.mutation(steps)
	}
	return steps
}

func (g *generator) mutation(steps []step) []step {
	if len(steps) < 2 {
		return steps
	}
	at := g.number("at", 0, len(steps)-1)
	changed := append([]step{}, steps...)
	ins := &changed[at].ins
	switch g.number("mutation", 0, 11) {
	case 0:
		return remove(steps, at)
	case 1:
		return insert(steps, at, steps[g.number("from", 0, len(steps)-1)])
	case 2:
		ins.Dst = asm.Register(g.number("dst", 0, 10))
	case 3:
		ins.Src = asm.Register(g.number("src", 0, 10))
	case 4, 5:
		g.nudge(ins)
	case 6:
		if isJump(*ins) {
			changed[at].target = g.number("target", 0, len(steps)-1)
		}
	case 7:
		other := g.number("other", 0, len(steps)-1)
		changed[at].ins, changed[other].ins = changed[other].ins, changed[at].ins
		changed[at].target, changed[other].target = changed[other].target, changed[at].target
	case 8:
		g.otherOperation(ins)
	case 9:
		ins.Offset += int16(g.number("offset", -8, 8))
	case 10:
		g.steps = nil
		g.noise()
		return insert(steps, at, g.steps[0])
	case 11:
		// The same operation on the other width.
		if ins.OpCode.Class().IsALU() {
			ins.OpCode ^= asm.OpCode(asm.ALUClass ^ asm.ALU64Class)
		} else if ins.OpCode.Class().IsJump() && isJump(*ins) && ins.OpCode.JumpOp() != asm.Ja {
			ins.OpCode ^= asm.OpCode(asm.JumpClass ^ asm.Jump32Class)
		}
	}
	return changed
}

// nudge changes a constant a little.
func (g *generator) nudge(ins *asm.Instruction) {
	if ins.OpCode.Class() == asm.StXClass || ins.OpCode.Class() == asm.LdXClass {
		ins.Offset += int16(g.number("offset", -2, 2))
		return
	}
	if ins.IsLoadFromMap() {
		ins.Constant = int64(g.number("map", 0, 4))
		return
	}
	ins.Constant = int64(int32(ins.Constant) + int32(g.number("constant", -2, 2)))
}

// otherOperation exchanges the operation for another one of the same class.
func (g *generator) otherOperation(ins *asm.Instruction) {
	op := ins.OpCode
	switch class := op.Class(); {
	case class.IsALU() && op.ALUOp() != asm.Swap:
		ins.OpCode = op.SetALUOp(pick(g, operations...))
	case isJump(*ins) && op.JumpOp() != asm.Ja:
		ins.OpCode = op.SetJumpOp(pick(g, comparisons...))
	case class.IsLoad() && op.Mode() == asm.MemMode, class.IsStore() && op.Mode() == asm.MemMode:
		ins.OpCode = op.SetSize(pick(g, asm.Byte, asm.Half, asm.Word, asm.DWord))
	}
}

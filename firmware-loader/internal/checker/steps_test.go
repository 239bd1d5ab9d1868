package checker_test

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// step is an instruction and, of a jump, the index of the step that it leads to.
// Steps can be added and taken away without losing the targets.
type step struct {
	ins    asm.Instruction
	target int
}

func isJump(ins asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return ins.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit && op != asm.InvalidJumpOp
}

func isLongJump(ins asm.Instruction) bool {
	return ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja
}

// linkSteps sets the offsets of jumps.
func linkSteps(hook abi.Hook, maps []abi.Map, steps []step) abi.Program {
	slots := make([]int, len(steps)+1)
	for i := range steps {
		slots[i+1] = slots[i] + int(steps[i].ins.Width())
	}
	p := abi.Program{Hook: hook, Maps: maps}
	for i, s := range steps {
		if isJump(s.ins) {
			off := slots[min(max(s.target, 0), len(steps))] - slots[i] - 1
			if isLongJump(s.ins) {
				s.ins.Constant = int64(off)
			} else {
				s.ins.Offset = int16(off)
			}
		}
		p.Instructions = append(p.Instructions, s.ins)
	}
	return p
}

// toSteps is the inverse of linkSteps.
func toSteps(code asm.Instructions) []step {
	starts := map[int]int{}
	slot := 0
	for i := range code {
		starts[slot] = i
		slot += int(code[i].Width())
	}
	steps := make([]step, len(code))
	slot = 0
	for i, ins := range code {
		ins.Metadata = asm.Metadata{}
		steps[i].ins = ins
		if isJump(ins) {
			off := int(ins.Offset)
			if isLongJump(ins) {
				off = int(ins.Constant)
			}
			steps[i].target = starts[slot+1+off]
		}
		slot += int(ins.Width())
	}
	return steps
}

// remove takes a step away. Jumps to it lead to what followed it.
func remove(steps []step, at int) []step {
	out := append(append([]step{}, steps[:at]...), steps[at+1:]...)
	for i := range out {
		if out[i].target > at {
			out[i].target--
		}
	}
	return out
}

// insert puts a step before another. Jumps to that lead to the new one.
func insert(steps []step, at int, s step) []step {
	out := append(append(append([]step{}, steps[:at]...), s), steps[at:]...)
	for i := range out {
		if i != at && out[i].target > at {
			out[i].target++
		}
	}
	return out
}

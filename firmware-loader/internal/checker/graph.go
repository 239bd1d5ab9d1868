package checker

import (
	"github.com/cilium/ebpf/asm"
)

// linkJumps sets the targets of jumps. On refusal it also returns the index of the
// jump.
func linkJumps(code []Instruction, from asm.Instructions) (at int, r *Refusal) {
	slotOf := make([]int, len(code))
	slots := 0
	for i := range from {
		slotOf[i] = slots
		slots += int(from[i].Width())
	}
	starts := make([]int, slots) // index+1 of the instruction that starts there
	for i, s := range slotOf {
		starts[s] = i + 1
	}
	for i := range code {
		ins := &code[i]
		if ins.Form != FormGoto && ins.Form != FormBranch {
			continue
		}
		if label := from[i].Reference(); label != "" && ins.Offset == -1 {
			return i, refuse(ErrJump, "the jump to %q was not linked", label)
		}
		to := slotOf[i] + 1 + ins.Offset
		switch {
		case to < 0 || to >= slots:
			return i, refuse(ErrJump, "to slot %d of %d", to, slots)
		case starts[to] == 0:
			return i, refuse(ErrJump, "to slot %d, inside a 64-bit load", to)
		}
		ins.Target = starts[to] - 1
	}
	return 0, nil
}

// next returns the instructions that may follow code[i]; n counts them.
func next(code []Instruction, i int) (successors [2]int, n int) {
	switch code[i].Form {
	case FormExit:
		return successors, 0
	case FormGoto:
		return [2]int{code[i].Target}, 1
	case FormBranch:
		return [2]int{i + 1, code[i].Target}, 2
	}
	return [2]int{i + 1}, 1
}

// leadingTo returns, for each instruction, those that may come before it.
func leadingTo(code []Instruction) [][]int {
	leading := make([][]int, len(code))
	for i := range code {
		successors, n := next(code, i)
		for _, to := range successors[:n] {
			leading[to] = append(leading[to], i)
		}
	}
	return leading
}

// walk checks that every instruction can be reached, and that none has the end of
// the program behind it. It returns where paths join. On refusal it returns the
// index of the instruction.
func walk(code []Instruction) (joins []bool, at int, r *Refusal) {
	joins = make([]bool, len(code))
	reached := make([]bool, len(code))
	reached[0] = true
	work := []int{0}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		successors, n := next(code, i)
		for _, to := range successors[:n] {
			if to >= len(code) {
				return nil, i, refuse(ErrNoExit, "the program ends after this instruction")
			}
			if code[i].Form == FormGoto || code[i].Form == FormBranch && to == code[i].Target {
				joins[to] = true
			}
			if !reached[to] {
				reached[to] = true
				work = append(work, to)
			}
		}
	}
	for i := range reached {
		if !reached[i] {
			return nil, i, refuse(ErrUnreachable, "no path leads here")
		}
	}
	return joins, 0, nil
}

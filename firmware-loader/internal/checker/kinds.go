package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// kinds is a set of what a register may hold, as far as findNeeds has to know it.
type kinds uint8

const (
	mayNumber kinds = 1 << iota
	mayContext
	mayStack
	mayElse // any other pointer
)

const mayPointer = mayContext | mayStack | mayElse

// findKinds returns, for each instruction, what each register may hold before it on
// some path: a superset of what the explorer meets, found without following paths.
func findKinds(hook abi.Hook, code []Instruction) [][registers]kinds {
	before := make([][registers]kinds, len(code))
	var spilled kinds // of pointers that may be in the stack, all slots together
	for {
		known := spilled
		before[0] = [registers]kinds{1: mayContext, frame: mayStack}
		work := make([]int, 0, len(code))
		for i := range code {
			work = append(work, i)
		}
		for len(work) > 0 {
			i := work[0]
			work = work[1:]
			after := before[i]
			spilled |= flow(&after, hook, &code[i], spilled)
			successors, n := next(code, i)
			for _, to := range successors[:n] {
				if merge(&before[to], &after) {
					work = append(work, to)
				}
			}
		}
		if spilled == known {
			return before
		}
	}
}

func merge(into, from *[registers]kinds) (changed bool) {
	for r := range into {
		if from[r]&^into[r] != 0 {
			into[r] |= from[r]
			changed = true
		}
	}
	return changed
}

// flow changes k as the instruction does, and returns what it may spill.
func flow(k *[registers]kinds, hook abi.Hook, ins *Instruction, spilled kinds) kinds {
	switch ins.Form {
	case FormALU:
		k[ins.Dst] = flowALU(k, ins)
	case FormSwap, FormConst:
		k[ins.Dst] = mayNumber
	case FormMap, FormMapValue:
		k[ins.Dst] = mayElse
	case FormLoad:
		base := k[ins.Src]
		k[ins.Dst] = mayNumber
		if base&mayStack != 0 && ins.Size == 8 {
			k[ins.Dst] |= spilled
		}
		if base&mayContext != 0 && !hook.IsPulse() {
			k[ins.Dst] |= mayElse
		}
	case FormStore:
		if k[ins.Dst]&mayStack != 0 {
			return k[ins.Src] & mayPointer
		}
	case FormAtomic:
		if register, ok := ins.fetches(); ok {
			k[register] = mayNumber
		}
	case FormCall:
		for r := 1; r <= 5; r++ {
			k[r] = 0
		}
		k[0] = mayNumber
		if abi.Helper(ins.Constant) == abi.HelperMapLookup {
			k[0] |= mayElse
		}
	}
	return 0
}

func flowALU(k *[registers]kinds, ins *Instruction) kinds {
	source := mayNumber
	if ins.Register {
		source = k[ins.Src]
	}
	switch {
	case !ins.Wide:
		return mayNumber
	case ins.ALU == asm.Mov:
		return source
	case ins.ALU == asm.Add || ins.ALU == asm.Sub:
		return k[ins.Dst] | source
	}
	return mayNumber
}

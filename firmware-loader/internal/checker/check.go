package checker

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Limits of the checker's own work. They are ours: many times what the programs
// that we know need, and a fraction of a second.
const (
	// MaxExplored is the number of instructions that are followed, over all paths.
	MaxExplored = 1 << 18
	// MaxStates is the number of states that are kept to compare with, of at most 2 KiB each.
	MaxStates = 1 << 15
	// maxCompared limits the comparisons of registers and stack slots.
	maxCompared = 1 << 22
)

// Report has the findings on an accepted program.
type Report struct {
	Instructions int // size of the program, in 8-byte slots
	// WorstCase is the number of instructions that a run takes at most. A helper call
	// counts as one instruction, and so does a 64-bit load of a constant,
	// which takes two slots. No run takes more; where conditions that the
	// checker does not relate exclude each other, all runs may take fewer.
	WorstCase int
	Stack     int // bytes used of the stack, at most
	Explored  int // instructions that the checker followed, over all paths
}

// Check proves that p is safe to run for its hook, or says why not: the error is
// always a *Refusal. The work is bounded, whatever p holds.
func Check(p abi.Program) (Report, error) {
	report, refusal := check(&p)
	if refusal != nil {
		refusal.Hook = p.Hook
		return Report{}, refusal
	}
	return report, nil
}

func check(p *abi.Program) (Report, *Refusal) {
	if p.Hook >= abi.Hooks {
		return Report{}, refuse(ErrHook, "there are %d hooks", abi.Hooks)
	}
	if r := checkMaps(p.Maps); r != nil {
		return Report{}, r
	}
	code, r := decodeAll(p)
	if r != nil {
		return Report{}, r
	}
	joins, at, r := walk(code)
	if r != nil {
		return Report{}, r.locate(p, at)
	}
	e := newExplorer(p, code, joins)
	if r := e.explore(); r != nil {
		return Report{}, r.locate(p, e.at)
	}
	return Report{
		Instructions: int(p.Instructions.Size() / slotSize),
		WorstCase:    e.worst,
		Stack:        e.stack,
		Explored:     e.explored,
	}, nil
}

// Decode returns the instructions of a program, with jumps to where instructions
// start: the part of Check that looks at encodings. The error is always a *Refusal.
func Decode(p abi.Program) ([]Instruction, error) {
	code, refusal := decodeAll(&p)
	if refusal != nil {
		refusal.Hook = p.Hook
		return nil, refusal
	}
	return code, nil
}

func decodeAll(p *abi.Program) ([]Instruction, *Refusal) {
	if n := len(p.Instructions); n == 0 || n > abi.MaxInstructions {
		return nil, refuse(ErrSize, "%d instructions; 1 to %d are allowed", n, abi.MaxInstructions)
	}
	slots := int(p.Instructions.Size() / slotSize)
	if slots > abi.MaxInstructions {
		return nil, refuse(ErrSize, "%d slots of 8 bytes; at most %d are allowed", slots, abi.MaxInstructions)
	}
	code := make([]Instruction, len(p.Instructions))
	for i := range code {
		if r := decode(&code[i], &p.Instructions[i], p.Maps); r != nil {
			return nil, r.locate(p, i)
		}
	}
	if at, r := linkJumps(code, p.Instructions); r != nil {
		return nil, r.locate(p, at)
	}
	return code, nil
}

// checkMaps refuses maps outside the limits of package abi: the proof rests on
// their sizes.
func checkMaps(maps []abi.Map) *Refusal {
	if len(maps) > abi.MaxMaps {
		return refuse(ErrMap, "%d maps; at most %d are allowed", len(maps), abi.MaxMaps)
	}
	for _, m := range maps {
		if len(m.Name) > abi.MaxNameLength { // too long to be repeated in an error
			return refuse(ErrMap, "a name of %d bytes; 1 to %d are allowed", len(m.Name), abi.MaxNameLength)
		}
		if err := flat.CheckMap(m); err != nil {
			return refuse(ErrMap, "%v", err)
		}
	}
	return nil
}

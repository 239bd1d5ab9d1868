package checker

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// explorer follows the paths through a program, depth first.
type explorer struct {
	hook  abi.Hook
	maps  []abi.Map
	code  []Instruction
	joins []bool // where jumps lead
	needs *analysis
	// changes is the analysis that takes all conditions for decided: where it
	// finds no difference between two states, none will show.
	changes *analysis

	seen    []seen // states at joins
	loads   []kind // what each load was last seen to load from
	pending []path // branches to follow later
	cover   cover
	lastID  uint32

	at       int // the instruction that is looked at
	explored int
	states   int
	stack    int // bytes
	worst    int
}

// node is a state that was met at a join, with what is known of the paths that lead
// on from it.
type node struct {
	parent *node
	state  view
	steps  int // instructions from the parent to here
	open   int // paths from here that were not followed to their end yet
	worst  int // instructions of the longest path from here that was
}

// path is a path up to an instruction that comes next.
type path struct {
	state state
	at    int
	last  *node
	since int // instructions since last
	total int // instructions since the entry
}

func newExplorer(p *abi.Program, code []Instruction, joins []bool) *explorer {
	held, leading := findKinds(p.Hook, code), leadingTo(code)
	e := &explorer{
		hook: p.Hook, maps: p.Maps, code: code, joins: joins,
		needs: newAnalysis(code, leading, held), changes: newAnalysis(code, leading, held),
		seen: make([]seen, len(code)), loads: make([]kind, len(code)),
	}
	for i := range code {
		e.changes.decide(i)
	}
	return e
}

func (e *explorer) newID() uint32 {
	e.lastID++
	return e.lastID
}

// explore follows all paths. On refusal e.at is the instruction.
func (e *explorer) explore() *Refusal {
	root := &node{open: 1}
	e.pending = append(e.pending, path{state: entryState(), last: root})
	var p path
	for len(e.pending) > 0 {
		top := len(e.pending) - 1
		p = e.pending[top]
		e.pending = e.pending[:top]
		if r := e.follow(&p); r != nil {
			return r
		}
	}
	e.worst = root.worst
	return nil
}

// follow follows one path to its end and leaves the branches that it passes for
// later.
func (e *explorer) follow(p *path) *Refusal {
	for {
		e.at = p.at
		if e.joins[p.at] {
			known, r := e.join(p)
			if r != nil {
				return r
			}
			if known {
				return nil
			}
		}
		if e.explored++; e.explored > MaxExplored {
			return refuse(ErrComplex, "more than %d instructions would have to be followed", MaxExplored)
		}
		p.since++
		p.total++
		if p.total > e.hook.Budget() {
			return e.overBudget(p.total)
		}
		ins := &e.code[p.at]
		p.at++
		switch ins.Form {
		case FormExit:
			if r := exit(&p.state); r != nil {
				return r
			}
			finish(p.last, p.since)
			return nil
		case FormGoto:
			p.at = ins.Target
		case FormBranch:
			if r := e.fork(p, ins); r != nil {
				return r
			}
		default:
			if r := e.step(&p.state, ins); r != nil {
				return r
			}
		}
	}
}

// fork goes on where the condition of a jump does not hold, and leaves the other
// side for later, unless only one is possible.
func (e *explorer) fork(p *path, ins *Instruction) *Refusal {
	top := len(e.pending)
	e.pending = append(e.pending, path{at: ins.Target, last: p.last, since: p.since, total: p.total})
	verdict, r := e.branch(&p.state, ins, &e.pending[top].state)
	if verdict == scalar.Maybe {
		p.last.open++
		return r
	}
	e.pending = e.pending[:top]
	if verdict == scalar.Always {
		p.at = ins.Target
	}
	return r
}

// step checks an instruction that does not jump, and changes the state as it does.
func (e *explorer) step(s *state, ins *Instruction) *Refusal {
	switch ins.Form {
	case FormALU:
		return e.alu(s, ins)
	case FormSwap:
		return swap(s, ins)
	case FormLoad:
		return e.load(s, ins)
	case FormStore:
		if r := readable(s, ins.Src); r != nil {
			return r
		}
		return e.store(s, ins, &s.regs[ins.Src])
	case FormStoreImm:
		value := number(scalar.Const(uint64(ins.Constant)))
		return e.store(s, ins, &value)
	case FormAtomic:
		return e.atomic(s, ins)
	case FormCall:
		return e.call(s, ins)
	case FormConst:
		s.regs[ins.Dst] = number(scalar.Const(uint64(ins.Constant)))
	case FormMap:
		s.regs[ins.Dst] = register{kind: kindMap, mapIndex: uint8(ins.Map)}
	case FormMapValue:
		s.regs[ins.Dst] = register{kind: kindValue, mapIndex: uint8(ins.Map), off: int32(ins.MapOffset)}
	}
	return nil
}

func exit(s *state) *Refusal {
	if r := readable(s, 0); r != nil {
		return r
	}
	if s.regs[0].isPointer() {
		return refuse(ErrLeak, "the answer is %v", &s.regs[0])
	}
	return nil
}

// join compares a path that arrives at a join with those that were there before. It
// reports whether nothing new can happen from here on. If something can, it keeps the
// state for others.
func (e *explorer) join(p *path) (known bool, r *Refusal) {
	needs := e.needs.at(p.at)
	e.cover.work += len(e.seen[p.at].groups)
	for nodes := range e.seen[p.at].candidates(p.state.view()) {
		for i := len(nodes) - 1; i >= 0 && !known && r == nil; i-- {
			known, r = e.arrive(p, nodes[i], needs)
		}
		if known || r != nil {
			return known, r
		}
	}
	if e.states++; e.states > MaxStates {
		return false, refuse(ErrComplex, "more than %d states would have to be kept", MaxStates)
	}
	n := &node{parent: p.last, state: p.state.keep(), steps: p.since, open: 1}
	e.seen[p.at].add(n, needs)
	p.last, p.since = n, 0
	return false, nil
}

// arrive compares a path with one that stood at the same place before, and ends it if
// nothing new can happen.
func (e *explorer) arrive(p *path, n *node, needs *needs) (known bool, r *Refusal) {
	switch {
	case e.cover.work > maxCompared:
		return false, refuse(ErrComplex, "more than %d registers would have to be compared", maxCompared)
	case !e.cover.covers(n.state, p.state.view(), needs):
		return false, nil
	// As paths are followed depth first, what leads on from n was either followed
	// to all its ends, or this path comes from n.
	case n.open > 0 && e.unchanged(p, n):
		return false, refuse(ErrEndless, "a path comes back here, and nothing has changed that could end it")
	case n.open > 0:
		return false, nil
	case p.total+n.worst > e.hook.Budget():
		return false, e.overBudget(p.total + n.worst)
	}
	finish(p.last, p.since+n.worst)
	return true, nil
}

// unchanged reports whether a path that comes back to where n stood knows the same as
// then.
func (e *explorer) unchanged(p *path, n *node) bool {
	all := e.changes.at(p.at)
	return e.cover.covers(n.state, p.state.view(), all) && e.cover.covers(p.state.view(), n.state, all)
}

// finish enters the end of a path, so many instructions from n.
func finish(n *node, length int) {
	for n != nil {
		n.worst = max(n.worst, length)
		if n.open--; n.open > 0 {
			return
		}
		length = n.steps + n.worst
		n = n.parent
	}
}

func (e *explorer) overBudget(instructions int) *Refusal {
	return refuse(ErrBudget, "a path of %d instructions or more; %v has %d", instructions, e.hook, e.hook.Budget())
}

package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

// needs says what matters of a state before an instruction: what may be read later
// before it is written again, and of what the value decides which way a jump goes or
// where an access ends up. Two states that differ elsewhere only have the same
// future, as far as it is checked. Registers and stack slots are bit sets.
type needs struct {
	live, exact           uint16
	liveSlots, exactSlots uint64
}

func (n *needs) merge(o needs) (changed bool) {
	before := *n
	n.live |= o.live
	n.exact |= o.exact
	n.liveSlots |= o.liveSlots
	n.exactSlots |= o.exactSlots
	return *n != before
}

// write says that the register is written: its value before does not matter.
func (n *needs) write(register uint8) {
	n.live &^= 1 << register
	n.exact &^= 1 << register
}

func (n *needs) read(set uint16, exact bool) {
	n.live |= set
	if exact {
		n.exact |= set
	}
}

func (n *needs) readSlots(set uint64, exact bool) {
	n.liveSlots |= set
	if exact {
		n.exactSlots |= set
	}
}

func (n *needs) isExact(register uint8) bool { return n.exact&(1<<register) != 0 }

// analysis finds the needs of a program. They grow: a condition counts as a reader of
// its operands' values only from when a path was seen on which they decide it. Until
// then both sides were followed, and whatever the values are, nothing else can happen.
type analysis struct {
	code    []instruction
	before  []needs
	held    [][registers]kinds
	leading [][]int // see leadingTo
	decided []bool  // of conditional jumps
	work    []int   // instructions to look at again
	waits   []bool  // those in work
}

func newAnalysis(code []instruction, leading [][]int, held [][registers]kinds) *analysis {
	a := &analysis{
		code: code, leading: leading, held: held,
		before: make([]needs, len(code)), decided: make([]bool, len(code)), waits: make([]bool, len(code)),
	}
	for i := range code {
		a.revisit(i)
	}
	return a
}

func (a *analysis) revisit(i int) {
	if !a.waits[i] {
		a.waits[i] = true
		a.work = append(a.work, i)
	}
}

// decide says that values decide the conditional jump code[i], or that more is learned
// from it than of its operands.
func (a *analysis) decide(i int) {
	if !a.decided[i] {
		a.decided[i] = true
		a.revisit(i)
	}
}

// at returns what matters before code[i]. As needs only grow, all calls together take
// no longer than the bits of all needs and the instructions before each allow.
func (a *analysis) at(i int) *needs {
	for len(a.work) > 0 {
		last := len(a.work) - 1
		at := a.work[last]
		a.work = a.work[:last]
		a.waits[at] = false
		if a.update(at) {
			for _, before := range a.leading[at] {
				a.revisit(before)
			}
		}
	}
	return &a.before[i]
}

func (a *analysis) update(i int) (changed bool) {
	var n needs
	successors, count := next(a.code, i)
	for _, to := range successors[:count] {
		n.merge(a.before[to])
	}
	if ins := &a.code[i]; ins.form == formBranch {
		n.backBranch(ins, a.decided[i])
	} else {
		n.back(ins, &a.held[i])
	}
	return a.before[i].merge(n)
}

// back turns what matters after an instruction into what matters before it.
func (n *needs) back(ins *instruction, held *[registers]kinds) {
	switch ins.form {
	case formALU, formSwap:
		n.backALU(ins, held)
	case formConst, formMap, formMapValue:
		n.write(ins.dst)
	case formLoad:
		exact := n.isExact(ins.dst)
		n.write(ins.dst)
		n.read(1<<ins.src, true)
		slots, _ := touched(ins, ins.src, held)
		n.readSlots(slots, exact)
	case formStore, formStoreImm:
		slots, whole := touched(ins, ins.dst, held)
		exact := n.exactSlots&slots != 0
		if whole {
			n.liveSlots &^= slots
			n.exactSlots &^= slots
		}
		n.read(1<<ins.dst, true)
		n.read(ins.operand2(), exact)
	case formAtomic:
		// What an atomic operation fetches is known by its size only.
		if register, ok := ins.fetches(); ok {
			n.write(register)
		}
		slots, _ := touched(ins, ins.dst, held)
		n.readSlots(slots, false)
		n.read(1<<ins.dst, true)
		n.read(1<<ins.src, n.exactSlots&slots != 0)
		if ins.atomic == asm.CmpXchg {
			n.read(1, n.exactSlots&slots != 0)
		}
	case formCall:
		n.backCall(ins, held)
	case formExit:
		n.read(1, false)
	}
}

// backBranch: what is learned of one operand from a comparison that does not decide
// depends on the other.
func (n *needs) backBranch(ins *instruction, decided bool) {
	operands := 1<<ins.dst | ins.operand2()
	exact := decided || ins.register && n.exact&operands != 0
	n.read(operands, exact)
}

func (n *needs) backALU(ins *instruction, held *[registers]kinds) {
	exact := n.isExact(ins.dst)
	n.write(ins.dst)
	operands := ins.operand2()
	if ins.alu != asm.Mov && extensions[ins.alu] == 0 {
		operands |= 1 << ins.dst
	}
	// Arithmetic on an address is checked where it is done.
	if ins.form == formALU && ins.wide && (ins.alu == asm.Add || ins.alu == asm.Sub) {
		exact = exact || held[ins.dst]&mayPointer != 0 || ins.register && held[ins.src]&mayPointer != 0
	}
	n.read(operands, exact)
}

func (n *needs) backCall(ins *instruction, held *[registers]kinds) {
	for r := range uint8(6) {
		n.write(r)
	}
	for i, want := range helpers[abi.Helper(ins.imm)].arguments {
		register := uint8(i + 1)
		n.read(1<<register, want != argumentNumber)
		if want != argumentNumber && held[register]&mayStack != 0 {
			n.readSlots(^uint64(0), false)
		}
	}
}

// touched returns the stack slots that an access may touch, and whether it is known
// to cover all of them.
func touched(ins *instruction, base uint8, held *[registers]kinds) (slots uint64, whole bool) {
	switch {
	case base == frame && ins.off < 0 && ins.off >= -abi.StackSize && ins.off+ins.size <= 0:
		first, last := slotOf(ins.off), slotOf(ins.off+ins.size-1)
		return 1<<first | 1<<last, ins.size == 8 && first == last
	case held[base]&mayStack != 0:
		return ^uint64(0), false
	}
	return 0, false
}

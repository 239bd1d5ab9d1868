package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
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
	code    []Instruction
	before  []needs
	held    [][registers]kinds
	leading [][]int // see leadingTo
	decided []bool  // of conditional jumps
	work    []int   // instructions to look at again
	waits   []bool  // those in work
}

func newAnalysis(code []Instruction, leading [][]int, held [][registers]kinds) *analysis {
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
	if ins := &a.code[i]; ins.Form == FormBranch {
		n.backBranch(ins, a.decided[i])
	} else {
		n.back(ins, &a.held[i])
	}
	return a.before[i].merge(n)
}

// back turns what matters after an instruction into what matters before it.
func (n *needs) back(ins *Instruction, held *[registers]kinds) {
	switch ins.Form {
	case FormALU, FormSwap:
		n.backALU(ins, held)
	case FormConst, FormMap, FormMapValue:
		n.write(ins.Dst)
	case FormLoad:
		exact := n.isExact(ins.Dst)
		n.write(ins.Dst)
		n.read(1<<ins.Src, true)
		slots, _ := touched(ins, ins.Src, held)
		n.readSlots(slots, exact)
	case FormStore, FormStoreImm:
		slots, whole := touched(ins, ins.Dst, held)
		exact := n.exactSlots&slots != 0
		if whole {
			n.liveSlots &^= slots
			n.exactSlots &^= slots
		}
		n.read(1<<ins.Dst, true)
		n.read(ins.operand2(), exact)
	case FormAtomic:
		// What an atomic operation fetches is known by its size only.
		if register, ok := ins.fetches(); ok {
			n.write(register)
		}
		slots, _ := touched(ins, ins.Dst, held)
		n.readSlots(slots, false)
		n.read(1<<ins.Dst, true)
		n.read(1<<ins.Src, n.exactSlots&slots != 0)
		if ins.Atomic == asm.CmpXchg {
			n.read(1, n.exactSlots&slots != 0)
		}
	case FormCall:
		n.backCall(ins, held)
	case FormExit:
		n.read(1, false)
	}
}

// backBranch: what is learned of one operand from a comparison that does not decide
// depends on the other.
func (n *needs) backBranch(ins *Instruction, decided bool) {
	operands := 1<<ins.Dst | ins.operand2()
	exact := decided || ins.Register && n.exact&operands != 0
	n.read(operands, exact)
}

func (n *needs) backALU(ins *Instruction, held *[registers]kinds) {
	exact := n.isExact(ins.Dst)
	n.write(ins.Dst)
	operands := ins.operand2()
	if ins.ALU != asm.Mov && extensions[ins.ALU] == 0 {
		operands |= 1 << ins.Dst
	}
	// Arithmetic on an address is checked where it is done.
	if ins.Form == FormALU && ins.Wide && (ins.ALU == asm.Add || ins.ALU == asm.Sub) {
		exact = exact || held[ins.Dst]&mayPointer != 0 || ins.Register && held[ins.Src]&mayPointer != 0
	}
	n.read(operands, exact)
}

func (n *needs) backCall(ins *Instruction, held *[registers]kinds) {
	for r := range uint8(6) {
		n.write(r)
	}
	for i, want := range helpers[abi.Helper(ins.Constant)].arguments {
		register := uint8(i + 1)
		n.read(1<<register, want != argumentNumber)
		if want != argumentNumber && held[register]&mayStack != 0 {
			n.readSlots(^uint64(0), false)
		}
	}
}

// touched returns the stack slots that an access may touch, and whether it is known
// to cover all of them.
func touched(ins *Instruction, base uint8, held *[registers]kinds) (slots uint64, whole bool) {
	switch {
	case base == frame && ins.Offset < 0 && ins.Offset >= -abi.StackSize && ins.Offset+ins.Size <= 0:
		first, last := slotOf(ins.Offset), slotOf(ins.Offset+ins.Size-1)
		return 1<<first | 1<<last, ins.Size == 8 && first == last
	case held[base]&mayStack != 0:
		return ^uint64(0), false
	}
	return 0, false
}

package checker_test

import (
	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// thing is what the generator believes a register to hold.
type thing uint8

const (
	nothing thing = iota
	aNumber       // any
	aSmall        // number, bounded
	theContext
	theStack
	aMaybe // answer of a lookup
	aValue // of a map
	aPacket
	theEnd
	things
)

// generator makes programs that look as if somebody had meant something by them.
// What it believes is a guess: it makes mistakes, and makes some on purpose.
type generator struct {
	*rapid.T
	hook  abi.Hook
	maps  []abi.Map
	steps []step
	belief
	deep int
}

// belief is what the generator believes of registers and stack slots.
type belief struct {
	holds [11]thing // the last one is never looked for: R10
	of    [11]int   // of aMaybe and aValue: which map
	sizes [11]int32 // of aPacket: verified bytes, of aSmall: greatest value
	slots [8]thing  // the topmost slots of the stack
}

func (g *generator) number(label string, lowest, highest int) int {
	return rapid.IntRange(lowest, highest).Draw(g.T, label)
}

// chance is false in the simplest program.
func (g *generator) chance(percent int) bool { return g.number("chance", 1, 100) > 100-percent }

func pick[V any](g *generator, from ...V) V { return from[g.number("pick", 0, len(from)-1)] }

func (g *generator) emit(code ...asm.Instruction) {
	for _, ins := range code {
		ins.Metadata = asm.Metadata{} // labels
		g.steps = append(g.steps, step{ins: ins})
	}
}

func (g *generator) set(r asm.Register, what thing) {
	g.holds[r] = what
	g.sizes[r], g.of[r] = 0, 0
}

// constant draws a number that is more likely than others to be at an edge.
func (g *generator) constant() int32 {
	switch g.number("constant", 0, 5) {
	case 0, 1:
		return int32(g.number("small", 0, 70))
	case 2:
		return int32(1<<g.number("bit", 0, 30) + g.number("beside", -1, 1))
	case 3:
		return int32(g.number("negative", -300, -1))
	case 4:
		return pick[int32](g, 0, 1, -1, 2147483647, -2147483648, 255, 65535, 4095)
	}
	return rapid.Int32().Draw(g.T, "any")
}

// scratch returns a register to write to.
func (g *generator) scratch() asm.Register { return asm.Register(g.number("scratch", 0, 9)) }

// keep returns a register that calls do not change.
func (g *generator) keep() asm.Register { return asm.Register(g.number("keep", 6, 9)) }

// find returns a register that holds one of the things, if there is one.
func (g *generator) find(wanted ...thing) (asm.Register, bool) {
	if g.chance(1) {
		return asm.Register(g.number("wrong", 0, 10)), true
	}
	var found []asm.Register
	for r, what := range g.holds[:asm.R10] {
		for _, w := range wanted {
			if what == w {
				found = append(found, asm.Register(r))
			}
		}
	}
	if len(found) == 0 {
		return 0, false
	}
	return pick(g, found...), true
}

// aNumberIn returns a register that holds a number, which it makes if need be.
func (g *generator) aNumberIn() asm.Register {
	if r, ok := g.find(aNumber, aSmall); ok {
		return r
	}
	r := g.scratch()
	g.makeNumber(r)
	return r
}

func (g *generator) makeNumber(r asm.Register) {
	size := pick(g, asm.Byte, asm.Half, asm.Word, asm.DWord)
	switch from, ok := g.find(aValue); {
	case ok && g.chance(60):
		g.emit(asm.LoadMem(r, from, int16(g.number("offset", 0, 8)), size))
	case g.chance(30):
		g.emit(asm.Mov.Imm(r, g.constant()))
	case g.chance(20):
		g.emit(asm.LoadImm(r, rapid.Int64().Draw(g.T, "wide"), asm.DWord))
	case g.hook.IsPulse() && g.holds[6] == theContext && g.chance(80):
		g.emit(asm.LoadMem(r, asm.R6, int16(4*g.number("field", 0, 5)), asm.Word))
	default:
		load := asm.LoadMem(r, asm.R10, -8, asm.DWord)
		g.emit(asm.LoadMapValue(r, globals, 0), asm.LoadMem(r, r, int16(g.number("offset", 0, 24)), size))
		if g.slots[0] == aNumber {
			g.emit(load)
		}
	}
	g.set(r, aNumber)
}

// program makes a whole program.
func (g *generator) program() abi.Program {
	g.set(1, theContext)
	g.emit(asm.Mov.Reg(asm.R6, asm.R1))
	g.set(6, theContext)
	if !g.hook.IsPulse() && g.chance(80) {
		g.emit(asm.LoadMem(asm.R7, asm.R1, abi.FrameData, asm.Word), asm.LoadMem(asm.R8, asm.R1, abi.FrameDataEnd, asm.Word))
		g.set(7, aPacket)
		g.set(8, theEnd)
	}
	g.block(g.number("length", 1, 12))
	if g.holds[0] != aNumber && g.holds[0] != aSmall && !g.chance(2) {
		g.emit(asm.Mov.Imm(asm.R0, g.constant()))
	}
	g.emit(asm.Return())
	return linkSteps(g.hook, g.maps, g.steps)
}

func (g *generator) block(length int) {
	for range length {
		g.statement()
	}
}

func (g *generator) statement() {
	switch n := g.number("statement", 0, 99); {
	case n < 22:
		g.compute()
	case n < 30:
		g.bound()
	case n < 42:
		g.branch()
	case n < 47:
		g.loop()
	case n < 58:
		g.frame()
	case n < 68:
		g.lookup()
	case n < 76:
		g.value()
	case n < 88:
		g.stack()
	case n < 92:
		g.atomic()
	case n < 97:
		g.pointers()
	default:
		g.noise()
	}
}

// compute does arithmetic on numbers.
func (g *generator) compute() {
	r := g.aNumberIn()
	if g.chance(25) {
		r = g.scratch()
		g.makeNumber(r)
	}
	g.emit(g.arithmetic(r))
	if g.holds[r] == aSmall {
		g.set(r, aNumber)
	}
}

var operations = []asm.ALUOp{
	asm.Add, asm.Sub, asm.Mul, asm.Div, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Mod, asm.Xor,
	asm.Mov, asm.ArSh, asm.SDiv, asm.SMod, asm.Neg, asm.Swap, asm.MovSX8, asm.MovSX16, asm.MovSX32,
}

func (g *generator) arithmetic(r asm.Register) asm.Instruction {
	op := pick(g, operations...)
	narrow := g.chance(40)
	imm := g.constant()
	switch op {
	case asm.Neg:
		imm = 0
	case asm.Swap:
		size := pick(g, asm.Half, asm.Word, asm.DWord)
		return pick(g, asm.HostTo(asm.BE, r, size), asm.HostTo(asm.LE, r, size), asm.BSwap(r, size))
	case asm.LSh, asm.RSh, asm.ArSh:
		if !g.chance(5) {
			imm &= 31
		}
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
		if imm == 0 && !g.chance(5) {
			imm = 3
		}
	}
	source, ok := g.find(aNumber, aSmall)
	extension := op == asm.MovSX8 || op == asm.MovSX16 || op == asm.MovSX32
	switch {
	case ok && op != asm.Neg && (extension || g.chance(40)) && narrow && op != asm.MovSX32:
		return op.Reg32(r, source)
	case ok && op != asm.Neg && (extension || g.chance(40)):
		return op.Reg(r, source)
	case extension:
		return asm.Mov.Reg(r, r)
	case narrow:
		return op.Imm32(r, imm)
	}
	return op.Imm(r, imm)
}

var comparisons = []asm.JumpOp{
	asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet,
}

// comparison returns a conditional jump on a number.
func (g *generator) comparison(r asm.Register) asm.Instruction {
	op := pick(g, comparisons...)
	source, ok := g.find(aNumber, aSmall)
	switch {
	case ok && g.chance(15):
		return op.Reg(r, source, "")
	case ok && g.chance(15):
		return op.Reg32(r, source, "")
	case g.chance(35):
		return op.Imm32(r, g.constant(), "")
	}
	return op.Imm(r, g.constant(), "")
}

// unless emits a jump over what the body emits.
func (g *generator) unless(jump asm.Instruction, body func()) {
	at := len(g.steps)
	g.emit(jump)
	body()
	g.steps[at].target = len(g.steps)
}

// leave ends the program if the jump is not taken.
func (g *generator) leave(unless asm.Instruction) {
	g.unless(unless, func() { g.emit(asm.Mov.Imm(asm.R0, g.constant()), asm.Return()) })
}

// bound makes a number small, and says so.
func (g *generator) bound() {
	r := g.aNumberIn()
	limit := pick[int32](g, 1, 3, 7, 8, 15, 16, 31, 60, 63, 100)
	switch g.number("bound", 0, 7) {
	case 0, 1:
		g.emit(asm.And.Imm(r, limit))
	case 2:
		g.leave(asm.JLE.Imm(r, limit, ""))
	case 3:
		g.emit(asm.Mov.Reg32(r, r))
		g.leave(asm.JLT.Imm32(r, limit, ""))
	case 4:
		g.leave(asm.JSLE.Imm(r, limit, ""))
		g.leave(asm.JSGE.Imm(r, pick[int32](g, 0, -1, 1), ""))
	case 5:
		g.emit(asm.RSh.Imm(r, pick[int32](g, 58, 60, 61)))
		limit = 63
	case 6, 7:
		// By a copy, a constant away.
		copied := g.scratch()
		op := pick(g, asm.Add, asm.Sub)
		g.emit(pick(g, asm.Mov.Reg, asm.Mov.Reg32)(copied, r), pick(g, op.Imm, op.Imm32)(copied, int32(g.number("away", -4, 4))))
		g.leave(pick(g, asm.JLE.Imm, asm.JLE.Imm32, asm.JLT.Imm)(copied, limit, ""))
		g.set(copied, aNumber)
	}
	g.set(r, aSmall)
	g.sizes[r] = limit
	if g.chance(20) {
		g.emit(asm.LSh.Imm(r, pick[int32](g, 1, 2, 3)))
	}
}

// branch makes one or two blocks of which one is passed by.
func (g *generator) branch() {
	if g.deep > 2 {
		return
	}
	g.deep++
	defer func() { g.deep-- }()
	g.emit(g.comparison(g.aNumberIn()))
	at := len(g.steps) - 1
	otherwise := g.belief
	g.block(g.number("then", 1, 4))
	switch {
	case g.chance(15):
		g.emit(asm.Mov.Imm(asm.R0, g.constant()), asm.Return())
		g.steps[at].target = len(g.steps)
		g.belief = otherwise
		return
	case g.chance(40):
		over := len(g.steps)
		g.emit(pick(g, asm.Ja.Label(""), asm.LongJump("")))
		g.steps[at].target = len(g.steps)
		then := g.belief
		g.belief = otherwise
		g.block(g.number("else", 1, 3))
		g.steps[over].target = len(g.steps)
		otherwise = then
	default:
		g.steps[at].target = len(g.steps)
	}
	g.agree(&otherwise)
}

// agree forgets what holds on one of two paths only.
func (g *generator) agree(other *belief) {
	for r := range g.holds {
		if g.holds[r] != other.holds[r] || g.of[r] != other.of[r] {
			g.holds[r] = nothing
		}
		g.sizes[r] = min(g.sizes[r], other.sizes[r])
	}
	for k := range g.slots {
		if g.slots[k] != other.slots[k] {
			g.slots[k] = nothing
		}
	}
}

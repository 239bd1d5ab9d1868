package checker_test

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// loop counts to a small number.
func (g *generator) loop() {
	if g.deep > 1 {
		return
	}
	g.deep++
	defer func() { g.deep-- }()
	counter := g.keep()
	g.emit(asm.Mov.Imm(counter, 0))
	g.set(counter, nothing) // so that the body leaves it alone
	start := len(g.steps)
	before := g.belief
	g.block(g.number("body", 1, 3))
	g.agree(&before)
	step := pick[int32](g, 1, 1, 1, 2, 4)
	if g.chance(1) {
		step = pick[int32](g, 0, -1)
	}
	g.emit(asm.Add.Imm(counter, step))
	limit := int32(g.number("rounds", 1, 12))
	back := pick(g, asm.JLT, asm.JNE, asm.JSLT, asm.JLE).Imm(counter, limit, "")
	if g.chance(3) {
		back = g.comparison(counter)
	}
	g.emit(back)
	g.steps[len(g.steps)-1].target = start
	g.set(counter, aSmall)
	g.sizes[counter] = limit
}

// frame compares an address in the frame with its end, or uses one.
func (g *generator) frame() {
	data, ok := g.find(aPacket)
	end, okEnd := g.find(theEnd)
	if !ok || !okEnd {
		if from, ok := g.find(theContext); ok && !g.hook.IsPulse() {
			data, end = g.keep(), g.scratch()
			g.emit(asm.LoadMem(end, from, abi.FrameDataEnd, asm.Word))
			g.set(end, theEnd)
			if data != end && data != from {
				g.emit(asm.LoadMem(data, from, abi.FrameData, asm.Word))
				g.set(data, aPacket)
			}
		}
		return
	}
	switch n := g.number("frame", 0, 9); {
	case n < 4 && g.sizes[data] > 0:
		g.accessFrame(data)
	case n == 4:
		g.moveInFrame(data)
	default:
		g.compareWithEnd(data, end)
	}
}

func (g *generator) accessFrame(data asm.Register) {
	size := pick(g, asm.Byte, asm.Half, asm.Word, asm.DWord)
	off := int16(g.number("offset", 0, max(int(g.sizes[data])-size.Sizeof(), 0)))
	if g.chance(4) {
		off += int16(g.number("beyond", -2, 2))
	}
	switch {
	case g.chance(25) && (g.hook == abi.FilterTx || g.hook == abi.FilterRx):
		g.emit(asm.StoreMem(data, off, g.aNumberIn(), size))
	case g.chance(10) && size != asm.DWord:
		r := g.scratch()
		g.emit(asm.LoadMemSX(r, data, off, size))
		g.set(r, aNumber)
	default:
		r := g.scratch()
		g.emit(asm.LoadMem(r, data, off, size))
		g.set(r, aNumber)
	}
}

func (g *generator) moveInFrame(data asm.Register) {
	if by, ok := g.find(aSmall); ok && g.chance(60) {
		g.emit(asm.Add.Reg(data, by))
		g.sizes[data] = 0
		return
	}
	n := int32(g.number("step", -2, 20))
	g.emit(asm.Add.Imm(data, n))
	g.sizes[data] = max(g.sizes[data]-n, 0)
}

func (g *generator) compareWithEnd(data, end asm.Register) {
	probe := data
	bytes := int32(g.number("bytes", 1, 60))
	if !g.chance(5) {
		if probe = g.scratch(); probe == data || probe == end {
			return
		}
		g.emit(asm.Mov.Reg(probe, data), asm.Add.Imm(probe, bytes))
		g.set(probe, aPacket)
	}
	g.leave(pick(g, asm.JLE.Reg(probe, end, ""), asm.JGE.Reg(end, probe, ""),
		asm.JLT.Reg(probe, end, ""), asm.JGT.Reg(end, probe, "")))
	g.sizes[data] = max(g.sizes[data], bytes)
}

// keyAt stores a key for a map at the top of the stack and returns its offset.
func (g *generator) keyAt(m int) int32 {
	if g.maps[m].Key == 4 {
		g.emit(asm.StoreImm(asm.R10, -4, int64(g.number("index", 0, 70)), asm.Word))
		g.slots[0] = nothing
		return -4
	}
	for k := range int16(2) {
		if g.slots[k] != aNumber && !g.chance(3) {
			g.emit(asm.StoreMem(asm.R10, -8*(k+1), g.aNumberIn(), asm.DWord))
			g.slots[k] = aNumber
		}
	}
	return -16
}

func (g *generator) lookup() {
	if r, ok := g.find(aMaybe); ok && g.chance(80) {
		m := g.of[r]
		g.leave(pick(g, asm.JNE.Imm(r, 0, ""), asm.JNE.Imm(r, 0, ""), asm.JSGT.Imm(r, 0, "")))
		g.set(r, aValue)
		g.of[r] = m
		return
	}
	m := pick(g, flows, flows, table, table, rodata, globals)
	key := g.keyAt(m)
	call := asm.FnMapLookupElem.Call()
	g.emit(asm.LoadMapPtr(asm.R1, m), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, key))
	answer := aMaybe
	switch {
	case g.chance(15):
		call, answer = asm.FnMapDeleteElem.Call(), aNumber
	case g.chance(20):
		call, answer = asm.FnMapUpdateElem.Call(), aNumber
		if r, ok := g.find(aValue); ok && r > asm.R5 {
			g.emit(asm.Mov.Reg(asm.R3, r))
		} else {
			g.emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -24))
		}
		g.emit(asm.Mov.Imm(asm.R4, int32(g.number("flags", 0, 2))))
	case g.chance(10):
		call, answer = asm.FnKtimeGetNs.Call(), aNumber
	}
	g.emit(call)
	for r := range asm.R6 {
		g.set(r, nothing)
	}
	g.set(asm.R0, answer)
	g.of[asm.R0] = m
	if answer == aMaybe && g.chance(70) {
		g.leave(asm.JNE.Imm(asm.R0, 0, ""))
		g.set(asm.R0, aValue)
		g.of[asm.R0] = m
	}
	if keep := g.keep(); g.chance(50) {
		g.emit(asm.Mov.Reg(keep, asm.R0))
		g.set(keep, g.holds[0])
		g.of[keep] = m
	}
}

// value accesses a value of a map, at an offset that may be variable.
func (g *generator) value() {
	r, ok := g.find(aValue)
	if !ok || g.chance(20) {
		r = g.scratch()
		m := pick(g, globals, rodata)
		g.emit(asm.LoadMapValue(r, m, uint32(g.number("offset", 0, 16))))
		g.set(r, aValue)
		g.of[r] = m
	}
	if by, ok := g.find(aSmall); ok && g.chance(50) && by != r {
		g.emit(asm.Add.Reg(r, by))
	}
	size := pick(g, asm.Byte, asm.Half, asm.Word, asm.DWord)
	off := int16(g.number("offset", 0, 12))
	if g.chance(40) {
		g.emit(asm.StoreMem(r, off, g.aNumberIn(), size))
		return
	}
	to := g.scratch()
	g.emit(asm.LoadMem(to, r, off, size))
	g.set(to, aNumber)
}

// stack spills, fills and uses the stack as memory.
func (g *generator) stack() {
	k := g.number("slot", 0, len(g.slots)-1)
	off := int16(-8 * (k + 1))
	base := asm.R10
	if g.chance(15) {
		base = g.scratch()
		g.emit(asm.Mov.Reg(base, asm.R10), asm.Add.Imm(base, int32(off)))
		g.set(base, theStack)
		if by, ok := g.find(aSmall); ok && by != base && g.chance(50) {
			g.emit(asm.Add.Reg(base, by))
		}
		off = int16(g.number("back", -1, 1)) * 8
	}
	size := pick(g, asm.DWord, asm.DWord, asm.Word, asm.Half, asm.Byte)
	part := int16(g.number("part", 0, 8/size.Sizeof()-1) * size.Sizeof())
	switch {
	case g.chance(50):
		r := g.aNumberIn()
		if any, ok := g.find(aValue, aPacket, theEnd, theContext, aMaybe); ok && g.chance(40) {
			r, size, part = any, asm.DWord, 0
		}
		if g.chance(15) && size != asm.DWord {
			g.emit(asm.StoreImm(base, off+part, int64(g.constant()), size))
		} else {
			g.emit(asm.StoreMem(base, off+part, r, size))
		}
		if base == asm.R10 && size == asm.DWord {
			g.slots[k] = g.holds[r]
		}
	case g.slots[k] == nothing && !g.chance(5):
	case g.slots[k] != aNumber && g.slots[k] != aSmall:
		r := g.scratch()
		g.emit(asm.LoadMem(r, base, off, asm.DWord))
		g.set(r, g.slots[k])
	default:
		r := g.scratch()
		g.emit(asm.LoadMem(r, base, off+part, size))
		g.set(r, aNumber)
	}
}

func (g *generator) atomic() {
	op := pick(g, asm.AddAtomic, asm.AndAtomic, asm.OrAtomic, asm.XorAtomic, asm.FetchAdd, asm.FetchAnd,
		asm.FetchOr, asm.FetchXor, asm.Xchg, asm.CmpXchg)
	size := pick(g, asm.Word, asm.DWord)
	base, ok := g.find(aValue, aValue, theStack)
	off := int16(size.Sizeof() * g.number("offset", 0, 2))
	if !ok || g.chance(20) {
		base = asm.R10
		off = int16(-8 * g.number("slot", 1, len(g.slots)))
	}
	if op == asm.CmpXchg && g.holds[0] != aNumber && g.holds[0] != aSmall {
		if base == asm.R0 {
			return
		}
		g.emit(asm.Mov.Imm(asm.R0, g.constant()))
	}
	src := g.aNumberIn()
	g.emit(op.Mem(base, src, size, off))
	if op == asm.CmpXchg {
		g.set(asm.R0, aNumber)
	}
}

// pointers copies addresses, and does arithmetic on them that may be wrong.
func (g *generator) pointers() {
	from, ok := g.find(aValue, aPacket, theEnd, theContext, aMaybe, theStack)
	if !ok {
		return
	}
	to := g.scratch()
	switch g.number("pointers", 0, 9) {
	case 0:
		g.emit(asm.Sub.Imm(from, int32(g.number("less", -8, 8))))
	case 1:
		if other, ok := g.find(theEnd, aPacket); ok && g.chance(50) {
			g.emit(asm.Sub.Reg(other, from))
			g.set(other, aNumber)
		} else if ok && to < asm.R10 && to != from {
			g.emit(asm.Mov.Reg32(to, other), asm.Sub.Reg32(to, from))
			g.set(to, aNumber)
		}
	case 2:
		g.emit(asm.Add.Imm(from, g.constant()))
	case 3:
		if other, ok := g.find(aValue, aPacket, theEnd); ok {
			g.leave(pick(g, comparisons...).Reg(from, other, ""))
		}
	case 4:
		g.leave(pick(g, asm.JEq, asm.JNE).Imm(from, 0, ""))
	case 5:
		g.emit(pick(g, operations...).Reg(from, g.aNumberIn()))
	default:
		g.emit(asm.Mov.Reg(to, from))
		if to < asm.R10 {
			g.holds[to], g.of[to], g.sizes[to] = g.holds[from], g.of[from], g.sizes[from]
		}
	}
}

// noise is an instruction without a meaning.
func (g *generator) noise() {
	r, s := asm.Register(g.number("r", 0, 10)), asm.Register(g.number("s", 0, 10))
	size := pick(g, asm.Byte, asm.Half, asm.Word, asm.DWord)
	off := int16(g.number("offset", -24, 24))
	g.emit(pick(g,
		asm.Mov.Reg(r, s), asm.Mov.Reg32(r, s), asm.Add.Reg(r, s), asm.LoadMem(r, s, off, size),
		asm.StoreMem(r, off, s, size), asm.Xor.Reg(r, s), asm.FnMapLookupElem.Call(),
		asm.LoadMapPtr(r, flows), asm.AddAtomic.Mem(r, s, asm.DWord, off),
	))
	if r < asm.R10 {
		g.set(r, nothing)
	}
}

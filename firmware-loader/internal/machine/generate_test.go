package machine_test

import (
	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Maps of generated programs.
const (
	mapMemory = iota // an array with one value: inputs, scratch, results
	mapArray
	mapHash
)

const (
	memorySize    = 256
	memoryResults = memorySize - 64 // R0 to R5 and R7
	arrayEntries  = 6
	hashEntries   = 5
	frameSize     = 64 // bytes of the frame that programs touch
	// Stack: eight words for anything, then keys and values for helpers.
	stackWords = 8
	stackKey   = -8 * (stackWords + 1)
	stackValue = stackKey - 16
)

var generatedMaps = []abi.Map{
	{Name: "memory", Type: abi.MapArray, Key: 4, Value: memorySize, Entries: 1},
	{Name: "array", Type: abi.MapArray, Key: 4, Value: 12, Entries: arrayEntries},
	{Name: "hash", Type: abi.MapHash, Key: 8, Value: 16, Entries: hashEntries},
}

// Registers of generated programs: R6 is the address of the frame, R8 counts rounds
// of loops, R9 is the address of the memory. The others hold numbers.
var numbers = []asm.Register{asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5, asm.R7}

// generator makes programs that the kernel's verifier accepts.
type generator struct{ t *rapid.T }

func (g generator) pick(n int) int       { return rapid.IntRange(0, n-1).Draw(g.t, "choice") }
func (g generator) number() asm.Register { return numbers[g.pick(len(numbers))] }
func (g generator) size() asm.Size       { return allSizes[g.pick(len(allSizes))] }
func (g generator) in(low, high int) int16 {
	return int16(rapid.IntRange(low, high).Draw(g.t, "offset"))
}
func (g generator) condition() asm.JumpOp          { return conditions[g.pick(len(conditions))] }
func (g generator) kind(of ...asm.ALUOp) asm.ALUOp { return of[g.pick(len(of))] }

func (g generator) constant() int32 {
	if g.pick(2) == 0 {
		return rapid.Int32().Draw(g.t, "constant")
	}
	return int32(interesting[g.pick(len(interesting))])
}

// slots returns the length of code in slots, in which jumps are measured.
func slots(code asm.Instructions) int { return int(code.Size() / asm.InstructionSize) }

// program returns a whole program.
func (g generator) program() asm.Instructions {
	start := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, abi.FrameDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R6),
		asm.Add.Imm(asm.R4, frameSize),
		distance(asm.JLE.Reg(asm.R4, asm.R3, "x"), 2),
		asm.Mov.Imm(asm.R0, abi.FilterDrop),
		asm.Return(),
		asm.LoadMapValue(asm.R9, mapMemory, 0),
	}
	for i := range stackWords {
		start = append(start, asm.Instruction{OpCode: asm.StoreImmOp(asm.DWord), Dst: asm.RFP, Offset: int16(-8 * (i + 1)), Constant: int64(g.constant())})
	}
	code := append(start, g.reload(numbers...)...)
	code = append(code, g.block(rapid.IntRange(1, 25).Draw(g.t, "statements"), 2)...)
	for i, r := range numbers {
		code = append(code, asm.StoreMem(asm.R9, int16(memoryResults+8*i), r, asm.DWord))
	}
	return append(code, asm.And.Imm(asm.R0, 7), asm.Return())
}

// reload puts numbers into registers that may hold addresses or nothing.
func (g generator) reload(registers ...asm.Register) (code asm.Instructions) {
	for _, r := range registers {
		code = append(code, asm.LoadMem(r, asm.R9, 8*g.in(0, 15), asm.DWord))
	}
	return code
}

// block returns n statements; depth is how deep conditions and loops may nest.
func (g generator) block(n, depth int) (code asm.Instructions) {
	statements := []func() asm.Instructions{
		g.arithmetic, g.arithmetic, g.arithmetic, g.load, g.load, g.store, g.atomic, g.idiom, g.idiom, g.lookup, g.update, g.remove,
	}
	for range n {
		choice := g.pick(len(statements) + 3)
		switch {
		case choice < len(statements):
			code = append(code, statements[choice]()...)
		case depth == 0:
			code = append(code, g.arithmetic()...)
		case choice == len(statements):
			code = append(code, g.loop()...)
		default:
			code = append(code, g.conditional(g.block(1+g.pick(3), depth-1))...)
		}
	}
	return code
}

func (g generator) conditional(body asm.Instructions) asm.Instructions {
	kind, d, s := g.condition(), g.number(), g.number()
	var jump asm.Instruction
	switch g.pick(4) {
	case 0:
		jump = kind.Reg(d, s, "x")
	case 1:
		jump = kind.Reg32(d, s, "x")
	case 2:
		jump = kind.Imm(d, g.constant(), "x")
	default:
		jump = kind.Imm32(d, g.constant(), "x")
	}
	return append(asm.Instructions{distance(jump, slots(body))}, body...)
}

// loop repeats arithmetic a few times.
func (g generator) loop() asm.Instructions {
	var body asm.Instructions
	for range 1 + g.pick(4) {
		body = append(body, g.arithmetic()...)
	}
	code := append(asm.Instructions{asm.Mov.Imm(asm.R8, 0)}, body...)
	return append(code, asm.Add.Imm(asm.R8, 1),
		distance(asm.JLT.Imm(asm.R8, int32(1+g.pick(6)), "x"), -slots(body)-2))
}

func (g generator) arithmetic() asm.Instructions {
	d, s := g.number(), g.number()
	kind := g.kind(asm.Add, asm.Sub, asm.Mul, asm.Div, asm.SDiv, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Mod, asm.SMod,
		asm.Xor, asm.Mov, asm.ArSh)
	v := g.constant()
	switch g.pick(6) {
	case 0:
		return asm.Instructions{kind.Reg(d, s)}
	case 1:
		return asm.Instructions{kind.Reg32(d, s)}
	case 2:
		return asm.Instructions{g.kind(asm.MovSX8, asm.MovSX16, asm.MovSX32).Reg(d, s)}
	case 3:
		order := []asm.Instruction{asm.HostTo(asm.LE, d, asm.Half), asm.HostTo(asm.BE, d, asm.Word), asm.BSwap(d, asm.DWord)}
		return asm.Instructions{order[g.pick(len(order))]}
	}
	switch kind {
	case asm.LSh, asm.RSh, asm.ArSh:
		v &= 31
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
		if v == 0 {
			v = 3
		}
	}
	if g.pick(2) == 0 {
		return asm.Instructions{kind.Imm(d, v)}
	}
	return asm.Instructions{kind.Imm32(d, v)}
}

// place returns an address in frame, memory or stack where n bytes may be accessed.
func (g generator) place(n int, aligned bool) (asm.Register, int16) {
	limit := memoryResults
	r := asm.R9
	switch g.pick(3) {
	case 0:
		return asm.RFP, -8*g.in(1, stackWords) + int16(g.pick(8/n)*n)
	case 1:
		if !aligned {
			r, limit = asm.R6, frameSize
		}
	}
	if aligned {
		return r, 8 * g.in(0, limit/8-1)
	}
	return r, g.in(0, limit-n)
}

func (g generator) load() asm.Instructions {
	size := g.size()
	r, at := g.place(size.Sizeof(), false)
	if size != asm.DWord && g.pick(3) == 0 {
		return asm.Instructions{asm.LoadMemSX(g.number(), r, at, size)}
	}
	return asm.Instructions{asm.LoadMem(g.number(), r, at, size)}
}

func (g generator) store() asm.Instructions {
	size := g.size()
	r, at := g.place(size.Sizeof(), false)
	if g.pick(3) == 0 {
		return asm.Instructions{{OpCode: asm.StoreImmOp(size), Dst: r, Offset: at, Constant: int64(g.constant())}}
	}
	return asm.Instructions{asm.StoreMem(r, at, g.number(), size)}
}

func (g generator) atomic() asm.Instructions {
	size := []asm.Size{asm.Word, asm.DWord}[g.pick(2)]
	kinds := []asm.AtomicOp{asm.AddAtomic, asm.FetchAdd, asm.AndAtomic, asm.FetchAnd, asm.OrAtomic, asm.FetchOr,
		asm.XorAtomic, asm.FetchXor, asm.Xchg, asm.CmpXchg}
	r, at := g.place(size.Sizeof(), true)
	return asm.Instructions{kinds[g.pick(len(kinds))].Mem(r, g.number(), size, at)}
}

// idiom returns what the processor may merge.
func (g generator) idiom() asm.Instructions {
	d, s := g.number(), g.number()
	size := g.size()
	r, at := g.place(size.Sizeof(), false)
	load := asm.LoadMem(d, r, at, size)
	switch g.pick(5) {
	case 0:
		return asm.Instructions{load, asm.HostTo(asm.BE, d, []asm.Size{asm.Half, asm.Word}[g.pick(2)])}
	case 1:
		return append(asm.Instructions{load}, g.conditional(g.arithmetic())...)
	case 2:
		kind := []asm.JumpOp{asm.JEq, asm.JNE}[g.pick(2)]
		v := int32(g.pick(4))
		return asm.Instructions{load, asm.And.Imm32(d, 3), distance(kind.Imm32(d, v, "x"), 1), asm.Xor.Imm(s, -1)}
	case 3:
		kind := []asm.JumpOp{asm.JGT, asm.JLT}[g.pick(2)]
		return asm.Instructions{asm.Mov.Reg(d, s), asm.Add.Imm(d, g.constant()), distance(kind.Reg(g.number(), g.number(), "x"), 1), asm.Xor.Imm(s, -1)}
	default:
		r, at := g.place(4, true)
		return asm.Instructions{asm.LoadMem(d, r, at, asm.Word), asm.LoadMem(s, r, at, asm.Word), asm.LoadMem(d, r, at, asm.Word)}
	}
}

// key stores a key, one of a few, on the stack.
func (g generator) key(m int) asm.Instructions {
	if m == mapArray {
		return asm.Instructions{asm.And.Imm(asm.R1, 7), asm.StoreMem(asm.RFP, stackKey, asm.R1, asm.Word)}
	}
	return asm.Instructions{asm.And.Imm(asm.R1, 7), asm.Mul.Imm(asm.R1, 0x10001), asm.StoreMem(asm.RFP, stackKey, asm.R1, asm.DWord)}
}

// call calls a helper with the map, the key and R4 as flags.
func (g generator) call(m int, f asm.BuiltinFunc) asm.Instructions {
	code := append(g.key(m), asm.LoadMapPtr(asm.R1, m),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stackValue),
		f.Call())
	return code
}

func (g generator) lookup() asm.Instructions {
	m := mapArray + g.pick(2)
	size := g.size()
	at := g.in(0, int(generatedMaps[m].Value)-size.Sizeof())
	use := asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, at, size), asm.Add.Reg(asm.R7, asm.R1), asm.StoreMem(asm.R0, at, asm.R7, size),
	}
	code := append(g.call(m, asm.FnMapLookupElem), distance(asm.JEq.Imm(asm.R0, 0, "x"), slots(use)))
	code = append(code, use...)
	return append(code, g.reload(numbers[:6]...)...)
}

func (g generator) update() asm.Instructions {
	m := mapArray + g.pick(2)
	code := asm.Instructions{
		asm.StoreMem(asm.RFP, stackValue, g.number(), asm.DWord), asm.StoreMem(asm.RFP, stackValue+8, g.number(), asm.DWord),
		asm.Mov.Imm(asm.R4, int32(g.pick(4))),
	}
	code = append(code, g.call(m, asm.FnMapUpdateElem)...)
	return append(code, g.reload(numbers[1:6]...)...)
}

func (g generator) remove() asm.Instructions {
	code := g.call(mapArray+g.pick(2), asm.FnMapDeleteElem)
	return append(code, g.reload(numbers[1:6]...)...)
}

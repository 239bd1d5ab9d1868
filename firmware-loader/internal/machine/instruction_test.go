package machine_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// An instruction test is a run of instructions that computes on two inputs, in R6
// and R7, and leaves its result in R6, R7, R8 and R0.
type instructionTest struct {
	name string
	code asm.Instructions
	// aligned: R7 is to be the address of the test's 16 bytes of memory.
	address bool
}

// The tests of a program share a map with one value. Each has a record in it.
const (
	recordInputs  = 0  // R6, R7
	recordMemory  = 16 // 16 bytes
	recordResults = 32 // R6, R8, R0
	recordSize    = 56
	recordsMax    = 32 << 10 / recordSize
)

var allSizes = []asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord}

// interesting numbers, of which inputs are made.
var interesting = []uint64{
	0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0x8000_0001,
	0xffff_fffe, 0xffff_ffff, 1 << 32, 1<<32 + 1, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, 0x8000_0000_0000_0001,
	0xffff_ffff_0000_0000, 0xffff_ffff_8000_0000, 0xffff_ffff_ffff_ff80, 0xffff_ffff_ffff_8000, 0xffff_ffff_ffff_fffe, 0xffff_ffff_ffff_ffff,
}

func randomNumber(rng *rand.Rand) uint64 {
	switch v := interesting[rng.IntN(len(interesting))]; rng.IntN(4) {
	case 0:
		return rng.Uint64()
	case 1:
		return v ^ 1<<rng.IntN(64)
	case 2:
		return rng.Uint64() >> rng.IntN(64)
	default:
		return v
	}
}

// TestInstructionsAgainstKernel compares every arithmetic, jump, load, store and
// atomic instruction with the kernel's, over random inputs and constants.
func TestInstructionsAgainstKernel(t *testing.T) {
	needBPF(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var tests []instructionTest
	for range 6 {
		tests = append(tests, arithmeticTests(rng)...)
		tests = append(tests, jumpTests(rng)...)
		tests = append(tests, memoryTests(rng)...)
		tests = append(tests, atomicTests()...)
		tests = append(tests, mergedTests(rng)...)
	}
	t.Logf("%d instructions", len(tests))
	rng.Shuffle(len(tests), func(i, j int) { tests[i], tests[j] = tests[j], tests[i] })
	for len(tests) > 0 {
		// Jumps back and forth, not only programs, are limited in length.
		n, slots := 0, 8
		for n < len(tests) && n < recordsMax && slots+len(tests[n].code)+12 < abi.MaxInstructions {
			slots += len(tests[n].code) + 12
			n++
		}
		instructionsTogether(t, rng, tests[:n])
		tests = tests[n:]
	}
}

func instructionsTogether(t *testing.T, rng *rand.Rand, tests []instructionTest) {
	t.Helper()
	code := asm.Instructions{asm.LoadMapValue(asm.R9, 0, 0)}
	for i, c := range tests {
		at := int16(i * recordSize)
		code = append(code,
			asm.LoadMem(asm.R6, asm.R9, at+recordInputs, asm.DWord),
			asm.LoadMem(asm.R7, asm.R9, at+recordInputs+8, asm.DWord),
			asm.Mov.Imm(asm.R8, 1),
			asm.Mov.Reg(asm.R0, asm.R6),
		)
		if c.address {
			code = append(code, asm.Mov.Reg(asm.R7, asm.R9), asm.Add.Imm(asm.R7, int32(at+recordMemory)))
		}
		code = append(code, c.code...)
		code = append(code,
			asm.StoreMem(asm.R9, at+recordResults, asm.R6, asm.DWord),
			asm.StoreMem(asm.R9, at+recordResults+8, asm.R8, asm.DWord),
			asm.StoreMem(asm.R9, at+recordResults+16, asm.R0, asm.DWord),
		)
	}
	code = append(code, asm.Mov.Imm(asm.R0, abi.FilterPass), asm.Return())
	spec := abi.Map{Name: "records", Type: abi.MapArray, Key: 4, Value: uint32(len(tests) * recordSize), Entries: 1}
	w, err := newTwin(t, assemble(t, code), spec)
	must.OK(t, err)
	defer w.close()
	for range 40 {
		value := make([]byte, spec.Value)
		for i := range tests {
			record := value[i*recordSize:]
			a, b := randomNumber(rng), randomNumber(rng)
			switch rng.IntN(4) {
			case 0:
				b = a
			case 1:
				b = a&0xffff_ffff | b<<32 // the same low half
			}
			for j, v := range []uint64{a, b, randomNumber(rng), rng.Uint64()} {
				binary.LittleEndian.PutUint64(record[8*j:], v)
			}
			if rng.IntN(2) == 0 {
				// For compare-and-exchange: memory is as expected.
				binary.LittleEndian.PutUint64(record[recordMemory:], a)
			}
		}
		w.set(t, 0, make([]byte, 4), value)
		w.run(t, make([]byte, 64))
		ours := must.Get(w.maps[0].Lookup(make([]byte, 4)))(t)
		theirs := must.Get(w.kmaps[0].LookupBytes(uint32(0)))(t)
		for i, c := range tests {
			at := i * recordSize
			if mine, kernel := ours[at:at+recordSize], theirs[at:at+recordSize]; !bytes.Equal(mine, kernel) {
				t.Errorf("%s\n%vinputs % x\n have  % x\n kernel % x", c.name, c.code, value[at:at+recordResults], mine, kernel)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func arithmeticTests(rng *rand.Rand) (tests []instructionTest) {
	add := func(name string, ins asm.Instruction) {
		tests = append(tests, instructionTest{name: name, code: asm.Instructions{ins}})
	}
	for _, kind := range []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Div, asm.SDiv, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Mod,
		asm.SMod, asm.Xor, asm.Mov, asm.ArSh, asm.MovSX8, asm.MovSX16, asm.MovSX32} {
		add("register", kind.Reg(asm.R6, asm.R7))
		add("same register", kind.Reg(asm.R6, asm.R6))
		if kind != asm.MovSX32 {
			add("32-bit register", kind.Reg32(asm.R6, asm.R7))
		}
		v := int32(randomNumber(rng))
		switch kind {
		case asm.MovSX8, asm.MovSX16, asm.MovSX32:
			continue
		case asm.LSh, asm.RSh, asm.ArSh:
			add("constant", kind.Imm(asm.R6, v&63))
			add("32-bit constant", kind.Imm32(asm.R6, v&31))
			continue
		case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
			if v == 0 {
				v = -1
			}
		}
		add("constant", kind.Imm(asm.R6, v))
		add("32-bit constant", kind.Imm32(asm.R6, v))
	}
	add("negate", asm.Instruction{OpCode: asm.Neg.Op(asm.ImmSource), Dst: asm.R6})
	add("32-bit negate", asm.Instruction{OpCode: asm.Neg.Op32(asm.ImmSource), Dst: asm.R6})
	for _, size := range []asm.Size{asm.Half, asm.Word, asm.DWord} {
		add("to little-endian", asm.HostTo(asm.LE, asm.R6, size))
		add("to big-endian", asm.HostTo(asm.BE, asm.R6, size))
		add("swap", asm.BSwap(asm.R6, size))
	}
	add("long constant", asm.LoadImm(asm.R6, int64(randomNumber(rng)), asm.DWord))
	return tests
}

var conditions = []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSet, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE}

// distance makes a jump one over a number of slots.
func distance(ins asm.Instruction, slots int) asm.Instruction {
	ins.Offset = int16(slots)
	return ins.WithReference("")
}

func jumpTests(rng *rand.Rand) (tests []instructionTest) {
	for _, kind := range conditions {
		v := int32(randomNumber(rng))
		for name, ins := range map[string]asm.Instruction{
			"register": kind.Reg(asm.R6, asm.R7, "x"), "32-bit register": kind.Reg32(asm.R6, asm.R7, "x"),
			"constant": kind.Imm(asm.R6, v, "x"), "32-bit constant": kind.Imm32(asm.R6, v, "x"),
		} {
			tests = append(tests, instructionTest{name: "jump, " + name, code: asm.Instructions{
				distance(ins, 1), asm.Mov.Imm(asm.R8, 0),
			}})
		}
	}
	// Forth over a jump, and back to it.
	for _, jump := range []func(slots int) asm.Instruction{
		func(slots int) asm.Instruction { return distance(asm.Ja.Label("x"), slots) },
		func(slots int) asm.Instruction {
			ins := asm.LongJump("x").WithReference("")
			ins.Constant = int64(slots)
			return ins
		},
	} {
		tests = append(tests, instructionTest{name: "jump", code: asm.Instructions{
			jump(1), jump(2), asm.Add.Imm(asm.R8, 7), jump(-3),
		}})
	}
	return tests
}

func memoryTests(rng *rand.Rand) (tests []instructionTest) {
	for _, size := range allSizes {
		n := size.Sizeof()
		at := int16(rng.IntN(17 - n))
		stack := int16(-8 - 8*rng.IntN(4) + rng.IntN(8/n)*n)
		fill := asm.StoreMem(asm.RFP, stack&^7, asm.R6, asm.DWord)
		memory := map[string]asm.Instructions{
			"load":        {asm.LoadMem(asm.R6, asm.R7, at, size)},
			"store":       {asm.StoreMem(asm.R7, at, asm.R6, size)},
			"load stack":  {fill, asm.LoadMem(asm.R6, asm.RFP, stack, size)},
			"store stack": {asm.StoreMem(asm.RFP, stack&^7, asm.R8, asm.DWord), asm.StoreMem(asm.RFP, stack, asm.R6, size), asm.LoadMem(asm.R6, asm.RFP, stack&^7, asm.DWord)},
			"store constant": {asm.Instruction{OpCode: asm.StoreImmOp(size), Dst: asm.R7, Offset: at,
				Constant: int64(int32(randomNumber(rng)))}},
		}
		if size != asm.DWord {
			memory["signed load"] = asm.Instructions{asm.LoadMemSX(asm.R6, asm.R7, at, size)}
			memory["signed load, stack"] = asm.Instructions{fill, asm.LoadMemSX(asm.R6, asm.RFP, stack, size)}
		}
		for name, code := range memory {
			tests = append(tests, instructionTest{name: name, code: code, address: true})
		}
	}
	return tests
}

func atomicTests() (tests []instructionTest) {
	for _, size := range []asm.Size{asm.Word, asm.DWord} {
		for _, kind := range []asm.AtomicOp{asm.AddAtomic, asm.FetchAdd, asm.AndAtomic, asm.FetchAnd, asm.OrAtomic,
			asm.FetchOr, asm.XorAtomic, asm.FetchXor, asm.Xchg, asm.CmpXchg} {
			tests = append(tests, instructionTest{name: kind.String(), address: true, code: asm.Instructions{
				kind.Mem(asm.R7, asm.R6, size, 0), kind.Mem(asm.R7, asm.R6, size, 8),
			}}, instructionTest{name: kind.String() + ", another register", address: true, code: asm.Instructions{
				kind.Mem(asm.R7, asm.R8, size, 0),
			}}, instructionTest{name: kind.String() + ", stack", address: true, code: asm.Instructions{
				asm.StoreMem(asm.RFP, -16, asm.R8, asm.DWord), kind.Mem(asm.RFP, asm.R6, size, -16), asm.LoadMem(asm.R8, asm.RFP, -16, asm.DWord),
			}})
		}
	}
	return tests
}

// mergedTests are sequences that the processor carries out as one.
func mergedTests(rng *rand.Rand) (tests []instructionTest) {
	add := func(name string, code ...asm.Instruction) {
		tests = append(tests, instructionTest{name: name, code: code, address: true})
	}
	for range 8 {
		v := int32(randomNumber(rng))
		for _, size := range allSizes {
			at := int16(rng.IntN(17 - size.Sizeof()))
			for _, kind := range conditions[:3] {
				add("load and compare", asm.LoadMem(asm.R6, asm.R7, at, size), distance(kind.Imm(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
				add("load and compare 32", asm.LoadMem(asm.R6, asm.R7, at, size), distance(kind.Imm32(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
				add("load, compare another", asm.LoadMem(asm.R0, asm.R7, at, size), distance(kind.Imm(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
			}
			for _, other := range allSizes[1:] {
				add("load big-endian", asm.LoadMem(asm.R6, asm.R7, at, size), asm.HostTo(asm.BE, asm.R6, other))
				add("load, swap another", asm.LoadMem(asm.R0, asm.R7, at, size), asm.HostTo(asm.BE, asm.R6, other))
			}
		}
		add("loads", asm.LoadMem(asm.R6, asm.R7, 0, asm.Word), asm.LoadMem(asm.R0, asm.R7, 4, asm.Word),
			asm.LoadMem(asm.R8, asm.R7, 8, asm.Word), distance(asm.JEq.Imm(asm.R8, v, "x"), 1), asm.Mov.Imm(asm.R6, 0))
		for _, kind := range []asm.JumpOp{asm.JEq, asm.JNE} {
			add("and", asm.And.Imm(asm.R6, v), distance(kind.Imm32(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
			add("and 32", asm.And.Imm32(asm.R6, v), distance(kind.Imm(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
			add("and 32 twice", asm.And.Imm32(asm.R6, v), distance(kind.Imm32(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
			add("and register", asm.And.Reg(asm.R6, asm.R0), distance(kind.Imm32(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
			add("and 32 register", asm.And.Reg32(asm.R6, asm.R0), distance(kind.Imm(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
		}
		for _, kind := range []asm.JumpOp{asm.JGT, asm.JLT} {
			add("sum", asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Imm(asm.R8, v), distance(kind.Reg(asm.R8, asm.R0, "x"), 1), asm.Mov.Imm(asm.R0, 5))
			add("sum, from the other side", asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Imm(asm.R8, v), distance(kind.Reg(asm.R0, asm.R8, "x"), 1), asm.Mov.Imm(asm.R0, 5))
			add("sum, with itself", asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Imm(asm.R8, v), distance(kind.Reg(asm.R8, asm.R8, "x"), 1), asm.Mov.Imm(asm.R0, 5))
			add("sum, with a constant", asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Imm(asm.R8, v), distance(kind.Imm(asm.R8, v, "x"), 1), asm.Mov.Imm(asm.R0, 5))
		}
		add("sum of registers", asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Reg(asm.R8, asm.R0))
		add("sum of another", asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Imm(asm.R0, v))
		add("constant sum", asm.Mov.Imm(asm.R8, v), asm.Add.Imm(asm.R8, v))
		// The jump goes to the second of two that would be merged.
		add("apart", distance(asm.JGT.Imm(asm.R0, v, "x"), 1), asm.LoadMem(asm.R6, asm.R7, 0, asm.Half),
			asm.HostTo(asm.BE, asm.R6, asm.Half))
		add("apart, compare", distance(asm.JGT.Imm(asm.R0, v, "x"), 1), asm.LoadMem(asm.R6, asm.R7, 0, asm.Half),
			distance(asm.JEq.Imm(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
		add("apart, compare 32", distance(asm.JGT.Imm(asm.R0, v, "x"), 1), asm.LoadMem(asm.R6, asm.R7, 0, asm.Half),
			distance(asm.JEq.Imm32(asm.R6, v, "x"), 1), asm.Mov.Imm(asm.R8, 0))
		add("apart, sum", distance(asm.JGT.Imm(asm.R0, v, "x"), 1), asm.Mov.Reg(asm.R8, asm.R6), asm.Add.Imm(asm.R8, 3),
			distance(asm.JGT.Reg(asm.R8, asm.R6, "x"), 1), asm.Mov.Imm(asm.R6, 0))
	}
	return tests
}

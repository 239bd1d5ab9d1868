package checker_test

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Maps of the programs in these tests.
const (
	flows   = iota // hash: a flow's key to counters
	table          // array of 64 entries
	rodata         // read-only data
	globals        // variables
)

func testMaps() []abi.Map {
	return []abi.Map{
		flows:   {Name: "flows", Type: abi.MapHash, Key: 16, Value: 24, Entries: 128},
		table:   {Name: "table", Type: abi.MapArray, Key: 4, Value: 16, Entries: 64},
		rodata:  {Name: ".rodata", Type: abi.MapArray, Key: 4, Value: 64, Entries: 1, Flags: abi.MapReadOnly},
		globals: {Name: ".data", Type: abi.MapArray, Key: 4, Value: 32, Entries: 1},
	}
}

// encodeAtomics puts atomic operations where the encoding has them. Version 0.22 of the
// assembler leaves them out, which makes additions of all of them.
func encodeAtomics(code asm.Instructions) {
	for i := range code {
		if op := code[i].OpCode.AtomicOp(); op != asm.InvalidAtomic && code[i].Constant == 0 {
			code[i].Constant = int64(op >> 8)
		}
	}
}

// link resolves the labels of a program.
func link(tb must.TB, hook abi.Hook, code asm.Instructions) abi.Program {
	tb.Helper()
	must.OK(tb, code.Marshal(io.Discard, binary.LittleEndian))
	return abi.Program{Hook: hook, Instructions: code, Maps: testMaps()}
}

func exitWith(answer int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, answer), asm.Return()}
}

func join(parts ...asm.Instructions) asm.Instructions {
	var code asm.Instructions
	for _, p := range parts {
		code = append(code, p...)
	}
	return code
}

// frameStart loads the frame's address into R6 and its end into R7, and goes to
// "out" if the frame has fewer bytes than it should.
func frameStart(bytes int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, abi.FrameDataEnd, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Add.Imm(asm.R2, bytes),
		asm.JGT.Reg(asm.R2, asm.R7, "out"),
	}
}

// leave is the exit of programs that jump to "out".
func leave(answer int32) asm.Instructions {
	code := exitWith(answer)
	code[0] = code[0].WithSymbol("out")
	return code
}

// flowKey stores addresses and ports of an IPv4 frame at R10-16.
var flowKey = asm.Instructions{
	asm.LoadMem(asm.R3, asm.R6, 26, asm.Word),
	asm.StoreMem(asm.R10, -16, asm.R3, asm.Word),
	asm.LoadMem(asm.R3, asm.R6, 30, asm.Word),
	asm.StoreMem(asm.R10, -12, asm.R3, asm.Word),
	asm.LoadMem(asm.R3, asm.R6, 34, asm.Word),
	asm.StoreMem(asm.R10, -8, asm.R3, asm.Word),
	asm.LoadMem(asm.R3, asm.R6, 23, asm.Byte),
	asm.StoreMem(asm.R10, -4, asm.R3, asm.Word),
}

func lookup(m int, keyOffset int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, m),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, keyOffset),
		asm.FnMapLookupElem.Call(),
	}
}

// sample is a program that is like those we ship.
type sample struct {
	name  string
	hook  abi.Hook
	worst int // instructions; 0: not counted by hand
	code  asm.Instructions
}

func samples() []sample {
	return []sample{
		{"pulse policy", abi.PulseTx, 9, pulsePolicy()},
		{"pulse table", abi.PulseRx, 0, pulseTable()},
		{"flow hash", abi.DemuxRx, 0, flowHash()},
		{"bit by bit hash", abi.DemuxRx, 0, bitHash()},
		{"access list", abi.FilterRx, 21, accessList()},
		{"counters", abi.FilterRx, 0, counters()},
		{"rewrite", abi.FilterTx, 16, rewrite()},
		{"checksum", abi.FilterRx, 0, checksum()},
		{"globals", abi.FilterTx, 0, globalVariables()},
	}
}

// pulsePolicy moves what has arrived if it is enough, or all of the frame.
func pulsePolicy() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, abi.PulseArrived, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, abi.PulseSent, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, abi.PulseLength, asm.Word),
		asm.LoadMem(asm.R5, asm.R1, abi.PulseMinimum, asm.Word),
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.Sub.Reg(asm.R0, asm.R3),
		asm.JGE.Reg(asm.R0, asm.R5, "done"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return().WithSymbol("done"),
	}
}

// pulseTable looks the size of the next pulse up in read-only data.
func pulseTable() asm.Instructions {
	return join(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, abi.PulseQueued, asm.Word),
		asm.JLE.Imm(asm.R6, 15, "small"),
		asm.Mov.Imm(asm.R6, 15),
		asm.LSh.Imm(asm.R6, 2).WithSymbol("small"),
		asm.LoadMapValue(asm.R2, rodata, 0),
		asm.Add.Reg(asm.R2, asm.R6),
		asm.LoadMem(asm.R0, asm.R2, 0, asm.Word),
		asm.Return(),
	})
}

// flowHash mixes addresses and ports into the number of a queue.
func flowHash() asm.Instructions {
	return join(frameStart(38), asm.Instructions{
		asm.LoadMem(asm.R3, asm.R6, 12, asm.Half),
		asm.JNE.Imm(asm.R3, 0x0008, "out"),
		asm.LoadMem(asm.R0, asm.R6, 26, asm.Word),
		asm.LoadMem(asm.R4, asm.R6, 30, asm.Word),
		asm.Xor.Reg32(asm.R0, asm.R4),
		asm.LoadMem(asm.R4, asm.R6, 34, asm.Word),
		asm.Add.Reg32(asm.R0, asm.R4),
		asm.Mul.Imm32(asm.R0, -1640531527),
		asm.RSh.Imm32(asm.R0, 28),
		asm.LoadImm(asm.R2, -1<<32, asm.DWord),
		asm.Or.Reg(asm.R0, asm.R2),
		asm.Return(),
	}, leave(-1))
}

// bitHash goes over the 64 bits of two addresses. Bytes of the key are in read-only
// data, the result selects an entry of the table.
func bitHash() asm.Instructions {
	return join(frameStart(34), asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, 26, asm.DWord),
		asm.LoadMapValue(asm.R3, rodata, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.Mov.Imm(asm.R8, 0),
		asm.Mov.Reg(asm.R5, asm.R2).WithSymbol("bit"),
		asm.RSh.Reg(asm.R5, asm.R4),
		asm.And.Imm(asm.R5, 1),
		asm.JEq.Imm(asm.R5, 0, "next"),
		asm.Mov.Reg(asm.R5, asm.R4),
		asm.RSh.Imm(asm.R5, 1),
		asm.Add.Reg(asm.R5, asm.R3),
		asm.LoadMem(asm.R5, asm.R5, 0, asm.Word),
		asm.Xor.Reg(asm.R8, asm.R5),
		asm.Add.Imm(asm.R4, 1).WithSymbol("next"),
		asm.JLT.Imm(asm.R4, 64, "bit"),
		asm.StoreMem(asm.R10, -4, asm.R8, asm.Word),
	}, lookup(table, -4), asm.Instructions{
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R0, asm.R0, 8, asm.Word),
		asm.Return(),
	}, leave(-1))
}

func accessList() asm.Instructions {
	return join(frameStart(42), flowKey, lookup(flows, -16), asm.Instructions{
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R0, abi.FilterDrop),
		asm.Ja.Label("end"),
	}, asm.Instructions{
		asm.Mov.Imm(asm.R0, abi.FilterPass).WithSymbol("out"),
		asm.Return().WithSymbol("end"),
	})
}

func counters() asm.Instructions {
	return join(frameStart(42), flowKey, asm.Instructions{
		asm.Sub.Reg(asm.R7, asm.R6),
		asm.Mov.Reg(asm.R9, asm.R1),
	}, lookup(flows, -16), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, "known"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.R10, -40, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, -32, asm.R7, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R10, -24, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, flows),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -16),
		asm.Mov.Reg(asm.R3, asm.R10),
		asm.Add.Imm(asm.R3, -40),
		asm.Mov.Imm(asm.R4, 1),
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label("out"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("known"),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.AddAtomic.Mem(asm.R0, asm.R7, asm.DWord, 8),
		asm.FnKtimeGetNs.Call(),
	}, leave(abi.FilterPass))
}

// rewrite exchanges the Ethernet addresses of a frame.
func rewrite() asm.Instructions {
	return join(frameStart(14), asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Half),
		asm.LoadMem(asm.R4, asm.R6, 6, asm.Word),
		asm.LoadMem(asm.R5, asm.R6, 10, asm.Half),
		asm.StoreMem(asm.R6, 6, asm.R2, asm.Word),
		asm.StoreMem(asm.R6, 10, asm.R3, asm.Half),
		asm.StoreMem(asm.R6, 0, asm.R4, asm.Word),
		asm.StoreMem(asm.R6, 4, asm.R5, asm.Half),
		asm.Ja.Label("out"),
	}, leave(abi.FilterPass))
}

// checksum adds the words of an IPv4 header, whose length is in its first byte.
func checksum() asm.Instructions {
	return join(frameStart(34), asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, 14, asm.Byte),
		asm.And.Imm(asm.R2, 15),
		asm.LSh.Imm(asm.R2, 2),
		asm.JLT.Imm(asm.R2, 20, "out"),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.Add.Imm(asm.R3, 14),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.Add.Reg(asm.R4, asm.R2),
		asm.Mov.Imm(asm.R0, 0),
		asm.Mov.Imm(asm.R5, 0),
		asm.Mov.Reg(asm.R8, asm.R3).WithSymbol("word"),
		asm.Add.Imm(asm.R8, 2),
		asm.JGT.Reg(asm.R8, asm.R7, "out"),
		asm.LoadMem(asm.R9, asm.R3, 0, asm.Half),
		asm.Add.Reg(asm.R0, asm.R9),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Add.Imm(asm.R5, 2),
		asm.JGE.Imm(asm.R5, 60, "sum"),
		asm.JLT.Reg(asm.R5, asm.R2, "word"),
		asm.Mov.Reg(asm.R1, asm.R0).WithSymbol("sum"),
		asm.RSh.Imm(asm.R1, 16),
		asm.And.Imm(asm.R0, 0xffff),
		asm.Add.Reg(asm.R0, asm.R1),
		asm.Mov.Imm(asm.R1, abi.FilterDrop),
		asm.JNE.Imm(asm.R0, 0xffff, "out"),
	}, leave(abi.FilterPass))
}

func globalVariables() asm.Instructions {
	return asm.Instructions{
		asm.LoadMapValue(asm.R6, globals, 8),
		asm.Mov.Imm(asm.R7, 1),
		asm.FetchAdd.Mem(asm.R6, asm.R7, asm.Word, 0),
		asm.Mov.Imm(asm.R0, 0),
		asm.Mov.Imm(asm.R8, 5),
		asm.CmpXchg.Mem(asm.R6, asm.R8, asm.DWord, 8),
		asm.Xchg.Mem(asm.R6, asm.R8, asm.DWord, 16),
		asm.LoadMem(asm.R1, asm.R6, 3, asm.Half),
		asm.StoreImm(asm.R6, 1, 7, asm.Byte),
		asm.And.Imm(asm.R7, 7),
		asm.Add.Reg(asm.R6, asm.R7),
		asm.StoreMem(asm.R6, 0, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R0, abi.FilterPass),
		asm.Return(),
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			report := must.Get(checker.Check(link(t, s.hook, s.code)))(t)
			t.Logf("%+v", report)
			should.Hold(t, s.worst == 0 || report.WorstCase == s.worst, "worst case %d instructions, want %d", report.WorstCase, s.worst)
		})
	}
}

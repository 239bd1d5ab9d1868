package checker_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

func TestFrames(t *testing.T) {
	// checked is a program that knows 14 bytes of the frame, in R6, to be there.
	checked := func(then ...asm.Instruction) asm.Instructions {
		return join(frameStart(14), then, asm.Instructions{asm.Ja.Label("out")}, leave(0))
	}
	load := asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte)
	index := asm.LoadMem(asm.R4, asm.R6, 0, asm.Byte)
	one := asm.Mov.Imm(asm.R3, 1)
	testRules(t, []rule{
		{"inside", abi.DemuxRx, checked(asm.LoadMem(asm.R3, asm.R6, 10, asm.Word)), nil, 0, ""},
		{"behind", abi.DemuxRx, checked(asm.LoadMem(asm.R3, asm.R6, 11, asm.Word)), checker.ErrBounds, 5, "11 to 14"},
		{"before", abi.DemuxRx, checked(asm.LoadMem(asm.R3, asm.R6, -1, asm.Byte)), checker.ErrBounds, 5, "-1"},
		{"moved", abi.DemuxRx, checked(asm.Add.Imm(asm.R6, 10), asm.LoadMem(asm.R3, asm.R6, 0, asm.Word)), nil, 0, ""},
		{"moved too far", abi.DemuxRx, checked(asm.Add.Imm(asm.R6, 11), asm.LoadMem(asm.R3, asm.R6, 0, asm.Word)), checker.ErrBounds, 6, ""},
		{"moved by a number", abi.DemuxRx, checked(index, asm.Add.Reg(asm.R6, asm.R4), load), checker.ErrBounds, 7, "shown 0"},
		{"moved and compared", abi.DemuxRx, checked(index, asm.Add.Reg(asm.R6, asm.R4), asm.Mov.Reg(asm.R5, asm.R6),
			asm.Add.Imm(asm.R5, 1), asm.JGT.Reg(asm.R5, asm.R7, "out"), load), nil, 0, ""},
		{"not compared", abi.DemuxRx, answer(asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word), load), checker.ErrBounds, 1, "shown 0"},
		{"store in filter/rx", abi.FilterRx, checked(asm.StoreImm(asm.R6, 0, 1, asm.Word)), nil, 0, ""},
		{"store in filter/tx", abi.FilterTx, checked(one, asm.StoreMem(asm.R6, 6, asm.R3, asm.DWord)), nil, 0, ""},
		{"store in demux/rx", abi.DemuxRx, checked(asm.StoreImm(asm.R6, 0, 1, asm.Word)), checker.ErrReadOnly, 5, "filter hooks"},
		{"store behind", abi.FilterTx, checked(asm.StoreImm(asm.R6, 14, 1, asm.Byte)), checker.ErrBounds, 5, ""},
		{"leak", abi.FilterTx, checked(asm.StoreMem(asm.R6, 0, asm.R10, asm.DWord)), checker.ErrLeak, 5, "the stack"},
		{"atomic", abi.FilterTx, checked(one, asm.AddAtomic.Mem(asm.R6, asm.R3, asm.Word, 0)), checker.ErrNotPointer, 6, "atomic"},
		{"length", abi.DemuxRx, checked(asm.Sub.Reg(asm.R7, asm.R6), asm.JGT.Imm(asm.R7, 1500, "out")), nil, 0, ""},
		{"length on 32 bits", abi.DemuxRx, checked(asm.Mov.Reg32(asm.R3, asm.R7), asm.Sub.Reg32(asm.R3, asm.R6), asm.JGT.Imm32(asm.R3, 1500, "out")), nil, 0, ""},
		{"length of two halves", abi.DemuxRx, checked(asm.Mov.Reg32(asm.R3, asm.R7), asm.Mov.Reg32(asm.R4, asm.R6), asm.Sub.Reg32(asm.R3, asm.R4),
			asm.Add.Imm(asm.R3, 1)), nil, 0, ""},
		{"half of an address", abi.DemuxRx, checked(asm.Mov.Reg32(asm.R3, asm.R7), asm.Add.Imm32(asm.R3, 1)), checker.ErrPointer, 6, "half"},
		{"halves on 64 bits", abi.DemuxRx, checked(asm.Mov.Reg32(asm.R3, asm.R7), asm.Mov.Reg32(asm.R4, asm.R6), asm.Sub.Reg(asm.R3, asm.R4)),
			checker.ErrPointer, 7, ""},
		{"half of an address as an address", abi.DemuxRx, checked(asm.Mov.Reg32(asm.R3, asm.R6), asm.LoadMem(asm.R4, asm.R3, 0, asm.Byte)),
			checker.ErrNotPointer, 6, "half"},
		{"half of an address as answer", abi.DemuxRx, asm.Instructions{asm.LoadMem(asm.R0, asm.R1, abi.FrameData, asm.Word),
			asm.Mov.Reg32(asm.R0, asm.R0), asm.Return()}, checker.ErrLeak, 2, "half"},
		{"end as an address", abi.DemuxRx, checked(asm.LoadMem(asm.R3, asm.R7, -1, asm.Byte)), checker.ErrNotPointer, 5, "the end of the frame"},
		{"arithmetic on the end", abi.DemuxRx, checked(asm.Add.Imm(asm.R7, -1)), checker.ErrPointer, 5, "the end of the frame"},
		{"metadata", abi.DemuxRx, answer(asm.LoadMem(asm.R6, asm.R1, abi.FrameMeta, asm.Word), load), checker.ErrNotPointer, 1, "metadata"},
		{"metadata compared with the end", abi.DemuxRx, join(asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, abi.FrameMeta, asm.Word),
			asm.LoadMem(asm.R7, asm.R1, abi.FrameDataEnd, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R6), asm.Add.Imm(asm.R2, 8), asm.JGT.Reg(asm.R2, asm.R7, "out"), load,
		}, leave(0)), checker.ErrNotPointer, 5, "metadata"},
		{"wrong side", abi.DemuxRx, join(asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word),
			asm.LoadMem(asm.R7, asm.R1, abi.FrameDataEnd, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R6), asm.Add.Imm(asm.R2, 8), asm.JLT.Reg(asm.R2, asm.R7, "out"), load,
		}, leave(0)), checker.ErrBounds, 5, ""},
		{"offset beyond 64 KiB", abi.DemuxRx, join(asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word),
			asm.LoadMem(asm.R7, asm.R1, abi.FrameDataEnd, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R6), asm.Add.Imm(asm.R2, 1<<16), asm.JGT.Reg(asm.R2, asm.R7, "out"), load,
		}, leave(0)), checker.ErrBounds, 5, ""},
	})
}

// Each comparison with the end shows as many bytes as it says, and no more.
func TestComparisonsWithEnd(t *testing.T) {
	tests := []struct {
		name  string
		jump  asm.Instruction // to "out"; R2 is 8 bytes into the frame
		taken bool            // the access is on the taken side
		last  int16           // byte that is shown
	}{
		{"not above the end", asm.JGT.Reg(asm.R2, asm.R7, "side"), false, 7},
		{"below the end", asm.JGE.Reg(asm.R2, asm.R7, "side"), false, 8},
		{"below the end, taken", asm.JLT.Reg(asm.R2, asm.R7, "side"), true, 8},
		{"not above the end, taken", asm.JLE.Reg(asm.R2, asm.R7, "side"), true, 7},
		{"end not below", asm.JLT.Reg(asm.R7, asm.R2, "side"), false, 7},
		{"end above", asm.JLE.Reg(asm.R7, asm.R2, "side"), false, 8},
		{"end above, taken", asm.JGT.Reg(asm.R7, asm.R2, "side"), true, 8},
		{"end not below, taken", asm.JGE.Reg(asm.R7, asm.R2, "side"), true, 7},
	}
	for _, tt := range tests {
		program := func(last int16, otherSide bool) asm.Instructions {
			access := asm.LoadMem(asm.R3, asm.R6, last, asm.Byte)
			nothing := asm.Mov.Imm(asm.R3, 0)
			first, second := nothing, access
			if tt.taken == otherSide {
				first, second = access, nothing
			}
			return asm.Instructions{
				asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word),
				asm.LoadMem(asm.R7, asm.R1, abi.FrameDataEnd, asm.Word),
				asm.Mov.Reg(asm.R2, asm.R6),
				asm.Add.Imm(asm.R2, 8),
				tt.jump,
				first,
				asm.Ja.Label("end"),
				second.WithSymbol("side"),
				asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
				asm.Return(),
			}
		}
		slot := 5
		if tt.taken {
			slot = 7
		}
		testRules(t, []rule{
			{tt.name, abi.DemuxRx, program(tt.last, false), nil, 0, ""},
			{tt.name + ", a byte more", abi.DemuxRx, program(tt.last+1, false), checker.ErrBounds, slot, ""},
			{tt.name + ", other side", abi.DemuxRx, program(0, true), checker.ErrBounds, 12 - slot, ""},
		})
	}
}

// What compilers make of a pointer from an inlined function that may return null.
func TestFrameNull(t *testing.T) {
	half := asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word)
	program := func(code ...asm.Instruction) asm.Instructions { return join(code, leave(0)) }
	testAccepted(t, []rule{
		{"equal", abi.FilterRx, program(half, asm.JEq.Imm32(asm.R6, 0, "out")), nil, 0, ""},
		{"unequal", abi.FilterRx, program(half, asm.JNE.Imm32(asm.R6, 0, "out")), nil, 0, ""},
		{"half", abi.FilterRx, program(half, asm.Mov.Reg32(asm.R2, asm.R6), asm.JEq.Imm32(asm.R2, 0, "out")), nil, 0, ""},
		{"another number", abi.FilterRx, program(half, asm.JEq.Imm32(asm.R6, 1, "out")), checker.ErrPointer, 1, "32 bits"},
		{"less", abi.FilterRx, program(half, asm.JGT.Imm32(asm.R6, 0, "out")), checker.ErrPointer, 1, "32 bits"},
		{"the stack", abi.FilterRx, program(asm.JEq.Imm32(asm.R10, 0, "out")), checker.ErrPointer, 0, "32 bits"},
		{"nothing is learned", abi.FilterRx, program(half, asm.JEq.Imm32(asm.R6, 0, "out"), asm.LoadMem(asm.R2, asm.R6, 0, asm.Byte)),
			checker.ErrBounds, 2, "shown 0"},
	})
}

func TestHelpers(t *testing.T) {
	key := asm.StoreImm(asm.R10, -4, 0, asm.Word)
	then := func(code ...asm.Instruction) asm.Instructions {
		return join(asm.Instructions{key}, lookup(table, -4), asm.Instructions(code), exitWith(0))
	}
	checkedNull := func(code ...asm.Instruction) asm.Instructions {
		return join(asm.Instructions{key}, lookup(table, -4), asm.Instructions{asm.JEq.Imm(asm.R0, 0, "out")}, asm.Instructions(code), leave(0))
	}
	load := asm.LoadMem(asm.R3, asm.R0, 0, asm.Byte)
	update := func(before ...asm.Instruction) asm.Instructions {
		return join(asm.Instructions{
			key, asm.LoadMapPtr(asm.R1, table), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4),
			asm.Mov.Reg(asm.R3, asm.R2), asm.Mov.Imm(asm.R4, 0),
		}, before, asm.Instructions{asm.FnMapUpdateElem.Call()}, exitWith(0))
	}
	testRules(t, []rule{
		{"not compared", abi.PulseTx, then(load), checker.ErrNull, 6, "null"},
		{"arithmetic before comparison", abi.PulseTx, then(asm.Add.Imm(asm.R0, 1)), checker.ErrNull, 6, ""},
		{"compared", abi.PulseTx, checkedNull(load), nil, 0, ""},
		{"last byte", abi.PulseTx, checkedNull(asm.LoadMem(asm.R3, asm.R0, 15, asm.Byte)), nil, 0, ""},
		{"behind the value", abi.PulseTx, checkedNull(asm.LoadMem(asm.R3, asm.R0, 16, asm.Byte)), checker.ErrBounds, 7, "16 to 16"},
		{"compared by a copy", abi.PulseTx, then(asm.Mov.Reg(asm.R6, asm.R0), asm.JNE.Imm(asm.R6, 0, "some"), asm.Ja.Label("none"),
			load.WithSymbol("some"), asm.Mov.Imm(asm.R0, 0).WithSymbol("none")), nil, 0, ""},
		{"the other side", abi.PulseTx, join(asm.Instructions{key}, lookup(table, -4), asm.Instructions{asm.JNE.Imm(asm.R0, 0, "out"), load}, leave(0)),
			checker.ErrNotPointer, 7, "the number 0"},
		{"two lookups", abi.PulseTx, join(asm.Instructions{key}, lookup(table, -4), asm.Instructions{asm.Mov.Reg(asm.R6, asm.R0)}, lookup(table, -4),
			asm.Instructions{asm.JEq.Imm(asm.R0, 0, "out"), asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte)}, leave(0)), checker.ErrNull, 13, ""},
		{"key never written", abi.PulseTx, join(lookup(table, -4), exitWith(0)), checker.ErrUninitialized, 4, "map_lookup_elem"},
		{"key half written", abi.PulseTx, join(asm.Instructions{key}, lookup(flows, -16), exitWith(0)), checker.ErrUninitialized, 5, "r10-1 that at r10-8"},
		{"key outside", abi.PulseTx, join(asm.Instructions{key}, lookup(table, -2), exitWith(0)), checker.ErrBounds, 5, "map_lookup_elem"},
		{"key in the frame", abi.DemuxRx, join(frameStart(14), asm.Instructions{asm.LoadMapPtr(asm.R1, table), asm.Mov.Reg(asm.R2, asm.R6),
			asm.FnMapLookupElem.Call()}, leave(0)), nil, 0, ""},
		{"key behind the frame", abi.DemuxRx, join(frameStart(3), asm.Instructions{asm.LoadMapPtr(asm.R1, table), asm.Mov.Reg(asm.R2, asm.R6),
			asm.FnMapLookupElem.Call()}, leave(0)), checker.ErrBounds, 8, ""},
		{"key in a value", abi.PulseTx, answer(asm.LoadMapPtr(asm.R1, table), asm.LoadMapValue(asm.R2, globals, 28), asm.FnMapLookupElem.Call()), nil, 0, ""},
		{"key in the context", abi.PulseTx, answer(asm.Mov.Reg(asm.R2, asm.R1), asm.LoadMapPtr(asm.R1, table), asm.FnMapLookupElem.Call()),
			checker.ErrArgument, 3, "the context"},
		{"key is an address", abi.PulseTx, join(asm.Instructions{asm.StoreMem(asm.R10, -8, asm.R10, asm.DWord)}, lookup(table, -8), exitWith(0)),
			checker.ErrPointer, 5, "hold the stack"},
		{"no map", abi.PulseTx, answer(key, asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4), asm.FnMapLookupElem.Call()),
			checker.ErrArgument, 3, "not a map"},
		{"no key", abi.PulseTx, answer(asm.LoadMapPtr(asm.R1, table), asm.FnMapLookupElem.Call()), checker.ErrUninitialized, 2, "r2"},
		{"number as key", abi.PulseTx, answer(asm.LoadMapPtr(asm.R1, table), asm.Mov.Imm(asm.R2, 0), asm.FnMapLookupElem.Call()),
			checker.ErrArgument, 3, "4 bytes"},
		{"value too short", abi.PulseTx, update(), checker.ErrBounds, 7, "map_update_elem"},
		{"update", abi.PulseTx, update(asm.LoadMapValue(asm.R3, rodata, 48)), nil, 0, ""},
		{"flags are an address", abi.PulseTx, update(asm.LoadMapValue(asm.R3, rodata, 48), asm.Mov.Reg(asm.R4, asm.R10)),
			checker.ErrArgument, 10, "not a number"},
		{"update of read-only data", abi.PulseTx, update(asm.LoadMapValue(asm.R3, globals, 0), asm.LoadMapPtr(asm.R1, rodata)),
			checker.ErrReadOnly, 11, ".rodata"},
		{"delete from read-only data", abi.PulseTx, answer(key, asm.LoadMapPtr(asm.R1, rodata), asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4), asm.FnMapDeleteElem.Call()), checker.ErrReadOnly, 5, ".rodata"},
		{"delete", abi.PulseTx, answer(key, asm.LoadMapPtr(asm.R1, table), asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4), asm.FnMapDeleteElem.Call()), nil, 0, ""},
	})
}

package checker_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

func TestContext(t *testing.T) {
	load := func(off int16, size asm.Size) asm.Instructions { return answer(asm.LoadMem(asm.R2, asm.R1, off, size)) }
	testRules(t, []rule{
		{"pulse field", abi.PulseRx, load(abi.PulseFrame, asm.Word), nil, 0, ""},
		{"pulse half field", abi.PulseRx, load(abi.PulseFrame+2, asm.Half), nil, 0, ""},
		{"pulse last byte", abi.PulseRx, load(abi.PulseSize-1, asm.Byte), nil, 0, ""},
		{"pulse signed", abi.PulseRx, answer(asm.LoadMemSX(asm.R2, asm.R1, 4, asm.Word)), nil, 0, ""},
		{"pulse behind", abi.PulseRx, load(abi.PulseSize, asm.Byte), checker.ErrBounds, 0, "of 24"},
		{"pulse before", abi.PulseRx, load(-4, asm.Word), checker.ErrBounds, 0, "at -4"},
		{"pulse two fields", abi.PulseRx, load(0, asm.DWord), checker.ErrAlignment, 0, "8 bytes"},
		{"pulse misaligned", abi.PulseRx, load(2, asm.Word), checker.ErrAlignment, 0, "4 bytes at 2"},
		{"pulse store", abi.PulseRx, answer(asm.StoreImm(asm.R1, 0, 1, asm.Word)), checker.ErrReadOnly, 0, "context"},
		{"pulse atomic", abi.PulseRx, answer(asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R1, asm.R2, asm.Word, 0)),
			checker.ErrReadOnly, 1, "context"},
		{"frame queue", abi.DemuxRx, load(abi.FrameQueue, asm.Word), nil, 0, ""},
		{"frame queue by bytes", abi.DemuxRx, load(abi.FrameQueue, asm.Byte), checker.ErrAlignment, 0, "whole"},
		{"frame between fields", abi.DemuxRx, load(2, asm.Word), checker.ErrAlignment, 0, "whole"},
		{"frame last field of the kernel's", abi.DemuxRx, load(abi.FrameContextSize, asm.Word), checker.ErrBounds, 0, "of 20"},
		{"frame data sign extended", abi.DemuxRx, answer(asm.LoadMemSX(asm.R2, asm.R1, 0, asm.Word)), checker.ErrPointer, 0, "sign"},
		{"frame store", abi.FilterTx, answer(asm.StoreImm(asm.R1, 16, 1, asm.Word)), checker.ErrReadOnly, 0, "context"},
	})
}

func TestStack(t *testing.T) {
	store := func(off int16, size asm.Size) asm.Instruction { return asm.StoreMem(asm.R10, off, asm.R1, size) }
	number := func(off int16, size asm.Size) asm.Instruction { return asm.StoreImm(asm.R10, off, 3, size) }
	small := []asm.Instruction{asm.LoadMem(asm.R2, asm.R1, 0, asm.Byte), asm.And.Imm(asm.R2, 8), asm.Mov.Reg(asm.R3, asm.R10),
		asm.Add.Reg(asm.R3, asm.R2)}
	testRules(t, []rule{
		{"deepest", abi.PulseTx, answer(number(-512, asm.Word), asm.LoadMem(asm.R2, asm.R10, -512, asm.Word)), nil, 0, ""},
		{"too deep", abi.PulseTx, answer(number(-513, asm.Byte)), checker.ErrBounds, 0, "r10-513"},
		{"above", abi.PulseTx, answer(number(0, asm.Byte)), checker.ErrBounds, 0, "r10+0"},
		{"across the end", abi.PulseTx, answer(number(-4, asm.Word), store(-4, asm.DWord)), checker.ErrBounds, 1, ""},
		{"misaligned", abi.PulseTx, answer(number(-6, asm.Word)), checker.ErrAlignment, 0, "r10-6"},
		{"never written", abi.PulseTx, answer(asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)), checker.ErrUninitialized, 0, "r10-8"},
		{"half written", abi.PulseTx, answer(number(-8, asm.Word), asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)),
			checker.ErrUninitialized, 1, ""},
		{"written in parts", abi.PulseTx, answer(number(-8, asm.Word), number(-4, asm.Half), number(-2, asm.Byte), number(-1, asm.Byte),
			asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord)), nil, 0, ""},
		{"written on one path", abi.PulseTx, asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.JEq.Imm(asm.R2, 0, "end"), number(-8, asm.Word),
			asm.LoadMem(asm.R0, asm.R10, -8, asm.Word).WithSymbol("end"), asm.Return(),
		}, checker.ErrUninitialized, 3, ""},
		{"spilled address", abi.PulseTx, answer(store(-8, asm.DWord), asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord),
			asm.LoadMem(asm.R3, asm.R2, 0, asm.Word)), nil, 0, ""},
		{"part of an address", abi.PulseTx, answer(store(-8, asm.Word)), checker.ErrPointer, 0, "4 bytes of the context"},
		{"part of a spilled address", abi.PulseTx, answer(store(-8, asm.DWord), asm.LoadMem(asm.R2, asm.R10, -8, asm.Word)),
			checker.ErrPointer, 1, "hold the context"},
		{"rest of a spilled address", abi.PulseTx, answer(store(-8, asm.DWord), number(-8, asm.Word), asm.LoadMem(asm.R2, asm.R10, -4, asm.Word)),
			checker.ErrUninitialized, 2, ""},
		{"spilled number keeps its bounds", abi.PulseTx, answer(asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.And.Imm(asm.R2, 31),
			asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord), asm.LoadMem(asm.R3, asm.R10, -8, asm.DWord),
			asm.LoadMapValue(asm.R4, globals, 0), asm.Add.Reg(asm.R4, asm.R3), asm.LoadMem(asm.R5, asm.R4, 0, asm.Byte)), nil, 0, ""},
		{"overwritten number loses them", abi.PulseTx, answer(asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.And.Imm(asm.R2, 31),
			asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord), number(-7, asm.Byte), asm.LoadMem(asm.R3, asm.R10, -8, asm.DWord),
			asm.LoadMapValue(asm.R4, globals, 0), asm.Add.Reg(asm.R4, asm.R3), asm.LoadMem(asm.R5, asm.R4, 0, asm.Byte)),
			checker.ErrBounds, 7, ""},
		{"variable load", abi.PulseTx, answer(join(small, asm.Instructions{number(-16, asm.Word), number(-8, asm.Word),
			asm.LoadMem(asm.R4, asm.R3, -16, asm.Word)})...), checker.ErrUninitialized, 6, "r10-16 to r10-5"},
		{"variable load of what is written", abi.PulseTx, answer(join(small, asm.Instructions{asm.Mov.Imm(asm.R5, 1),
			asm.StoreMem(asm.R10, -16, asm.R5, asm.DWord), asm.StoreMem(asm.R10, -8, asm.R5, asm.DWord),
			asm.LoadMem(asm.R4, asm.R3, -16, asm.DWord)})...), nil, 0, ""},
		{"variable store writes nothing for sure", abi.PulseTx, answer(join(small, asm.Instructions{
			asm.StoreImm(asm.R3, -16, 1, asm.Word), asm.LoadMem(asm.R4, asm.R10, -16, asm.Word)})...), checker.ErrUninitialized, 5, ""},
		{"variable store of an address", abi.PulseTx, answer(join(small, asm.Instructions{
			asm.StoreMem(asm.R3, -16, asm.R1, asm.DWord)})...), checker.ErrPointer, 4, "not known"},
		{"variable offset without bounds", abi.PulseTx, answer(asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Reg(asm.R3, asm.R2), asm.StoreImm(asm.R3, -16, 1, asm.Byte)), checker.ErrBounds, 2, "limit"},
		{"variable offset out of the stack", abi.PulseTx, answer(join(small, asm.Instructions{
			asm.StoreImm(asm.R3, -8, 1, asm.Word)})...), checker.ErrBounds, 4, ""},
		{"variable atomic", abi.PulseTx, answer(join(small, asm.Instructions{asm.Mov.Imm(asm.R5, 1),
			asm.StoreMem(asm.R10, -16, asm.R5, asm.DWord), asm.StoreMem(asm.R10, -8, asm.R5, asm.DWord),
			asm.AddAtomic.Mem(asm.R3, asm.R5, asm.DWord, -16)})...), checker.ErrBounds, 7, "atomic"},
	})
}

func TestMapValues(t *testing.T) {
	at := func(m int, offset uint32, then ...asm.Instruction) asm.Instructions {
		return answer(append(asm.Instructions{asm.LoadMapValue(asm.R6, m, offset)}, then...)...)
	}
	bounded := asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.And.Imm(asm.R2, 24)}
	testRules(t, []rule{
		{"last byte", abi.PulseTx, at(globals, 31, asm.LoadMem(asm.R2, asm.R6, 0, asm.Byte)), nil, 0, ""},
		{"behind", abi.PulseTx, at(globals, 29, asm.LoadMem(asm.R2, asm.R6, 0, asm.Word)), checker.ErrBounds, 2, "29 to 32"},
		{"before", abi.PulseTx, at(globals, 0, asm.LoadMem(asm.R2, asm.R6, -1, asm.Byte)), checker.ErrBounds, 2, "-1"},
		{"unaligned", abi.PulseTx, at(globals, 1, asm.LoadMem(asm.R2, asm.R6, 2, asm.Word)), nil, 0, ""},
		{"variable", abi.PulseTx, join(bounded, at(globals, 0, asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord))),
			nil, 0, ""},
		{"variable behind", abi.PulseTx, join(bounded, at(globals, 1, asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord))),
			checker.ErrBounds, 5, "1 to 32"},
		{"variable before", abi.PulseTx, join(bounded, at(globals, 0, asm.Sub.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord))),
			checker.ErrBounds, 5, ""},
		{"no upper bound", abi.PulseTx, join(bounded[:1], at(globals, 0, asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte))),
			checker.ErrBounds, 3, "limit"},
		{"variable that may be negative", abi.PulseTx, join(asm.Instructions{asm.LoadMemSX(asm.R2, asm.R1, 0, asm.Byte), asm.And.Imm(asm.R2, -2),
			asm.JSLT.Imm(asm.R2, -2, "out"), asm.JSGT.Imm(asm.R2, 2, "out")}, asm.Instructions{asm.LoadMapValue(asm.R6, globals, 8),
			asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte)}, leave(0)), checker.ErrBounds, 7, "negative"},
		{"read-only load", abi.PulseTx, at(rodata, 0, asm.LoadMem(asm.R2, asm.R6, 0, asm.DWord)), nil, 0, ""},
		{"read-only store", abi.PulseTx, at(rodata, 0, asm.StoreImm(asm.R6, 0, 1, asm.Word)), checker.ErrReadOnly, 2, ".rodata"},
		{"read-only atomic", abi.PulseTx, at(rodata, 0, asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R6, asm.R2, asm.Word, 0)),
			checker.ErrReadOnly, 3, ".rodata"},
		{"leak", abi.PulseTx, at(globals, 0, asm.StoreMem(asm.R6, 0, asm.R10, asm.DWord)), checker.ErrLeak, 2, "the stack"},
		{"atomic leak", abi.PulseTx, at(globals, 0, asm.Xchg.Mem(asm.R6, asm.R1, asm.DWord, 0)), checker.ErrLeak, 2, "the context"},
		{"atomic leak of r0", abi.PulseTx, at(globals, 0, asm.Mov.Reg(asm.R0, asm.R1), asm.Mov.Imm(asm.R2, 0),
			asm.CmpXchg.Mem(asm.R6, asm.R2, asm.DWord, 0)), checker.ErrLeak, 4, "the context"},
		{"atomic without r0", abi.PulseTx, at(globals, 0, asm.Mov.Imm(asm.R2, 0), asm.CmpXchg.Mem(asm.R6, asm.R2, asm.DWord, 0)),
			checker.ErrUninitialized, 3, "r0"},
		{"misaligned atomic", abi.PulseTx, at(globals, 2, asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R6, asm.R2, asm.Word, 0)),
			checker.ErrAlignment, 3, "4 bytes"},
		{"fetched number", abi.PulseTx, at(globals, 0, asm.Mov.Imm(asm.R2, 1), asm.FetchAdd.Mem(asm.R6, asm.R2, asm.Word, 0),
			asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte)), checker.ErrBounds, 4, "4294967295"},
	})
}

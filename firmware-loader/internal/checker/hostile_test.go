package checker_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/seed"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// store8 is a store of 8 bytes of zeros, which package asm does not make.
func store8(base asm.Register, off int16) asm.Instruction {
	return asm.Instruction{OpCode: asm.StoreImmOp(asm.Word).SetSize(asm.DWord), Dst: base, Offset: off}
}

// encoded returns the bytes of a program after a change.
func encoded(t testing.TB, code asm.Instructions, change func(b []byte) []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	encodeAtomics(code)
	must.OK(t, code.Marshal(&b, binary.LittleEndian))
	if change == nil {
		return b.Bytes()
	}
	return change(b.Bytes())
}

// hostile is a program that somebody made to get what programs may not have.
type hostile struct {
	name   string
	hook   abi.Hook
	code   asm.Instructions
	change func(b []byte) []byte
	reason error // nil: it is harmless
}

func hostilePrograms() []hostile {
	key := asm.StoreImm(asm.R10, -4, 0, asm.Word)
	value := asm.LoadMapValue(asm.R6, globals, 0)
	found := func(then ...asm.Instruction) asm.Instructions {
		return join(asm.Instructions{key}, lookup(table, -4), asm.Instructions{asm.JEq.Imm(asm.R0, 0, "out")}, then, leave(0))
	}
	inFrame := func(then ...asm.Instruction) asm.Instructions { return join(frameStart(16), then, leave(0)) }
	xchg := func(base, src asm.Register) asm.Instruction { return asm.Xchg.Mem(base, src, asm.DWord, 0) }
	policy := pulsePolicy()
	flip := func(at int, bit byte) func(b []byte) []byte {
		return func(b []byte) []byte { b[at] ^= bit; return b }
	}
	return []hostile{
		// Damage.
		{"truncated", abi.PulseTx, policy, func(b []byte) []byte { return b[:len(b)-16] }, checker.ErrJump},
		{"truncated-before-exit", abi.PulseTx, exitWith(0), func(b []byte) []byte { return b[:8] }, checker.ErrNoExit},
		{"corrupted", abi.PulseTx, policy, func(b []byte) []byte { copy(b[8:], "\xff\xff\xff\xff\xff\xff\xff\xff"); return b }, checker.ErrRegister},
		{"bit-flipped-register", abi.PulseTx, policy, flip(1, 0x80), checker.ErrUninitialized},
		{"bit-flipped-offset", abi.PulseTx, policy, flip(2, 0x20), checker.ErrBounds},
		{"bit-flipped-class", abi.PulseTx, policy, flip(0, 0x01), checker.ErrInstruction},
		{"wrong-endian", abi.PulseTx, policy, func(b []byte) []byte {
			for at := 0; at < len(b); at += 8 {
				b[at+1] = b[at+1]<<4 | b[at+1]>>4
				slices.Reverse(b[at+2 : at+4])
				slices.Reverse(b[at+4 : at+8])
			}
			return b
		}, checker.ErrJump},
		// Control.
		{"jump-to-itself", abi.PulseTx, asm.Instructions{jump(asm.Ja.Label(""), -1), asm.Mov.Imm(asm.R0, 0), asm.Return()}, nil, checker.ErrUnreachable},
		{"jump-before-the-start", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 0), jump(asm.JEq.Imm(asm.R0, 0, ""), -3), asm.Return()}, nil, checker.ErrJump},
		{"into-a-wide-load", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), jump(asm.JEq.Imm(asm.R0, 1, ""), 1), asm.LoadImm(asm.R2, 0x95, asm.DWord), asm.Return(),
		}, nil, checker.ErrJump},
		{"long-jump-outside", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), {OpCode: asm.OpCode(asm.Jump32Class).SetJumpOp(asm.Ja), Constant: 1 << 30}, asm.Return(),
		}, nil, checker.ErrJump},
		{"loop-that-wraps", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.Add.Imm32(asm.R0, 1).WithSymbol("again"), asm.JNE.Imm(asm.R0, 0, "again"), asm.Return(),
		}, nil, checker.ErrBudget},
		// Arithmetic.
		{"division-by-zero", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Div.Imm(asm.R0, 0), asm.Return()}, nil, checker.ErrField},
		{"division-by-zero-in-a-register", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 1), asm.Mov.Imm(asm.R2, 0), asm.Div.Reg(asm.R0, asm.R2), asm.SMod.Reg32(asm.R0, asm.R2), asm.Return(),
		}, nil, nil},
		{"least-number-by-minus-one", abi.PulseTx, asm.Instructions{
			asm.LoadImm(asm.R0, -1<<63, asm.DWord), asm.Mov.Imm(asm.R2, -1), asm.SDiv.Reg(asm.R0, asm.R2), asm.SMod.Reg(asm.R0, asm.R2), asm.Return(),
		}, nil, nil},
		{"shift-by-64", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.LSh.Imm(asm.R0, 64), asm.Return()}, nil, checker.ErrField},
		{"shift-of-32-bits-by-32", abi.PulseTx, asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.RSh.Imm32(asm.R0, 32), asm.Return()}, nil, checker.ErrField},
		{"shift-by-64-in-a-register", abi.PulseTx, answer(value, asm.Mov.Imm(asm.R2, 1), asm.Mov.Imm(asm.R3, 64), asm.LSh.Reg(asm.R2, asm.R3),
			asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R4, asm.R6, 0, asm.Byte)), nil, checker.ErrBounds},
		{"offset-that-overflows", abi.PulseTx, answer(value, asm.LoadImm(asm.R2, 1<<62, asm.DWord), asm.Add.Reg(asm.R6, asm.R2),
			asm.Add.Reg(asm.R6, asm.R2), asm.Add.Reg(asm.R6, asm.R2), asm.Add.Reg(asm.R6, asm.R2)), nil, checker.ErrBounds},
		{"offset-of-an-access-that-overflows", abi.PulseTx, answer(value, asm.Add.Imm(asm.R6, 1<<29-1), asm.LoadMem(asm.R2, asm.R6, 32767, asm.Byte)), nil, checker.ErrBounds},
		{"sum-that-wraps-to-the-start", abi.PulseTx, answer(value, asm.LoadMem(asm.R2, asm.R6, 0, asm.DWord), asm.Mov.Reg(asm.R3, asm.R2), asm.Add.Imm(asm.R3, 8),
			asm.JGT.Imm(asm.R3, 16, "end"), asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R4, asm.R6, 0, asm.Byte), asm.Mov.Imm(asm.R0, 0).WithSymbol("end")), nil, checker.ErrBounds},
		{"signed-limit-only", abi.PulseTx, answer(value, asm.LoadMemSX(asm.R2, asm.R6, 0, asm.Word), asm.JSGT.Imm(asm.R2, 8, "end"), asm.Add.Reg(asm.R6, asm.R2),
			asm.LoadMem(asm.R4, asm.R6, 0, asm.Byte), asm.Mov.Imm(asm.R0, 0).WithSymbol("end")), nil, checker.ErrBounds},
		{"limit-of-the-low-half", abi.PulseTx, answer(value, asm.LoadMem(asm.R2, asm.R6, 0, asm.DWord), asm.JGT.Imm32(asm.R2, 8, "end"), asm.Add.Reg(asm.R6, asm.R2),
			asm.LoadMem(asm.R4, asm.R6, 0, asm.Byte), asm.Mov.Imm(asm.R0, 0).WithSymbol("end")), nil, checker.ErrBounds},
		// Memory that programs do not write.
		{"atomic-on-the-frame", abi.FilterRx, inFrame(asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R6, asm.R2, asm.DWord, 0)), nil, checker.ErrNotPointer},
		{"atomic-on-the-context", abi.FilterRx, answer(asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R1, asm.R2, asm.Word, 16)), nil, checker.ErrReadOnly},
		{"atomic-on-read-only-data", abi.PulseTx, answer(asm.LoadMapValue(asm.R6, rodata, 0), asm.Mov.Imm(asm.R2, 1),
			asm.CmpXchg.Mem(asm.R6, asm.R2, asm.DWord, 0)), nil, checker.ErrUninitialized},
		{"exchange-with-read-only-data", abi.PulseTx, answer(asm.LoadMapValue(asm.R6, rodata, 0), asm.Mov.Imm(asm.R2, 1), xchg(asm.R6, asm.R2)), nil, checker.ErrReadOnly},
		{"store-to-the-frame-in-demux", abi.DemuxRx, inFrame(asm.StoreImm(asm.R6, 0, 1, asm.Byte)), nil, checker.ErrReadOnly},
		{"store-to-the-end-of-the-frame", abi.FilterRx, inFrame(asm.StoreImm(asm.R7, 0, 1, asm.Byte)), nil, checker.ErrNotPointer},
		{"misaligned-atomic", abi.PulseTx, answer(value, asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R6, asm.R2, asm.DWord, 4)), nil, checker.ErrAlignment},
		// Addresses that leave.
		{"address-into-a-value", abi.PulseTx, found(asm.StoreMem(asm.R0, 0, asm.R10, asm.DWord)), nil, checker.ErrLeak},
		{"address-exchanged-into-a-value", abi.PulseTx, found(asm.Mov.Reg(asm.R2, asm.R10), xchg(asm.R0, asm.R2)), nil, checker.ErrLeak},
		{"address-into-the-frame", abi.FilterTx, inFrame(asm.StoreMem(asm.R6, 0, asm.R10, asm.DWord)), nil, checker.ErrLeak},
		{"address-in-a-key", abi.PulseTx, join(asm.Instructions{asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord)}, lookup(table, -4), exitWith(0)), nil, checker.ErrPointer},
		{"address-in-a-value-to-store", abi.PulseTx, answer(asm.StoreMem(asm.R10, -16, asm.R10, asm.DWord), store8(asm.R10, -8),
			asm.LoadMapPtr(asm.R1, table), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -8), asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, -16), asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call()), nil, checker.ErrPointer},
		{"half-of-a-spilled-address", abi.PulseTx, answer(asm.StoreMem(asm.R10, -8, asm.R10, asm.DWord), asm.LoadMem(asm.R2, asm.R10, -8, asm.Word)), nil, checker.ErrPointer},
		{"byte-of-a-spilled-address", abi.PulseTx, answer(asm.StoreMem(asm.R10, -8, asm.R10, asm.DWord), asm.LoadMem(asm.R2, asm.R10, -3, asm.Byte)), nil, checker.ErrPointer},
		{"address-spilled-in-halves", abi.PulseTx, answer(asm.StoreMem(asm.R10, -8, asm.R10, asm.Word)), nil, checker.ErrPointer},
		{"spilled-address-changed", abi.PulseTx, answer(asm.StoreMem(asm.R10, -8, asm.R10, asm.DWord), asm.StoreImm(asm.R10, -8, 0, asm.Byte),
			asm.LoadMem(asm.R2, asm.R10, -8, asm.DWord), store8(asm.R2, -16)), nil, checker.ErrUninitialized},
		{"spilled-address-added-to", abi.PulseTx, answer(asm.StoreMem(asm.R10, -8, asm.R10, asm.DWord), asm.Mov.Imm(asm.R2, 64),
			asm.AddAtomic.Mem(asm.R10, asm.R2, asm.DWord, -8)), nil, checker.ErrPointer},
		{"address-by-its-bits", abi.PulseTx, asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.JSet.Imm(asm.R10, 1, "out"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("out"),
		}, nil, checker.ErrPointer},
		{"difference-of-unlike-addresses", abi.FilterRx, inFrame(asm.Sub.Reg(asm.R6, asm.R10)), nil, checker.ErrPointer},
		// What nobody has written.
		{"key-of-the-stack-before", abi.PulseTx, join(lookup(flows, -16), exitWith(0)), nil, checker.ErrUninitialized},
		{"key-with-a-hole", abi.PulseTx, join(asm.Instructions{
			store8(asm.R10, -16), asm.StoreImm(asm.R10, -8, 0, asm.Word), asm.StoreImm(asm.R10, -4, 0, asm.Half),
		}, lookup(flows, -16), exitWith(0)), nil, checker.ErrUninitialized},
		{"arguments-after-a-call", abi.PulseTx, join(asm.Instructions{key}, lookup(table, -4), asm.Instructions{asm.FnMapLookupElem.Call()}, exitWith(0)), nil, checker.ErrUninitialized},
		{"stack-below-its-end", abi.PulseTx, answer(store8(asm.R10, -520)), nil, checker.ErrBounds},
		{"stack-above-its-start", abi.PulseTx, answer(store8(asm.R10, 0)), nil, checker.ErrBounds},
		// Values.
		{"value-after-delete", abi.PulseTx, join(asm.Instructions{
			store8(asm.R10, -16), store8(asm.R10, -8),
		}, lookup(flows, -16), asm.Instructions{
			asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R7, asm.R0), asm.LoadMapPtr(asm.R1, flows), asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -16), asm.FnMapDeleteElem.Call(), store8(asm.R7, 16),
		}, leave(0)), nil, nil},
		{"value-of-another-lookup", abi.PulseTx, found(asm.Mov.Reg(asm.R7, asm.R0), asm.LoadMapPtr(asm.R1, flows), store8(asm.R10, -16),
			store8(asm.R10, -8), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -16), asm.FnMapLookupElem.Call(),
			asm.LoadMem(asm.R2, asm.R0, 0, asm.Byte)), nil, checker.ErrNull},
		{"a-map-as-its-value", abi.PulseTx, answer(asm.LoadMapPtr(asm.R1, table), store8(asm.R1, 0)), nil, checker.ErrNotPointer},
		{"offset-behind-a-variable", abi.PulseTx, answer(asm.LoadMapValue(asm.R1, globals, 31), asm.LoadMem(asm.R2, asm.R1, 0, asm.Half)), nil, checker.ErrBounds},
		{"call-of-a-function", abi.PulseTx, answer(asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: 0}), nil, checker.ErrHelper},
		{"call-of-the-kernel", abi.PulseTx, answer(asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: 1}), nil, checker.ErrHelper},
	}
}

// Hostile programs are refused for the reason that they should be, and those that are
// harmless the kernel takes too. All are seeds of FuzzCheck.
func TestHostilePrograms(t *testing.T) {
	for _, h := range hostilePrograms() {
		t.Run(h.name, func(t *testing.T) {
			raw := encoded(t, h.code, h.change)
			seed.Check(t, "FuzzCheck", h.name, uint8(h.hook), raw)
			code, err := asm.AppendInstructions(nil, bytes.NewReader(raw), binary.LittleEndian, "linux")
			must.OK(t, err)
			p := abi.Program{Hook: h.hook, Instructions: code, Maps: testMaps()}
			_, err = checker.Check(p)
			var refusal *checker.Refusal
			must.Hold(t, errors.Is(err, h.reason) && (err == nil || errors.As(err, &refusal)), "%v, want %v", err, h.reason)
			if err == nil {
				if k := newKernel(t, testMaps()); k.load(p, false) != nil {
					t.Error(k.why(p))
				}
			}
		})
	}
}

package machine_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// amp is pipeline.Eager with MINPULSE as its threshold.
func amp() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, abi.PulseLength, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, abi.PulseArrived, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, abi.PulseSent, asm.Word),
		asm.Mov.Reg(asm.R0, asm.R3),
		asm.Sub.Reg(asm.R0, asm.R4),
		asm.JEq.Reg(asm.R2, asm.R3, "go"),
		asm.LoadMem(asm.R5, asm.R1, abi.PulseMinimum, asm.Word),
		asm.JGE.Reg(asm.R0, asm.R5, "go"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return().WithSymbol("go"),
	}
}

// booted is a program as it runs in a NIC: checked first.
func booted(b *testing.B, hook abi.Hook, code asm.Instructions, maps ...abi.Map) *machine.Program {
	b.Helper()
	img := &flat.Image{ABI: abi.Version, Name: "bench", Version: "1", Maps: maps}
	img.Programs[hook] = assemble(b, code)
	running, err := machine.Boot(inSlot(b, img), testDevice, func() uint64 { return 0 })
	must.Hold(b, err == nil, "%v", err)
	return running.Programs[hook]
}

// BenchmarkPulse is one decision about a transfer, beside that of the policy which
// the program is written after.
func BenchmarkPulse(b *testing.B) {
	p := booted(b, abi.PulseTx, amp())
	b.Run("program", func(b *testing.B) {
		c := abi.PulseContext{Length: 1500, Minimum: 128}
		for i := 0; b.Loop(); i++ {
			c.Arrived = uint32(i&1023 + 1)
			must.Get(p.Pulse(&c))(b)
		}
	})
	b.Run("native", func(b *testing.B) {
		var policy pipeline.Policy = pipeline.Eager{MinPulse: 128}
		v := pipeline.View{Length: 1500}
		for i := 0; b.Loop(); i++ {
			v.Arrived = i&1023 + 1
			policy.Next(v)
		}
	})
}

// filter30 looks at addresses and ports of UDP over IPv4. A frame that passes takes
// 30 instructions.
func filter30() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"), // 5
		asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R5, 8, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 14, asm.Byte),
		asm.And.Imm(asm.R5, 15),
		asm.JNE.Imm(asm.R5, 5, "pass"), // 10
		asm.LoadMem(asm.R6, asm.R2, 23, asm.Byte),
		asm.JNE.Imm(asm.R6, 17, "pass"),
		asm.LoadMem(asm.R7, asm.R2, 26, asm.Word),
		asm.LoadMem(asm.R8, asm.R2, 30, asm.Word),
		asm.LoadMem(asm.R9, asm.R2, 34, asm.Half),
		asm.LoadMem(asm.R5, asm.R2, 36, asm.Half),
		asm.HostTo(asm.BE, asm.R9, asm.Half),
		asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.Mov.Imm(asm.R6, 0xffffff),
		asm.And.Reg(asm.R6, asm.R7), // 20
		asm.JEq.Imm(asm.R6, 0x010203, "drop"),
		asm.RSh.Imm(asm.R8, 8),
		asm.JEq.Imm(asm.R8, 0x99, "drop"),
		asm.JLT.Imm(asm.R5, 1024, "drop"),
		asm.JGT.Imm(asm.R5, 60000, "drop"),
		asm.StoreMem(asm.RFP, -8, asm.R7, asm.Word),
		asm.LoadMem(asm.R4, asm.RFP, -8, asm.Word),
		asm.JEq.Imm(asm.R9, 53, "drop"),
		asm.Mov.Imm(asm.R0, abi.FilterPass),
		asm.Return(), // 30
		asm.Mov.Imm(asm.R0, abi.FilterPass).WithSymbol("pass"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, abi.FilterDrop).WithSymbol("drop"),
		asm.Return(),
	}
}

// BenchmarkFilter is one verdict after 30 instructions.
func BenchmarkFilter(b *testing.B) {
	p := booted(b, abi.FilterRx, filter30())
	f := make([]byte, 64)
	f[12], f[14], f[23], f[36], f[37] = 8, 0x45, 17, 0x20, 0x20
	b.ReportAllocs()
	for b.Loop() {
		must.Be(b, must.Get(p.Filter(f, 0))(b).Action, abi.FilterPass)
	}
}

// BenchmarkCount is a filter that counts frames of 256 flows in a hash map.
func BenchmarkCount(b *testing.B) {
	p := booted(b, abi.FilterRx, countProgram(), countMap)
	f := make([]byte, 64)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f[26] = byte(i)
		must.Get(p.Filter(f, 0))(b)
	}
}

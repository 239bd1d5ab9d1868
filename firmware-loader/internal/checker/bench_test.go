package checker_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// BenchmarkCheck checks a program of 500 instructions: it reads a frame, branches on
// what it reads, spills, fills and looks flows up.
func BenchmarkCheck(b *testing.B) {
	code := join(frameStart(64), flowKey, asm.Instructions{asm.Mov.Imm(asm.R8, 0)})
	for i := int16(0); len(code) < 488; i++ {
		code = append(code,
			asm.LoadMem(asm.R2, asm.R6, i%60, asm.Word),
			asm.And.Imm(asm.R2, 255),
			jump(asm.JGT.Imm(asm.R2, 100, ""), 2),
			asm.Add.Reg(asm.R8, asm.R2),
			jump(asm.Ja.Label(""), 1),
			asm.Xor.Imm(asm.R8, 77),
			asm.StoreMem(asm.R10, -24, asm.R8, asm.DWord),
			asm.LoadMem(asm.R3, asm.R10, -24, asm.DWord),
		)
	}
	code = join(code, lookup(flows, -16), asm.Instructions{asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.Word), asm.Return()}, leave(0))
	p := link(b, abi.FilterRx, code)
	report, err := checker.Check(p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checker.Check(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(report.Instructions), "slots")
	b.ReportMetric(float64(report.Explored), "explored")
}

// BenchmarkLoop checks a loop that takes the whole budget of a frame.
func BenchmarkLoop(b *testing.B) {
	p := link(b, abi.FilterRx, count(2047))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checker.Check(p); err != nil {
			b.Fatal(err)
		}
	}
}

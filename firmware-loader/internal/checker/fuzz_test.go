package checker_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// FuzzCheck checks arbitrary bytes as a program. What is accepted is run, with a frame
// and memory from the same bytes. The corpus has the samples and programs of the rules.
func FuzzCheck(f *testing.F) {
	f.Fuzz(func(t *testing.T, hook uint8, raw []byte) {
		code, err := asm.AppendInstructions(nil, bytes.NewReader(raw), binary.LittleEndian, "linux")
		if err != nil {
			return
		}
		p := abi.Program{Hook: abi.Hook(hook), Instructions: code, Maps: testMaps()}
		report, err := checker.Check(p)
		var refusal *checker.Refusal
		if err != nil {
			must.Hold(t, errors.As(err, &refusal) && refusal.Reason != nil && refusal.Error() != "", "refused with %#v", err)
			return
		}
		must.Hold(t, report.WorstCase >= 1 && report.WorstCase <= p.Hook.Budget() && report.Stack <= abi.StackSize, "%+v", report)
		input := append(make([]byte, 64), raw...)
		var values [][]byte
		for _, m := range p.Maps {
			values = append(values, append([]byte{}, input[:m.Value]...))
		}
		size := abi.FrameContextSize
		if p.Hook.IsPulse() {
			size = abi.PulseSize
		}
		m := newMachine(p, append([]byte{}, input[:size]...), input[64:], values)
		_, err = m.Run(report.WorstCase)
		must.Hold(t, err == nil, "accepted as %+v, but %v:\n%v", report, err, p.Instructions)
	})
}

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
	report := must.Get(checker.Check(p))(b)
	b.ReportAllocs()
	for b.Loop() {
		must.Get(checker.Check(p))(b)
	}
	b.ReportMetric(float64(report.Instructions), "slots")
	b.ReportMetric(float64(report.Explored), "explored")
}

// BenchmarkLoop checks a loop that takes the whole budget of a frame.
func BenchmarkLoop(b *testing.B) {
	p := link(b, abi.FilterRx, count(2047))
	b.ReportAllocs()
	for b.Loop() {
		must.Get(checker.Check(p))(b)
	}
}

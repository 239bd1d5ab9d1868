package machine_test

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// constantProgram answers with a constant.
func constantProgram(t testing.TB, hook abi.Hook, answer int64) *machine.Program {
	p, _ := compile(t, hook, asm.Instructions{asm.LoadImm(asm.R0, answer, asm.DWord), asm.Return()})
	return p
}

// TestPulseAnswers holds answers to the rules of the scheduler.
func TestPulseAnswers(t *testing.T) {
	for _, c := range []struct {
		answer                int64
		length, arrived, sent uint32
		want                  int
	}{
		{0, 100, 50, 10, 0},
		{1, 100, 50, 10, 1},
		{40, 100, 50, 10, 40},
		{41, 100, 50, 10, 40},
		{-1, 100, 50, 10, 40},
		{1 << 31, 100, 50, 10, 40},
		{1 << 32, 100, 50, 10, 40},
		{-1 << 63, 100, 50, 10, 40},
		{0, 100, 100, 10, 90}, // a frame that is whole does not wait
		{7, 100, 100, 10, 7},
		{0, 100, 100, 100, 0},
		{9, 100, 50, 50, 0},
		{9, 100, 50, 60, 0}, // impossible, and harmless
		{0, 100, 120, 10, 110},
	} {
		p := constantProgram(t, abi.PulseTx, c.answer)
		should.Give(p.Pulse(&abi.PulseContext{Length: c.length, Arrived: c.arrived, Sent: c.sent}))(t, c.want, "%+v", c)
	}
}

// TestPulseContext reads every field, whole and in parts.
func TestPulseContext(t *testing.T) {
	c := abi.PulseContext{Length: 0xffff_ffff, Arrived: 0xf1f2_f3f4, Queued: 0xd1d2_d3d4, Minimum: 0xe1e2_e3e4, Frame: 0xc1c2_c3c4}
	for offset, want := range map[int16]uint32{
		abi.PulseLength: c.Length, abi.PulseArrived: c.Arrived, abi.PulseSent: c.Sent,
		abi.PulseQueued: c.Queued, abi.PulseMinimum: c.Minimum, abi.PulseFrame: c.Frame,
	} {
		for _, size := range []asm.Size{asm.Byte, asm.Half, asm.Word} {
			p, maps := compile(t, abi.PulseRx, asm.Instructions{
				asm.LoadMem(asm.R2, asm.R1, offset, size), asm.LoadMapValue(asm.R3, 0, 0), asm.StoreMem(asm.R3, 0, asm.R2, asm.DWord),
				asm.Mov.Imm(asm.R0, 0), asm.Return(),
			}, abi.Map{Name: "out", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1})
			must.Get(p.Pulse(&c))(t)
			out := must.Get(maps[0].Lookup(make([]byte, 4)))(t)
			if got := binary.LittleEndian.Uint64(out); got != uint64(want)&(1<<(8*size.Sizeof())-1) {
				t.Errorf("%v of the field at %d: %#x, want part of %#x", size, offset, got, want)
			}
		}
	}
}

// TestPulseIsThePolicy: the program decides as the policy that it is written after.
func TestPulseIsThePolicy(t *testing.T) {
	p, _ := compile(t, abi.PulseTx, amp())
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, pipeline.MaxFrame).Draw(t, "length")
		arrived := rapid.IntRange(0, length).Draw(t, "arrived")
		v := pipeline.View{Length: length, Arrived: arrived, Sent: rapid.IntRange(0, arrived).Draw(t, "sent"), Queued: rapid.IntRange(0, 9).Draw(t, "queued")}
		least := rapid.IntRange(1, 8192).Draw(t, "minimum")
		got, err := p.Pulse(&abi.PulseContext{Length: uint32(v.Length), Arrived: uint32(v.Arrived), Sent: uint32(v.Sent), Queued: uint32(v.Queued), Minimum: uint32(least)})
		want := (pipeline.Eager{MinPulse: least}).Next(v)
		must.Hold(t, err == nil && got == want, "%+v, %d: %d, %v; the policy says %d", v, least, got, err, want)
	})
}

func TestFilterAnswers(t *testing.T) {
	for _, c := range []struct {
		hook   abi.Hook
		answer int64
		want   machine.Verdict
	}{
		{abi.FilterRx, 0, machine.Verdict{Action: abi.FilterAborted}},
		{abi.FilterRx, 1, machine.Verdict{Action: abi.FilterDrop}},
		{abi.FilterTx, 2, machine.Verdict{Action: abi.FilterPass}},
		{abi.FilterTx, 0x7_0102, machine.Verdict{Action: abi.FilterPass}},
		{abi.FilterRx, 3, machine.Verdict{Action: abi.FilterAborted}}, // XDP_TX
		{abi.FilterRx, 4, machine.Verdict{Action: abi.FilterRedirect}},
		{abi.FilterRx, 0xabcdef_04, machine.Verdict{Action: abi.FilterRedirect, Queue: 0xabcdef}},
		{abi.FilterTx, 0x07_04, machine.Verdict{Action: abi.FilterAborted}}, // there is no queue to send to
		{abi.FilterRx, 0xff, machine.Verdict{Action: abi.FilterAborted}},
		{abi.FilterRx, -1, machine.Verdict{Action: abi.FilterAborted}},
		{abi.FilterRx, 0x1_0000_0000, machine.Verdict{Action: abi.FilterAborted}},
	} {
		should.Give(constantProgram(t, c.hook, c.answer).Filter(make([]byte, 60), 0))(t, c.want, "%v %#x", c.hook, c.answer)
	}
}

// TestAnswerIsR0: whatever else is set before the exit.
func TestAnswerIsR0(t *testing.T) {
	p, _ := compile(t, abi.DemuxRx, asm.Instructions{asm.Mov.Imm(asm.R0, 5), asm.Mov.Imm(asm.R1, 6), asm.Return()})
	should.Be(t, must.Get(p.Demultiplex(nil, 0))(t).Queue, 5)
}

func TestDemultiplexAnswers(t *testing.T) {
	p := constantProgram(t, abi.DemuxRx, -1)
	should.Give(p.Demultiplex(nil, 3))(t, machine.Destination{Queue: abi.DemuxDefault, Entry: abi.DemuxDefault})
	p = constantProgram(t, abi.DemuxRx, 0x0000_0009_0000_0007)
	should.Give(p.Demultiplex(nil, 3))(t, machine.Destination{Queue: 7, Entry: 9})
}

// TestFrameContext: data, its end, and the queue; and stores to the frame stay.
func TestFrameContext(t *testing.T) {
	p, _ := compile(t, abi.FilterRx, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, abi.FrameData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, abi.FrameDataEnd, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, abi.FrameMeta, asm.Word),
		asm.Sub.Reg(asm.R4, asm.R2),
		asm.StoreMem(asm.R2, 0, asm.R4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.Sub.Reg(asm.R4, asm.R2),
		asm.StoreMem(asm.R2, 4, asm.R4, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, abi.FrameInterface, asm.Word),
		asm.StoreMem(asm.R2, 8, asm.R4, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, abi.FrameQueue, asm.Word),
		asm.StoreMem(asm.R2, 12, asm.R4, asm.Word),
		asm.StoreMem(asm.R3, -1, asm.R4, asm.Byte),
		asm.Mov.Imm(asm.R0, abi.FilterPass),
		asm.Return(),
	})
	for _, n := range []int{17, 64, 1500} {
		frame := make([]byte, n)
		for i := range frame {
			frame[i] = 0xee
		}
		must.Get(p.Filter(frame, 0x1234))(t)
		for at, want := range map[int]uint32{0: 0, 4: uint32(n), 8: 0, 12: 0x1234} {
			should.Be(t, binary.LittleEndian.Uint32(frame[at:]), want, "frame of %d: at %d", n, at)
		}
		should.Be(t, frame[n-1], 0x34, "frame of %d: last byte", n)
	}
}

// TestTime: the clock is the one that was given.
func TestTime(t *testing.T) {
	p, _ := compile(t, abi.DemuxRx, asm.Instructions{asm.FnKtimeGetNs.Call(), asm.Return()})
	should.Be(t, must.Get(p.Demultiplex(nil, 0))(t).Queue, 42)
}

// TestStackIsZero: a run sees nothing of the one before.
func TestStackIsZero(t *testing.T) {
	for _, at := range []int16{-8, -abi.StackSize} {
		p, _ := compile(t, abi.DemuxRx, asm.Instructions{
			asm.LoadMem(asm.R0, asm.RFP, at, asm.DWord),
			asm.Mov.Imm(asm.R2, -1),
			asm.StoreMem(asm.RFP, at, asm.R2, asm.DWord),
			asm.Return(),
		})
		for range 3 {
			should.Give(p.Demultiplex(nil, 0))(t, machine.Destination{}, "at %d", at)
		}
	}
}

// TestNoAllocation: runs allocate nothing, calls of helpers included.
func TestNoAllocation(t *testing.T) {
	pulse, _ := compile(t, abi.PulseTx, amp())
	c := abi.PulseContext{Length: 1000, Arrived: 500, Minimum: 100}
	count, _ := compile(t, abi.FilterRx, countProgram(), countMap)
	frame := make([]byte, 64)
	n := 0
	should.Be(t, testing.AllocsPerRun(1000, func() {
		n++
		binary.LittleEndian.PutUint32(frame[30:], uint32(n))
		_, err1 := pulse.Pulse(&c)
		_, err2 := count.Filter(frame, 0)
		must.Hold(t, err1 == nil && err2 == nil, "%v, %v", err1, err2)
	}), 0, "allocations")
}

var countMap = abi.Map{Name: "counts", Type: abi.MapHash, Key: 12, Value: 16, Entries: 512}

// countProgram counts frames by 12 bytes of their headers, while there is room.
func countProgram() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, abi.FrameData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, abi.FrameDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R6),
		asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R2, asm.R6, 26, asm.Word),
		asm.StoreMem(asm.RFP, -12, asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, 30, asm.Word),
		asm.StoreMem(asm.RFP, -8, asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, 34, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -12),
		asm.LoadMapPtr(asm.R1, 0),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "there"),
		asm.Instruction{OpCode: asm.StoreImmOp(asm.DWord), Dst: asm.RFP, Offset: -32, Constant: 1},
		asm.Instruction{OpCode: asm.StoreImmOp(asm.DWord), Dst: asm.RFP, Offset: -24, Constant: 64},
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -12),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -32),
		asm.Mov.Imm(asm.R4, 1),
		asm.LoadMapPtr(asm.R1, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label("pass"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("there"),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, abi.FilterPass).WithSymbol("pass"),
		asm.Return(),
	}
}

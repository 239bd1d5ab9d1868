package processor_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/firmware-loader/processor"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// lone is an engine that does nothing but remember what it was told.
type lone struct {
	asked      engine.Processor
	at, writes engine.HookSet
	suspended  bool
	limit      time.Duration
}

func (l *lone) Exclusive(f func()) { f() }
func (l *lone) Wake()              {}
func (l *lone) SetProcessor(p engine.Processor, at, writes engine.HookSet) {
	l.asked, l.at, l.writes, l.suspended = p, at, writes, false
}
func (l *lone) Suspend(limit time.Duration) { l.suspended, l.limit = true, limit }

const testDevice = 0x12347250

func newUnit() (*processor.Unit, *lone, []byte) {
	l, sram := &lone{}, make([]byte, processor.MinSRAM)
	return processor.New(processor.Config{Engine: l, SRAM: sram, Device: testDevice, Clock: func() time.Duration { return 7 }}), l, sram
}

// unchecked is an image of programs that no check has seen.
func unchecked(t testing.TB, programs map[abi.Hook]asm.Instructions) *machine.Image {
	t.Helper()
	img := &machine.Image{Name: "unchecked", Version: "0"}
	for h, code := range programs {
		p := must.Get(machine.Compile(abi.Program{Hook: h, Instructions: assemble(t, code)}, nil, func() uint64 { return 42 }))(t)
		img.Programs[h] = p
	}
	return img
}

// assemble resolves the labels of a program.
func assemble(t testing.TB, code asm.Instructions) asm.Instructions {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, code.Marshal(&b, binary.LittleEndian))
	return must.Get(asm.AppendInstructions(nil, &b, binary.LittleEndian, "linux"))(t)
}

func hook(u *processor.Unit, h abi.Hook, register uint32) uint32 {
	return u.Read(datasheet.ProcessorHookBase + uint32(h)*datasheet.ProcessorHookSize + register)
}

// TestStoppedProgram: what does what it may not loses its hook, and only that.
func TestStoppedProgram(t *testing.T) {
	trap := asm.Instructions{asm.LoadImm(asm.R2, 1, asm.DWord), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word), asm.Return()}
	endless := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Ja.Label("again").WithSymbol("again")}
	ask := map[abi.Hook]func(p engine.Processor) bool{
		abi.PulseTx: func(p engine.Processor) bool {
			_, ok := p.Pulse(engine.Transmit, pipeline.View{Length: 9, Arrived: 9}, 0)
			return ok
		},
		abi.PulseRx: func(p engine.Processor) bool {
			_, ok := p.Pulse(engine.Receive, pipeline.View{Length: 9, Arrived: 9}, 0)
			return ok
		},
		abi.DemuxRx:  func(p engine.Processor) bool { _, _, ok := p.Demultiplex(make([]byte, 64), 0); return ok },
		abi.FilterTx: func(p engine.Processor) bool { _, _, ok := p.Filter(engine.Transmit, make([]byte, 64), 0); return ok },
		abi.FilterRx: func(p engine.Processor) bool { _, _, ok := p.Filter(engine.Receive, make([]byte, 64), 0); return ok },
	}
	for bad := range abi.Hooks {
		for _, c := range []struct {
			code  asm.Instructions
			fault datasheet.ProcessorFault
			at    uint32
		}{{trap, datasheet.ProcessorFaultTrap, 2}, {endless, datasheet.ProcessorFaultBudget, 1}} {
			u, l, _ := newUnit()
			programs := map[abi.Hook]asm.Instructions{}
			for h := range abi.Hooks {
				programs[h] = asm.Instructions{asm.Mov.Imm(asm.R0, abi.FilterPass), asm.Return()}
			}
			programs[bad] = c.code
			u.Install(unchecked(t, programs))
			must.Hold(t, u.Read(datasheet.RegProcessorReady) == datasheet.ProcessorReady && !u.Stopped(), "not running")
			for h := range abi.Hooks {
				should.Be(t, ask[h](l.asked), h != bad, "%v stopped: %v", bad, h)
			}
			if !u.Stopped() || u.Read(datasheet.RegProcessorStatus) != uint32(datasheet.ProcessorFaulted) || u.Read(datasheet.RegProcessorReady) != 0 {
				t.Errorf("%v: status %d, ready %#x", bad, u.Read(datasheet.RegProcessorStatus), u.Read(datasheet.RegProcessorReady))
			}
			should.Be(t, u.Read(datasheet.RegProcessorFault), uint32(c.fault), "%v: fault, want %d", bad, c.fault)
			should.Be(t, u.Read(datasheet.RegProcessorFaultDetail), uint32(bad)<<24|c.at, "%v: detail", bad)
			for h := range abi.Hooks {
				faults, installed := uint32(0), uint32(1)
				if h == bad {
					faults, installed = 1, 0
				}
				should.Be(t, hook(u, h, datasheet.HookRegFaultsLow), faults, "%v stopped: %v has faults", bad, h)
				should.Be(t, hook(u, h, datasheet.HookRegInstalled), installed, "%v stopped: %v is installed", bad, h)
				should.Be(t, hook(u, h, datasheet.HookRegRunsLow), 1, "%v ran times", h)
			}
			// Halted, nothing is wrong; nothing is left to be rolled back to.
			u.Write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
			if u.Stopped() || u.Read(datasheet.RegProcessorFault) != 0 || !l.suspended || l.limit != 100*time.Millisecond {
				t.Errorf("%v: halted with fault %d; %+v", bad, u.Read(datasheet.RegProcessorFault), l)
			}
		}
	}
}

// TestFirstFaultIsReported: the state is faulted because of the first.
func TestFirstFaultIsReported(t *testing.T) {
	trap := asm.Instructions{asm.LoadMem(asm.R0, asm.R1, 100, asm.Word), asm.Return()}
	u, l, _ := newUnit()
	u.Install(unchecked(t, map[abi.Hook]asm.Instructions{abi.FilterRx: trap, abi.FilterTx: trap}))
	l.asked.Filter(engine.Receive, make([]byte, 64), 0)
	l.asked.Filter(engine.Transmit, make([]byte, 64), 0)
	should.Be(t, u.Read(datasheet.RegProcessorFaultDetail), uint32(abi.FilterRx)<<24, "detail")
}

// TestAnswers: how the engine understands what programs say.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		hook   abi.Hook
		answer int32
		action engine.Action
		queue  uint32
		faults uint32
	}{
		{abi.FilterRx, abi.FilterDrop, engine.FrameDrop, 0, 0},
		{abi.FilterTx, abi.FilterDrop, engine.FrameDrop, 0, 0},
		{abi.FilterRx, abi.FilterPass, engine.FramePass, 0, 0},
		{abi.FilterRx, 9<<8 | abi.FilterRedirect, engine.FrameRedirect, 9, 0},
		{abi.FilterTx, 9<<8 | abi.FilterRedirect, engine.FramePass, 0, 1},
		{abi.FilterRx, abi.FilterAborted, engine.FramePass, 0, 1},
		{abi.FilterRx, 77, engine.FramePass, 0, 1},
	} {
		u, l, _ := newUnit()
		u.Install(unchecked(t, map[abi.Hook]asm.Instructions{c.hook: {asm.Mov.Imm(asm.R0, c.answer), asm.Return()}}))
		d := engine.Receive
		if c.hook == abi.FilterTx {
			d = engine.Transmit
		}
		a, queue, ok := l.asked.Filter(d, make([]byte, 64), 0)
		if a != c.action || queue != c.queue || !ok || hook(u, c.hook, datasheet.HookRegFaultsLow) != c.faults || u.Stopped() {
			t.Errorf("%+v: %v, %d, %v, %d faults", c, a, queue, ok, hook(u, c.hook, datasheet.HookRegFaultsLow))
		}
		l.asked.Misled(engine.HookFilterReceive)
		got := hook(u, abi.FilterRx, datasheet.HookRegFaultsLow)
		should.Hold(t, got != 0, "an answer that misled does not count")
	}
	u, l, _ := newUnit()
	u.Install(unchecked(t, map[abi.Hook]asm.Instructions{
		abi.DemuxRx: {asm.LoadImm(asm.R0, 5<<32|7, asm.DWord), asm.Return()},
		abi.PulseRx: {asm.LoadMem(asm.R0, asm.R1, abi.PulseMinimum, asm.Word), asm.Return()},
	}))
	queue, entry, ok := l.asked.Demultiplex(nil, 0)
	should.Hold(t, queue == 7 && entry == 5 && ok, "queue %d, entry %d, %v", queue, entry, ok)
	u.SetMinimum(engine.Transmit, 1)
	u.SetMinimum(engine.Receive, 33)
	n, ok := l.asked.Pulse(engine.Receive, pipeline.View{Length: 100, Arrived: 90}, 0)
	should.Hold(t, n == 33 && ok, "pulse of %d, %v", n, ok)
}

// TestWrites: the engine copies frames only for programs that may change them.
func TestWrites(t *testing.T) {
	reads := asm.Instructions{asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord), asm.Mov.Imm(asm.R0, abi.FilterPass), asm.Return()}
	stores := asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.StoreMem(asm.R2, 0, asm.R1, asm.Byte), asm.Return()}
	u, l, _ := newUnit()
	u.Install(unchecked(t, map[abi.Hook]asm.Instructions{abi.FilterRx: reads, abi.FilterTx: stores}))
	should.Hold(t, l.at == engine.HookFilterReceive.Set()|engine.HookFilterTransmit.Set() && l.writes == engine.HookFilterTransmit.Set(),
		"asked at %#x, may write %#x", l.at, l.writes)
}

// TestAskingAllocatesNothing: neither does the way from the engine.
func TestAskingAllocatesNothing(t *testing.T) {
	pulse := asm.Instructions{asm.LoadMem(asm.R0, asm.R1, abi.PulseMinimum, asm.Word), asm.Return()}
	filter := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, abi.FrameData, asm.Word), asm.LoadMem(asm.R3, asm.R1, abi.FrameDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 42), asm.Mov.Imm(asm.R0, abi.FilterPass), asm.JGT.Reg(asm.R4, asm.R3, "short"),
		asm.LoadMem(asm.R0, asm.R2, 36, asm.Half), asm.Return().WithSymbol("short"),
	}
	u, l, _ := newUnit()
	u.Install(unchecked(t, map[abi.Hook]asm.Instructions{abi.PulseTx: pulse, abi.FilterRx: filter, abi.DemuxRx: filter}))
	frame := make([]byte, 64)
	should.Be(t, testing.AllocsPerRun(1000, func() {
		l.asked.Pulse(engine.Transmit, pipeline.View{Length: 100, Arrived: 50}, 1)
		l.asked.Filter(engine.Receive, frame, 1)
		l.asked.Demultiplex(frame, 1)
	}), 0, "allocations")
}

func shipped(t testing.TB, name string) *firmware.Spec {
	t.Helper()
	return must.Get(firmware.BuildShipped(name))(t)
}

// FuzzUnit writes registers and SRAM, asks programs and resets, in any order.
// Nothing may panic, and the registers never contradict each other.
func FuzzUnit(f *testing.F) {
	img := must.Get(flat.Decode(shipped(f, "count").Link()))(f)
	for i := range img.Maps {
		img.Maps[i].Entries = min(img.Maps[i].Entries, 4) // as many as a small slot has room for
	}
	img.Programs[abi.PulseTx] = shipped(f, "amp").Programs[abi.PulseTx]
	image := must.Get(flat.Encode(img))(f)
	// It runs in a unit that nothing disturbs.
	u, l, sram := newUnit()
	copy(sram, image)
	u.Write(datasheet.RegProcessorControl, datasheet.ProcessorRun)
	if !l.at.Has(engine.HookFilterReceive) || !l.at.Has(engine.HookPulseTransmit) {
		f.Fatalf("fault %d at the start", u.Read(datasheet.RegProcessorFault))
	}
	f.Add([]byte{0, 0x10, 2, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0x4c, 2, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		u, l, sram := newUnit()
		slot := u.Read(datasheet.RegSlotSize)
		copy(sram, image)
		copy(sram[slot:], image)
		frame := make([]byte, 64)
		for ; len(script) >= 4; script = script[4:] {
			v := uint32(script[2]) | uint32(script[3])<<24
			switch script[0] % 8 {
			case 0:
				u.Write(uint32(script[1])<<2, v)
			case 1:
				u.Write(datasheet.RegProcessorControl, 1<<(script[1]%3))
			case 2:
				u.Write(datasheet.RegProcessorEntry, uint32(script[1]%2)*slot)
			case 3:
				sram[(uint32(script[1])<<8|uint32(script[2]))%uint32(len(sram))] = script[3]
			case 4:
				u.Reset()
			case 5, 6:
				frame[26+script[1]%16] = script[2]
				if l.at.Has(engine.HookFilterReceive) && !l.suspended {
					l.asked.Filter(engine.Receive, frame, v)
				}
			default:
				if l.at.Has(engine.HookPulseTransmit) && !l.suspended {
					l.asked.Pulse(engine.Transmit, pipeline.View{Length: int(v)}, v)
				}
			}
			state := datasheet.ProcessorState(u.Read(datasheet.RegProcessorStatus))
			fault := u.Read(datasheet.RegProcessorFault)
			active, previous := u.Read(datasheet.RegActiveSlot), u.Read(datasheet.RegPreviousSlot)
			running := u.Read(datasheet.RegProcessorReady) == datasheet.ProcessorReady
			switch {
			case state > datasheet.ProcessorFaulted || state == datasheet.ProcessorStarting,
				running != (state == datasheet.ProcessorRunning),
				(fault != 0) != (state == datasheet.ProcessorFaulted),
				running && (active >= processor.Slots || l.at == 0),
				state == datasheet.ProcessorBuiltIn && (active != datasheet.NoSlot || l.at != 0),
				active != datasheet.NoSlot && active == previous:
				t.Fatalf("state %v, fault %d, running %v, slots %d and %d, hooks %#x", state, fault, running, active, previous, l.at)
			}
		}
	})
}

package emulator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/vfio"
)

// dmaRegister is one register of the DMA block of a device.
type dmaRegister struct {
	t   testing.TB
	d   vfio.Device
	reg uint32
}

func (r dmaRegister) read() uint32 {
	r.t.Helper()
	return read32(r.t, r.d, datasheet.DMAOffset+uint64(r.reg))
}

// write writes v and reports whether it was taken: kept, and not counted as bad.
func (r dmaRegister) write(v uint32) bool {
	r.t.Helper()
	was, bad := r.read(), counter(r.t, r.d, datasheet.CounterBadRegisterAccesses)
	write32(r.t, r.d, datasheet.DMAOffset+uint64(r.reg), v)
	now, refused := r.read(), counter(r.t, r.d, datasheet.CounterBadRegisterAccesses) != bad
	if refused && now != was {
		r.t.Errorf("register %#x was %#x and is %#x after a write of %#x that was refused", r.reg, was, now, v)
	}
	return !refused && now == v
}

// TestDMAValues writes good and bad values to the registers of the DMA block.
func TestDMAValues(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	for _, tt := range []struct {
		name      string
		reg       uint32
		good, bad []uint32
	}{
		{"POLICY_TX", datasheet.RegPolicyTx, []uint32{1, 2, 3, 4, 5, 6}, []uint32{0, 7, 0x105, 0xffffffff}},
		{"POLICY_RX", datasheet.RegPolicyRx, []uint32{1, 2, 3, 4, 5, 6}, []uint32{0, 7, 0xffffffff}},
		{"MINPULSE_TX", datasheet.RegMinPulseTx, []uint32{1, 128, 65536}, []uint32{0, 65537, 0xffffffff}},
		{"MINPULSE_RX", datasheet.RegMinPulseRx, []uint32{1, 128, 65536}, []uint32{0, 65537, 0xffffffff}},
		{"PROGRESS_LOW", datasheet.RegProgressLow, []uint32{0x40, 0xffffffc0, 0}, []uint32{1, 0x20, 0xffffffff}},
		{"PROGRESS_HIGH", datasheet.RegProgressHigh, []uint32{1, 0xffffffff, 0}, nil},
		{"PULSE_DEADLINE", datasheet.RegPulseDeadline, []uint32{1, 10000, 0xffffffff}, []uint32{0}},
		{"LOG_BASE_LOW", datasheet.RegLogBaseLow, []uint32{0x20, 0xffffffe0, 0}, []uint32{1, 0x10, 0xffffffff}},
		{"LOG_BASE_HIGH", datasheet.RegLogBaseHigh, []uint32{1, 0xffffffff, 0}, nil},
		{"LOG_LOG2", datasheet.RegLogLog2, []uint32{4, 16}, []uint32{0, 3, 17, 0xffffffff}},
		{"LOG_CONSUMER", datasheet.RegLogConsumer, nil, []uint32{0, 1}},
		{"DMA_CONTROL", datasheet.RegDMAControl, []uint32{1, 2, 3, 0}, []uint32{8, 0xfffffff8, 0xffffffff}},
	} {
		r := dmaRegister{t, d, tt.reg}
		for _, v := range tt.good {
			should.Be(t, r.write(v), true, "%s does not take %#x", tt.name, v)
		}
		for _, v := range tt.bad {
			should.Be(t, r.write(v), false, "%s takes %#x", tt.name, v)
		}
	}
	// A policy keeps its size and a size its policy.
	if p, n := (dmaRegister{t, d, datasheet.RegPolicyTx}).read(), (dmaRegister{t, d, datasheet.RegMinPulseTx}).read(); p != 6 || n != 65536 {
		t.Errorf("policy %d, size %d", p, n)
	}
}

// TestDMAControl switches on and off what the control register has, with sound
// addresses and without.
func TestDMAControl(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	reg := func(r uint32) dmaRegister { return dmaRegister{t, d, r} }
	control := reg(datasheet.RegDMAControl)
	log := datasheet.DMAControlLog
	should.Be(t, control.write(log|datasheet.DMAControlHostTx), false, "a log without a ring starts")
	if !reg(datasheet.RegLogLog2).write(4) || control.write(log) {
		t.Error("a log at address 0 starts")
	}
	if !reg(datasheet.RegLogBaseHigh).write(0xffffffff) || !reg(datasheet.RegLogBaseLow).write(0xffffffe0) || control.write(log) {
		t.Error("a log that wraps around the end of memory starts")
	}
	if !reg(datasheet.RegLogBaseHigh).write(0) || !reg(datasheet.RegLogBaseLow).write(flowLog) || !control.write(log) {
		t.Error("a log does not start")
	}
	// What is in use cannot be moved.
	for _, r := range []uint32{datasheet.RegLogBaseLow, datasheet.RegLogBaseHigh, datasheet.RegLogLog2} {
		should.Be(t, reg(r).write(0x40), false, "register %#x changes while the log is on", r)
	}
	if !reg(datasheet.RegProgressLow).write(0x40) || !reg(datasheet.RegLogConsumer).write(0) || reg(datasheet.RegLogConsumer).write(1) {
		t.Error("the log's registers do not do what they should while it is on")
	}
	for _, host := range []uint32{datasheet.DMAControlHostTx, datasheet.DMAControlHostRx} {
		should.Be(t, control.write(host), true, "control does not take %#x", host)
		for _, r := range []uint32{datasheet.RegProgressLow, datasheet.RegProgressHigh} {
			should.Be(t, reg(r).write(0x80), false, "register %#x changes while the host decides", r)
		}
	}
	should.Be(t, reg(datasheet.RegLogLog2).write(9), true, "the log's registers are locked though it is off")
	resetByRegister(t, d)
	for _, r := range datasheet.Registers() {
		if r.Block == datasheet.BlockDMA && r.Fixed && reg(r.Offset).read() != r.Reset {
			t.Errorf("%s is %#x after a reset, want %#x", r.Name, reg(r.Offset).read(), r.Reset)
		}
	}
}

// own is a policy that the data sheet has no number for.
type own struct{}

func (own) Next(v pipeline.View) int { return v.Available() }

// TestConfiguredPolicies: after power-on and after a reset the registers say what
// the device was configured with.
func TestConfiguredPolicies(t *testing.T) {
	auto := pipeline.NewAuto(pipeline.EarlyBytes)
	for _, tt := range []struct {
		name         string
		policy       pipeline.Policy
		number, size uint32
	}{
		// The wire in memory hands frames over piece by piece.
		{"default", nil, 5, engine.DefaultMinPulse},
		{"store and forward", pipeline.StoreAndForward{}, 1, engine.DefaultMinPulse},
		{"static", pipeline.Static{Pulse: 700}, 2, 700},
		{"eager", pipeline.Eager{MinPulse: 700}, 5, 700},
		{"absurd", pipeline.Eager{MinPulse: 1 << 30}, 5, 65536},
		{"auto", auto, 6, engine.DefaultMinPulse},
		{"own", own{}, 0, engine.DefaultMinPulse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDevice(t, func(o *emulator.Options) { o.Pipeline.Send = tt.policy })
			powerUp(t, d)
			policy, size := dmaRegister{t, d, datasheet.RegPolicyTx}, dmaRegister{t, d, datasheet.RegMinPulseTx}
			check := func() {
				t.Helper()
				if policy.read() != tt.number || size.read() != tt.size {
					t.Errorf("policy %d, size %d", policy.read(), size.read())
				}
			}
			check()
			if !size.write(100) || policy.read() != tt.number || !policy.write(2) || size.read() != 100 {
				t.Errorf("policy %d, size %d after writing 2 and 100", policy.read(), size.read())
			}
			resetByRegister(t, d)
			check()
			should.Be(t, (dmaRegister{t, d, datasheet.RegPolicyRx}).read(), 5, "the other direction has policy")
		})
	}
}

// records takes what the log of e holds, by engine, and checks the clock.
func (e *flowEnd) records() (by [datasheet.DMAEngineCount][]uint32) {
	e.t.Helper()
	ring := datasheet.DMARecordsAt(e.data.Bytes()[flowLog-flowBase:][:datasheet.PageSize])
	n := e.dma(datasheet.RegLogProducer)
	now := uint64(e.clock())
	for i := e.dma(datasheet.RegLogConsumer); i != n; i++ {
		r := &ring[i%uint32(len(ring))]
		if r.LoadFlags() != datasheet.PhaseOf(i, 7) || r.Engine >= datasheet.DMAEngineCount || r.Start > r.End || r.End > now {
			e.t.Fatalf("record %d of %d is %+v at %d ns", i, n, r, now)
		}
		by[r.Engine] = append(by[r.Engine], r.Bytes)
	}
	e.setDMA(datasheet.RegLogConsumer, n)
	return by
}

// clock reads the device's clock in nanoseconds, rounded up.
func (e *flowEnd) clock() time.Duration {
	low := read32(e.t, e.d, datasheet.ClockOffset+datasheet.RegClockLow)
	high := read32(e.t, e.d, datasheet.ClockOffset+datasheet.RegClockHigh)
	return time.Duration((uint64(high)<<32|uint64(low))+1) * datasheet.ClockResolution
}

// TestDMALog sends messages under policies that registers choose, and reads what
// the engines did out of the log.
func TestDMALog(t *testing.T) {
	for name, threads := range map[string]bool{"inline": false, "threads": true} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(t, threads, emulator.PairOptions{})
			for _, e := range []*flowEnd{f.from, f.to} {
				e.setDMA(datasheet.RegLogBaseLow, flowLog)
				e.setDMA(datasheet.RegLogLog2, 7)
				e.setDMA(datasheet.RegDMAControl, datasheet.DMAControlLog)
			}
			f.from.setDMA(datasheet.RegPolicyTx, uint32(datasheet.DMAPolicyStatic))
			f.from.setDMA(datasheet.RegMinPulseTx, 1000)
			f.to.setDMA(datasheet.RegPolicyRx, uint32(datasheet.DMAPolicyStoreAndForward))
			for range 20 {
				f.send(2500, 1)
				pieces, whole := []uint32{1000, 1000, 500}, []uint32{2500}
				got := f.from.records()
				if !slices.Equal(got[datasheet.EngineHostTx], whole) || !slices.Equal(got[datasheet.EngineNetTx], pieces) {
					t.Errorf("the sender's records are %v", got)
				}
				got = f.to.records()
				if !slices.Equal(got[datasheet.EngineNetRcv], whole) || !slices.Equal(got[datasheet.EngineHostRcv], whole) {
					t.Errorf("the receiver's records are %v", got)
				}
			}
			for e, want := range map[datasheet.DMAEngine][4]uint32{
				datasheet.EngineHostTx: {0, 19, 2500, 2500}, datasheet.EngineNetTx: {0, 19, 2500, 2500}, datasheet.EngineHostRcv: {},
			} {
				should.Be(t, f.from.engineRegs(e), want, "%v of the sender reads", e)
			}
		})
	}
}

// TestPulseRegisters drives netTx by register, and looks at the counters in host
// memory.
func TestPulseRegisters(t *testing.T) {
	for name, threads := range map[string]bool{"inline": false, "threads": true} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(t, threads, emulator.PairOptions{})
			e := f.from
			e.setDMA(datasheet.RegPulseDeadline, 60_000_000)
			e.setDMA(datasheet.RegProgressLow, flowProgress)
			e.setDMA(datasheet.RegDMAControl, datasheet.DMAControlHostTx)
			var seen datasheet.Progress
			at := datasheet.ProgressAt(e.data.Bytes()[flowProgress-flowBase:])
			waiting := func(frame, sent uint32) func() bool {
				return func() bool {
					return at.Load(&seen) && seen.Flags == datasheet.ProgressActive && seen.Frame == frame &&
						seen.Arrived == 2500 && seen.Sent == sent
				}
			}
			for frame := range uint32(3) {
				done := f.begin(2500, byte(frame))
				f.await("the frame", waiting(frame, 0))
				should.Be(t, e.engineRegs(datasheet.EngineNetTx), [4]uint32{uint32(datasheet.DMAWaits), frame, 2500, 0}, "netTx reads")
				for _, bad := range []uint32{datasheet.PulseWord(frame+1, 10), datasheet.PulseWord(frame, 0), datasheet.PulseWord(frame, 2501)} {
					e.setDMA(datasheet.RegPulseTx, bad)
				}
				e.setDMA(datasheet.RegPulseRx, datasheet.PulseWord(frame, 10)) // not switched on
				should.Be(t, e.dma(datasheet.RegPulsesRefused), 4*(frame+1), "pulses refused")
				e.setDMA(datasheet.RegPulseTx, datasheet.PulseWord(frame, 1000))
				f.await("the pulse", waiting(frame, 1000))
				must.Be(t, done(), false, "the message has arrived before it has left")
				e.setDMA(datasheet.RegPulseTx, datasheet.PulseWord(frame, 1500))
				f.await("the message", done)
			}
			should.Be(t, e.dma(datasheet.RegPulseTimeouts), 0, "timeouts")
			e.setDMA(datasheet.RegPulseDeadline, 1)
			f.send(2500, 9)
			should.Be(t, e.dma(datasheet.RegPulseTimeouts), 1, "timeouts")
			// The host takes the area away.
			e.setDMA(datasheet.RegPulseDeadline, 60_000_000)
			e.setDMA(datasheet.RegDMAControl, 0)
			e.setDMA(datasheet.RegProgressLow, 0x40)
			e.setDMA(datasheet.RegDMAControl, datasheet.DMAControlHostTx|datasheet.DMAControlHostRx)
			f.send(2500, 10)
			if v, n := e.dma(datasheet.RegDMAControl), counter(t, e.d, datasheet.CounterDMAFaults); v != 0 || n != 1 {
				t.Errorf("control %#x, %d faults", v, n)
			}
		})
	}
}

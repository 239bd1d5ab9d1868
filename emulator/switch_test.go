package emulator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestSwitchCutsThrough: NICs on a switch place frames that still arrive, and no sender stalls within one. Those that a busy
// machine makes it send again break off when the first has arrived after all.
func TestSwitchCutsThrough(t *testing.T) {
	ends := must.Get(wire.NewSwitch(2, wire.SwitchOptions{Watchdog: time.Second}))(t)
	var hosts [2]*adminHost
	for i := range hosts {
		d, err := emulator.New(emulator.Options{Wire: ends[i], MAC: datasheet.MAC{2, 0, 0, 0, 0, byte(1 + i)}, Limits: smallLimits,
			// A frame of 4 KiB takes 400 us: a busy machine cannot hide it from the switch.
			Pipeline: engine.Pipeline{Send: pipeline.Eager{MinPulse: 64}, Receive: pipeline.Eager{MinPulse: 1}, Burst: 256, Bus: 10e6}, Thread: true})
		must.OK(t, err)
		t.Cleanup(func() { closeDevice(t, d) })
		hosts[i] = newAdminHost(t, d)
		hosts[i].thread = true
	}
	f := flowBetween(t, hosts[0], hosts[1])
	const messages = 200
	for i := range messages {
		f.send(1+20*i, byte(i))
	}
	s := wire.Stats(ends[1]).(wire.SwitchStats)
	if s.Stalled != 0 || s.CutThrough == 0 {
		t.Errorf("%+v after %d messages", s, messages)
	}
	t.Logf("%d frames of %d messages left the switch while they still arrived", s.CutThrough, messages)
}

// TestWireBroke: a NIC drops a frame whose sender stalls within the switch, and says which station it was.
func TestWireBroke(t *testing.T) {
	ends := must.Get(wire.NewSwitch(2, wire.SwitchOptions{Watchdog: time.Millisecond}))(t)
	mac := datasheet.MAC{2, 0, 0, 0, 0, 9}
	d := must.Get(emulator.New(emulator.Options{Wire: ends[1], MAC: mac, Limits: smallLimits, Thread: true}))(t)
	t.Cleanup(func() { closeDevice(t, d) })
	newAdminHost(t, d)
	station := datasheet.MAC{2, 0, 0, 0, 0, 7}
	frame := ends[0].Reserve(1000)
	copy(frame, mac[:])
	copy(frame[6:], station[:])
	copy(frame[12:], datasheet.EtherType[:])
	ends[0].(engine.Progressive).Publish(200)
	waittest.Until(t, "the watchdog ends the frame", func() bool { return d.WireBroke() != nil })
	if e := d.WireBroke(); e.Station != station || !errors.Is(e, wire.ErrStalled) {
		t.Error(e)
	}
}

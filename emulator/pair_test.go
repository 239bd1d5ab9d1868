package emulator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// connect sets up a connection from a VI of from to one of to, by commands
// alone, and returns the two VIs.
func connect(t *testing.T, from, to *adminHost) (client, server uint32) {
	t.Helper()
	client, server = from.createVI(), to.createVI()
	waiting := to.listen("door")
	asked := from.dial(client, to.mac(), "door")
	request := to.wait(waiting)
	c := datasheet.Command{Opcode: datasheet.OpConnectAccept}
	*datasheet.Body[datasheet.ConnectAcceptBody](&c) = datasheet.ConnectAcceptBody{
		Connection: datasheet.Reply[datasheet.ConnectionReply](&request).Connection, Endpoint: server, TimeoutMS: 60000}
	accepted := to.post(c)
	must.Be(t, from.wait(asked).Result, datasheet.ResultSuccess, "connect")
	must.Be(t, to.wait(accepted).Result, datasheet.ResultSuccess, "accept")
	return client, server
}

func newHosts(t *testing.T, threads bool, o emulator.PairOptions) (a, b *adminHost) {
	t.Helper()
	o.Threads = threads
	x, y := newPair(t, o)
	a, b = newAdminHost(t, x), newAdminHost(t, y)
	a.thread, b.thread = threads, threads
	return a, b
}

// TestPollStepsBothEnds connects while only one of the two devices is polled.
func TestPollStepsBothEnds(t *testing.T) {
	pair := func(t *testing.T) (a, b *adminHost) { return newHosts(t, false, emulator.PairOptions{}) }
	named := func(t *testing.T) (a, b *adminHost) {
		x, y := openAddress(t, "emu:?wire=mem:together"), openAddress(t, "emu:?wire=mem:together")
		return newAdminHost(t, x), newAdminHost(t, y)
	}
	for name, open := range map[string]func(t *testing.T) (a, b *adminHost){"client's": pair, "server's": pair, "wire with a name": named} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			polled := a
			if name == "server's" {
				polled = b
			}
			client := a.createVI()
			waiting := b.listen("door")
			a.dial(client, b.mac(), "door")
			for end := time.Now().Add(timeout); time.Now().Before(end); {
				polled.poll()
				if e, ok := b.next(); ok {
					if e.ID != waiting || e.Result != datasheet.ResultSuccess {
						t.Errorf("reply %+v", e)
					}
					return
				}
			}
			t.Error("the request does not arrive")
		})
	}
}

func TestPairRefuses(t *testing.T) {
	checkFiles(t)
	for says, o := range map[string]emulator.PairOptions{
		"MTU 1":              {MTU: 1},
		"ring of -1":         {Ring: -1},
		"Loss 2":             {Faults: wire.FaultOptions{Loss: 2}},
		"Limits.Endpoints 1": {Limits: engine.Limits{Endpoints: 1}},
		"Dead:1ns":           {Timing: engine.Timing{Dead: 1}},
		"rate":               {Shape: wire.ShaperOptions{Path: speed.Path{Rate: 1}}},
		"delay":              {Shape: wire.ShaperOptions{Delay: time.Second}},
		"a rate of -1 bytes": {Pipeline: func() engine.Pipeline { return engine.Pipeline{Bus: -1} }},
		"a set-up of -1ns":   {Pipeline: func() engine.Pipeline { return engine.Pipeline{Setup: -1} }},
	} {
		a, b, err := emulator.Pair(o)
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, wire.ErrOptions) && !errors.Is(err, engine.ErrConfig) || a != nil || b != nil {
			t.Errorf("%s: %v, %v, error %v", says, a, b, err)
		}
	}
}

func TestPairClock(t *testing.T) {
	now := time.Second
	a, b := newPair(t, emulator.PairOptions{Clock: func() time.Duration { return now }})
	for _, d := range []*emulator.Device{a, b} {
		powerUp(t, d)
		should.Be(t, read32(t, d, datasheet.ClockOffset+datasheet.RegClockLow), 10_000_000, "clock")
	}
}

func TestPollAllocatesNothing(t *testing.T) {
	a, b := newHosts(t, false, emulator.PairOptions{})
	connect(t, a, b)
	x := a.d.(vfio.Poller)
	should.Be(t, testing.AllocsPerRun(1000, func() { x.Poll() }), 0, "allocations a poll")
}

func TestTrappedDoorbellAllocatesNothing(t *testing.T) {
	d := newDevice(t, func(o *emulator.Options) { o.Doorbells = emulator.DoorbellsTrapped })
	powerUp(t, d)
	var device vfio.Device = d
	p := make([]byte, 4)
	should.Be(t, testing.AllocsPerRun(1000, func() {
		if device.WriteRegion(vfio.RegionBAR2, 0x1000, p) != nil {
			t.Fatal("refused")
		}
	}), 0, "allocations a doorbell")
}

package replay_test

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// The NICs of the test and their messages, each of which is one frame.
const (
	liveBytes = 8192
	liveBurst = 512
	liveTick  = 2 * time.Nanosecond // that pass at each look at the clock
)

// liveClock is real until it is stopped: then time passes only as NICs look at it, so that nothing
// else on the machine can make a transfer longer.
type liveClock struct {
	start   time.Time
	stopped atomic.Bool
	at      atomic.Int64
}

func (c *liveClock) read() time.Duration {
	if c.stopped.Load() {
		return time.Duration(c.at.Add(int64(liveTick)))
	}
	return time.Since(c.start)
}

func (c *liveClock) stop() {
	c.at.Store(int64(time.Since(c.start) + time.Second)) // it has not been read
	c.stopped.Store(true)
}

// livePair opens two NICs on a wire with a speed, and stops their clock.
func livePair(t *testing.T, p via.Policy) (nics [2]*via.NIC, from, to *via.Conn) {
	t.Helper()
	clock := &liveClock{start: time.Now()}
	buses := []int64{310_000_000, 80_000_000} // no multiples: bursts of two engines would end at once
	a, b, err := emulator.Pair(emulator.PairOptions{
		Clock: clock.read,
		Shape: wire.ShaperOptions{Path: speed.Path{Rate: 100_000_000}, Delay: 5 * time.Microsecond},
		Pipeline: func() engine.Pipeline {
			bus := buses[0]
			buses = buses[1:]
			return engine.Pipeline{Burst: liveBurst, Bus: bus}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range []*emulator.Device{a, b} {
		if nics[i], err = via.OpenDevice(t.Context(), d, via.Options{Policy: p}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			clock.stopped.Store(false)
			if err := nics[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	o := via.ConnOptions{Reliability: via.ReliableDelivery, MaxMessage: liveBytes, SendDepth: 16, RecvDepth: 16}
	l, err := via.Listen(nics[1], "replay", via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if from, err = via.Dial(t.Context(), nics[0], l.Address().String(), o); err == nil {
		to, err = l.Accept(t.Context())
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	clock.stop()
	return nics, from, to
}

// liveLog sends messages and returns the log of both NICs.
func liveLog(t *testing.T, p via.Policy, lone, behind int) dmalog.Log {
	t.Helper()
	nics, from, to := livePair(t, p)
	for _, n := range nics {
		if err := n.EnableDMALog(8192); err != nil {
			t.Fatal(err)
		}
	}
	for range lone {
		if err := measure.Burst(t.Context(), from, to, liveBytes, 1); err != nil {
			t.Fatal(err)
		}
		for range 1000 { // what is left of it on the wire
			nics[0].Poll()
		}
	}
	if behind > 0 {
		if err := measure.Burst(t.Context(), from, to, liveBytes, behind); err != nil {
			t.Fatal(err)
		}
	}
	side := dmalog.Side{Policy: p.Name, MinPulse: p.MinPulseSend}
	log := dmalog.Log{Setup: &dmalog.Setup{At: p.At.String(), Send: side, Receive: side, Burst: liveBurst}}
	for _, n := range nics {
		records := make([]dmalog.Record, 8192)
		got, err := n.ReadDMALog(records)
		if err != nil {
			t.Fatal(err)
		}
		log.Records = append(log.Records, records[:got]...)
	}
	slices.SortFunc(log.Records, func(a, b dmalog.Record) int { return cmp.Compare(a.Start, b.Start) })
	return log
}

// TestLiveDecisions: live NICs on a controlled clock and the model decide alike where frames
// arrive alike. The goroutines of a driver look at the clock too, so that it is tried again.
func TestLiveDecisions(t *testing.T) {
	sized := func(name string) via.Policy {
		return via.Policy{Name: name, MinPulseSend: liveBurst, MinPulseReceive: liveBurst}
	}
	const lone, behind = 20, 40
	for _, p := range []via.Policy{{Name: "store-and-forward"}, sized("cut-through"), sized("static"), sized("eager"), sized("amp")} {
		t.Run(p.Name, func(t *testing.T) {
			for load, c := range map[string][2]int{"idle": {lone, 0}, "loaded": {0, behind}} {
				var unlike []replay.Engine
				for range 6 {
					flows, err := replay.Run(t.Context(), liveLog(t, p, c[0], c[1]), nil)
					if err != nil {
						t.Fatal(err)
					}
					if len(flows) != 1 || flows[0].Frames != c[0]+c[1] || len(flows[0].Engines) != int(dmalog.Engines) {
						t.Fatalf("%+v", flows)
					}
					unlike = slices.DeleteFunc(flows[0].Engines, func(e replay.Engine) bool { return e.Alike == flows[0].Frames })
					if len(unlike) == 0 {
						break
					}
				}
				for _, e := range unlike {
					t.Errorf("%s: %d frames alike: %+v", load, e.Alike, e)
				}
			}
		})
	}
}

package replay_test

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// The NICs of the test and their messages, each of which is one frame.
const (
	liveBytes = 8192
	liveBurst = 512
	liveRate  = 100_000_000         // bytes per second, of the wire
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
func livePair(t *testing.T, p via.Policy) (nics [2]*via.NIC, ends [2]*via.Conn) {
	t.Helper()
	clock := &liveClock{start: time.Now()}
	buses := []int64{310_000_000, 80_000_000} // no multiples: bursts of two engines would end at once
	a, b, err := emulator.Pair(emulator.PairOptions{
		Clock: clock.read,
		Shape: wire.ShaperOptions{Path: speed.Path{Rate: liveRate}, Delay: 5 * time.Microsecond},
		Pipeline: func() engine.Pipeline {
			bus := buses[0]
			buses = buses[1:]
			return engine.Pipeline{Burst: liveBurst, Bus: bus}
		},
	})
	must.OK(t, err)
	for i, d := range []*emulator.Device{a, b} {
		if nics[i], err = via.OpenDevice(t.Context(), d, via.Options{Policy: p}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			clock.stopped.Store(false)
			should.OK(t, nics[i].Close())
		})
	}
	o := via.ConnOptions{Reliability: via.ReliableDelivery, MaxMessage: liveBytes, SendDepth: 16, RecvDepth: 16}
	l, err := via.Listen(nics[1], "replay", via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }})
	must.OK(t, err)
	if ends[0], err = via.Dial(t.Context(), nics[0], l.Address().String(), o); err == nil {
		ends[1], err = l.Accept(t.Context())
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	clock.stop()
	return nics, ends
}

// liveSend sends messages one behind the other from so many of the ends, and takes them.
func liveSend(t *testing.T, ends [2]*via.Conn, senders, count int) {
	t.Helper()
	var posted [2]int
	for came := 0; came < senders*count; {
		for i, from := range ends[:senders] {
			buf, err := from.TryAcquire()
			for ; err == nil && buf != nil && posted[i] < count; buf, err = from.TryAcquire() {
				posted[i]++
				must.OK(t, from.Post(liveBytes))
			}
			m, err2 := ends[1-i].TryReceive()
			if m != nil {
				came++
				err2 = ends[1-i].Release()
			} else {
				from.Poll()
			}
			must.OK(t, errors.Join(err, err2))
		}
	}
}

// liveLog sends messages and returns the log of both NICs.
func liveLog(t *testing.T, p via.Policy, senders, lone, behind int) dmalog.Log {
	t.Helper()
	nics, ends := livePair(t, p)
	for _, n := range nics {
		must.OK(t, n.EnableDMALog(8192))
	}
	for range lone {
		liveSend(t, ends, senders, 1)
		for range 1000 { // what is left of it on the wire
			nics[0].Poll()
		}
	}
	if behind > 0 {
		liveSend(t, ends, senders, behind)
	}
	side := dmalog.Side{Policy: p.Name, MinPulse: p.MinPulseSend}
	log := dmalog.Log{Setup: &dmalog.Setup{At: p.At.String(), Send: side, Receive: side, Burst: liveBurst, Buffers: engine.DefaultBuffers, Rate: liveRate, Delay: 5}}
	for i, n := range nics {
		records := make([]dmalog.Record, 8192)
		records = records[:must.Get(n.ReadDMALog(records))(t)]
		for k := range records {
			if records[k].Flow = i; records[k].Engine >= dmalog.NetRcv {
				records[k].Flow = 1 - i
			}
		}
		log.Records = append(log.Records, records...)
	}
	slices.SortFunc(log.Records, func(a, b dmalog.Record) int { return cmp.Compare(a.Start, b.Start) })
	return log
}

// TestLiveDecisions: live NICs on a controlled clock and the model decide alike, and begin all transfers in the same order, where frames
// arrive alike. The goroutines of a driver look at the clock too, so that it is tried again. When both ends send, their acknowledgements
// take turns with frames on the wire, which the model has not: under load the order shifts, and a frame may meet another decision.
func TestLiveDecisions(t *testing.T) {
	sized := func(name string) via.Policy {
		return via.Policy{Name: name, MinPulseSend: liveBurst, MinPulseReceive: liveBurst}
	}
	loads := []struct {
		name                  string
		senders, lone, behind int
		others                int // frames that may be cut otherwise, and then the order is not looked at
	}{{"idle", 1, 20, 0, 0}, {"loaded", 1, 0, 40, 0}, {"both send, idle", 2, 5, 0, 0}, {"both send, loaded", 2, 0, 20, 1}}
	for _, p := range []via.Policy{{Name: "store-and-forward"}, sized("cut-through"), sized("static"), sized("eager"), sized("amp")} {
		t.Run(p.Name, func(t *testing.T) {
			for _, c := range loads {
				var unlike []replay.Engine
				for range 6 {
					engines := must.Get(replay.Run(t.Context(), liveLog(t, p, c.senders, c.lone, c.behind), nil))(t)
					if len(engines) != c.senders*int(dmalog.Engines) || engines[0].Frames != c.lone+c.behind {
						t.Fatalf("%+v", engines)
					}
					unlike = slices.DeleteFunc(engines, func(e replay.Engine) bool {
						return e.Alike >= e.Frames-c.others && (e.Disorder == 0 || c.others > 0)
					})
					if len(unlike) == 0 {
						break
					}
				}
				for _, e := range unlike {
					t.Errorf("%s: %d frames alike, %d transfers in another order: %+v", c.name, e.Alike, e.Disorder, e)
				}
			}
		})
	}
}

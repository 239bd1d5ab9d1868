package replay_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// polled is a platform as a polling NIC is: transfers cost, decisions and packets do not.
func polled(read, link, write profile.Cost, latency profile.Time) *profile.Profile {
	return &profile.Profile{Name: "polled", NIC: profile.NIC{Buffers: 1}, Sender: profile.Bus{FullDuplex: true, Read: read},
		Receiver: profile.Bus{FullDuplex: true, Write: write}, Link: profile.Link{Pulse: link, Latency: latency, Header: datasheet.HeaderSize}}
}

// tester is a test, by rapid or not.
type tester interface {
	must.TB
	Context() context.Context
}

// logOf makes the model move frames, and writes what its engines did as a live NIC does.
func logOf(t tester, o virtual.Options, setup dmalog.Setup) dmalog.Log {
	t.Helper()
	plan := must.Get(pipeline.ByName(setup.Send.Policy, pipeline.Parameters{MinPulseSend: setup.Send.MinPulse, MinPulseReceive: setup.Receive.MinPulse}))(t)
	if plan.Buffers == 0 || plan.Buffers > setup.Buffers {
		plan.Buffers = setup.Buffers
	}
	o.Plan, o.Burst, o.Log = plan, setup.Burst, true
	r := must.Get(virtual.Run(t.Context(), o))(t)
	return dmalog.Log{Setup: &setup, Records: r.AsLive()}
}

// TestSameArrivalsSameDecisions: of frames that arrive alike, on engines that cost the same, the
// model makes just the transfers of the log, at the same times, whatever the policy.
func TestSameArrivalsSameDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Custom(func(t *rapid.T) profile.Cost {
			return profile.NewCost(rapid.Float64Range(0, 20).Draw(t, "overhead"), rapid.Float64Range(10, 10_000).Draw(t, "bandwidth"))
		})
		p := polled(cost.Draw(t, "read"), cost.Draw(t, "link"), cost.Draw(t, "write"), profile.Micros(rapid.Float64Range(0, 30).Draw(t, "latency")))
		var frames []virtual.Frame
		at := profile.Time(0)
		for range rapid.IntRange(1, 30).Draw(t, "frames") {
			frames = append(frames, virtual.Frame{Posted: at, Bytes: rapid.IntRange(1, 20_000).Draw(t, "bytes")})
			at += profile.Micros(rapid.SampledFrom([]float64{0, 1, 30, 1000}).Draw(t, "gap"))
		}
		side := dmalog.Side{Policy: rapid.SampledFrom([]string{"store-and-forward", "static", "cut-through", "eager", "pure-cut-through", "amp", "table", "hierarchical"}).Draw(t, "policy")}
		if slices.Contains([]string{"static", "cut-through", "eager", "pure-cut-through", "amp"}, side.Policy) {
			side.MinPulse = rapid.IntRange(64, 4096).Draw(t, "minimum pulse")
		}
		log := logOf(t, virtual.Options{Profile: p, Frames: frames}, dmalog.Setup{At: dmalog.AtNIC, Send: side, Receive: side, Burst: rapid.IntRange(1, 4096).Draw(t, "burst"), Buffers: rapid.IntRange(1, 8).Draw(t, "buffers")})
		engines := must.Get(replay.Run(t.Context(), log, p))(t)
		if len(engines) != int(dmalog.Engines) || engines[0].Frames != len(frames) || engines[0].LeftOut != 0 {
			t.Fatalf("%+v", engines)
		}
		for _, e := range engines {
			if e.Alike != len(frames) || e.Live != e.Model || e.WorstBy != 0 {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// TestCostsOfTheLog: the costs by which a log was made are found in it.
func TestCostsOfTheLog(t *testing.T) {
	p := polled(profile.NewCost(1, 1000), profile.NewCost(2, 100), profile.NewCost(0.5, 500), profile.Micros(7))
	var frames []virtual.Frame
	for i := range 40 {
		frames = append(frames, virtual.Frame{Posted: profile.Micros(float64(i/4) * 2000), Bytes: 1000 + 200*i})
	}
	amp := dmalog.Side{Policy: "amp", MinPulse: 512}
	log := logOf(t, virtual.Options{Profile: p, Frames: frames}, dmalog.Setup{At: dmalog.AtNIC, Send: amp, Receive: amp, Burst: 512, Buffers: 4})
	engines := must.Get(replay.Run(t.Context(), log, nil))(t)
	want := []profile.Cost{p.Sender.Read, p.Link.Pulse, p.Link.Pulse, p.Receiver.Write}
	for i, e := range engines {
		if d := e.Overhead - want[i].Overhead; max(d, -d) > profile.Micros(0.01) || math.Abs(e.Bandwidth/want[i].Bandwidth()-1) > 0.001 {
			t.Errorf("%s: %v us and %v MB/s, want %+v", e.Engine, e.Overhead.Microseconds(), e.Bandwidth, want[i])
		}
		should.Be(t, e.Alike, len(frames), "%v frames alike", e.Engine)
	}
}

// TestOtherDecisionsAreNoticed: a log that another policy has made is not like the model.
func TestOtherDecisionsAreNoticed(t *testing.T) {
	p := polled(profile.NewCost(0, 1000), profile.NewCost(0, 100), profile.NewCost(0, 500), 0)
	pure := dmalog.Side{Policy: "static", MinPulse: 512}
	log := logOf(t, virtual.Options{Profile: p, Frames: []virtual.Frame{{Bytes: 8192}}}, dmalog.Setup{At: dmalog.AtNIC, Send: pure, Receive: pure, Burst: 512, Buffers: 4})
	log.Setup.Send = dmalog.Side{Policy: "store-and-forward"}
	engines := must.Get(replay.Run(t.Context(), log, nil))(t)
	e := engines[dmalog.NetTx]
	if e.Alike != 0 || e.Live.Transfers != 16 || e.Model.Transfers != 1 || e.Live.Bytes != 512 || e.Model.Bytes != 8192 || e.WorstBy <= 0 {
		t.Errorf("%+v", e)
	}
}

// TestReceiverAlone replays the log of a NIC that only receives, which ends in the middle of a frame.
func TestReceiverAlone(t *testing.T) {
	p := polled(profile.NewCost(0, 1000), profile.NewCost(1, 100), profile.NewCost(0, 500), 0)
	amp := dmalog.Side{Policy: "amp", MinPulse: 512}
	log := logOf(t, virtual.Options{Profile: p, Frames: []virtual.Frame{{Bytes: 8192}, {Bytes: 8192}, {Bytes: 100}}},
		dmalog.Setup{At: dmalog.AtHost, Send: amp, Receive: amp, Burst: 512, Buffers: 4})
	log.Records = slices.DeleteFunc(log.Records, func(r dmalog.Record) bool {
		return r.Engine == dmalog.HostTx || r.Engine == dmalog.NetTx || r.Engine == dmalog.HostRcv && r.Packet == 2
	})
	engines := must.Get(replay.Run(t.Context(), log, nil))(t)
	if e := engines[0]; e.Frames != 2 || e.LeftOut != 1 || len(engines) != 2 || e.Engine != dmalog.NetRcv.String() {
		t.Errorf("%+v", e)
	}
}

func TestRefused(t *testing.T) {
	amp := dmalog.Side{Policy: "amp"}
	setup := func() *dmalog.Setup {
		return &dmalog.Setup{At: dmalog.AtNIC, Send: amp, Receive: amp, Burst: 512, Buffers: 4}
	}
	good := []dmalog.Record{{Engine: dmalog.HostTx, Bytes: 100, End: 1000}, {Engine: dmalog.NetTx, Bytes: 100, End: 2000}}
	change := func(f func(s *dmalog.Setup)) *dmalog.Setup {
		s := setup()
		f(s)
		return s
	}
	for name, c := range map[string]struct {
		log  dmalog.Log
		want error
	}{
		"an old log":        {dmalog.Log{Records: good}, replay.ErrNoSetup},
		"nothing":           {dmalog.Log{Setup: setup()}, replay.ErrNoFrames},
		"half a frame":      {dmalog.Log{Setup: setup(), Records: append(slices.Clone(good[:1]), dmalog.Record{Engine: dmalog.NetTx, Bytes: 99})}, replay.ErrNoFrames},
		"the second frame":  {dmalog.Log{Setup: setup(), Records: []dmalog.Record{{Packet: 1, Bytes: 10}}}, replay.ErrNoFrames},
		"nothing moved":     {dmalog.Log{Setup: setup(), Records: []dmalog.Record{{Engine: dmalog.HostTx}}}, replay.ErrTransfer},
		"too much moved":    {dmalog.Log{Setup: setup(), Records: []dmalog.Record{{Bytes: pipeline.MaxFrame + 1}}}, replay.ErrTransfer},
		"an unknown policy": {dmalog.Log{Setup: change(func(s *dmalog.Setup) { s.Receive.Policy = "warp" }), Records: good}, pipeline.ErrUnknownPolicy},
		"a policy off line": {dmalog.Log{Setup: change(func(s *dmalog.Setup) { s.Send.Policy = "optimal" }), Records: good}, pipeline.ErrParameter},
	} {
		engines, err := replay.Run(t.Context(), c.log, nil)
		if !errors.Is(err, c.want) || engines != nil {
			t.Errorf("%s: %+v, %v", name, engines, err)
		}
	}
}

// FuzzReplay: whatever a log says, it is replayed or refused with an error.
func FuzzReplay(f *testing.F) {
	const setup = `{"dma_log":1,"at":"nic","send":{"policy":"amp","minpulse_bytes":512},"receive":{"policy":"static","minpulse_bytes":1000},"burst_bytes":512}` + "\n"
	f.Add([]byte(setup + `{"packet":0,"engine":"hostTx","start_us":0,"end_us":3,"bytes":2000,"queued":1}
{"packet":0,"engine":"netTx","start_us":1,"end_us":20,"bytes":2000}
{"packet":0,"engine":"netRcv","start_us":2,"end_us":22,"bytes":2000}
{"packet":0,"engine":"hostRcv","start_us":5,"end_us":6,"bytes":1000}
{"packet":0,"engine":"hostRcv","start_us":22,"end_us":23,"bytes":1000}
`))
	f.Add([]byte(setup + `{"packet":0,"engine":"netRcv","start_us":1e12,"end_us":1e12,"bytes":16777216,"queued":2147483647}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		log, err := dmalog.Read(bytes.NewReader(text), "fuzz")
		if err != nil || len(log.Records) > 100 {
			return
		}
		engines, err := replay.Run(t.Context(), log, nil)
		if (err == nil) == (len(engines) == 0) {
			t.Fatalf("%d engines and %v", len(engines), err)
		}
		for _, e := range engines {
			if e.Alike > e.Frames || e.Live.Transfers < e.Frames || e.Model.Transfers < e.Frames {
				t.Fatalf("%+v", e)
			}
		}
	})
}

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
		nics[i] = must.Get(via.OpenDevice(t.Context(), d, via.Options{Policy: p}))(t)
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

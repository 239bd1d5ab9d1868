package replay_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
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

package virtual_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

func plan(t testing.TB, name string, p pipeline.Parameters) pipeline.Plan {
	t.Helper()
	return must.Get(pipeline.ByName(name, p))(t)
}

func load(t testing.TB, name string) *profile.Profile {
	t.Helper()
	return must.Get(profile.Hosts.Load(name))(t)
}

func run(t testing.TB, o virtual.Options) *virtual.Result {
	t.Helper()
	return must.Get(virtual.Run(context.Background(), o))(t)
}

// simple is a platform whose latencies can be added up by hand: 100 MB/s buses with
// 3 us overhead, a 200 MB/s link, firmware costs of 1, 2 and 4 us, hosts 10 us.
func simple() *profile.Profile {
	bus := profile.Bus{Read: profile.NewCost(3, 100), Write: profile.NewCost(3, 100)}
	return &profile.Profile{Name: "simple", Sender: bus, Receiver: bus, Host: profile.Micros(10),
		NIC:  profile.NIC{Decision: profile.Micros(1), Completion: profile.Micros(2), Packet: profile.Micros(4), Buffers: 2},
		Link: profile.Link{Pulse: profile.NewCost(0.5, 200), Latency: profile.Micros(7), Header: 200}}
}

// TestStoreAndForwardByHand adds the stages of a lone frame up.
func TestStoreAndForwardByHand(t *testing.T) {
	r := run(t, virtual.Options{Profile: simple(), Plan: plan(t, "store-and-forward", pipeline.Parameters{}), Payload: 1000, Count: 1, Log: true})
	want := 5 + // host
		(1 + 4) + (3 + 10) + // hostTx: decision and packet, overhead and bytes
		2 + // its end is noticed
		1 + (0.5 + 1 + 5) + // netTx: decision, overhead, control message, payload
		7 + 2 + // latency, end of netRcv is noticed
		1 + (3 + 10) + // hostRcv
		5.0
	should.Be(t, r.Latency.Microseconds(), want, "latency us")
	should.Be(t, r.Busy[0].Microseconds()+r.Busy[1].Microseconds(), 26, "buses occupied for us, by hand 26 us")
}

// TestStaticByHand adds a static pulse pipeline up: the receiver's bus is the
// bottleneck, and pays its overhead and a decision for each of four pulses.
func TestStaticByHand(t *testing.T) {
	p := simple()
	p.Receiver.Write = profile.NewCost(3, 25)
	r := run(t, virtual.Options{Profile: p, Plan: plan(t, "static", pipeline.Parameters{MinPulseSend: 250, MinPulseReceive: 250}), Payload: 1000, Count: 1})
	want := 5 + (1 + 4) + 3 + 2.5 + // the first pulse is in the sender's NIC
		1 + (0.5 + 1) + // netTx is set up, the control message leaves
		7 + 4 + // it arrives and is worked off; the pulse's 1.25 us pass meanwhile
		4*(1+3+10) + // four pulses over the receiver's bus
		5.0
	should.Be(t, r.Latency.Microseconds(), want, "latency us")
}

// TestControlMessages: netTx and netRcv have a transfer of the header for each packet, right ahead of
// the payload.
func TestControlMessages(t *testing.T) {
	const count = 3
	p := simple()
	r := run(t, virtual.Options{Profile: p, Plan: plan(t, "amp", pipeline.Parameters{}), Payload: 8000, Count: count, Warmup: 1, Log: true})
	must.Be(t, len(r.Control), 2*count, "control messages")
	for _, c := range r.Control {
		first := slices.IndexFunc(r.Log, func(l dmalog.Record) bool { return l.Engine == c.Engine && l.Packet == c.Packet })
		if c.Engine != dmalog.NetTx && c.Engine != dmalog.NetRcv || first < 0 || r.Log[first].Start != c.End || c.Start >= c.End || c.Bytes != p.Link.Header {
			t.Errorf("%+v", c)
		}
	}
}

// TestLogCosts: a firmware that logs takes longer, and only if it is asked for.
func TestLogCosts(t *testing.T) {
	latency := func(send, receive float64, costs bool) float64 {
		p := simple()
		p.NIC.LogPacket, p.NIC.LogSend, p.NIC.LogReceive = profile.Micros(send), profile.Micros(send), profile.Micros(receive)
		return run(t, virtual.Options{Profile: p, Plan: plan(t, "store-and-forward", pipeline.Parameters{}), Payload: 1000, Count: 1, LogCosts: costs}).Latency.Microseconds()
	}
	without := latency(0, 0, true)
	for _, c := range []struct{ send, receive, more float64 }{
		{1, 0, 1},   // hostTx's record is hidden behind it, the control message's is not
		{20, 0, 25}, // hostTx's goes on for 5 us after its end is noticed
		{0, 3, 1},   // that of netRcv goes on for 1 us after its end is noticed
	} {
		if got := latency(c.send, c.receive, true) - without; math.Abs(got-c.more) > 1e-6 {
			t.Errorf("%+v: %v us more", c, got)
		}
	}
	should.Be(t, latency(20, 20, false), without, "us without the costs")
}

// TestStreamIsBoundByItsSlowestStage: a long stream takes, for each frame, what
// hostTx takes with its firmware.
func TestStreamIsBoundByItsSlowestStage(t *testing.T) {
	r := run(t, virtual.Options{Profile: simple(), Plan: plan(t, "store-and-forward", pipeline.Parameters{}), Payload: 8000, Count: 400})
	const perFrame = 1 + 4 + 3 + 80 + 2.0 // decision and packet, overhead and bytes, its end is noticed
	if want := 8000 / perFrame; r.Bandwidth < 0.99*want || r.Bandwidth > 1.01*want {
		t.Errorf("%v MB/s, by hand about %v", r.Bandwidth, want)
	}
}

// TestBandwidthOfFewFrames: that of two frames or more is what the gaps between them
// say, that of a lone one its latency, which TestStoreAndForwardByHand adds up.
func TestBandwidthOfFewFrames(t *testing.T) {
	for count, want := range map[int]float64{1: 1000 / 60.5, 2: 1, 3: 1, 4: 1} {
		r := run(t, virtual.Options{Profile: simple(), Plan: plan(t, "store-and-forward", pipeline.Parameters{}),
			Payload: 1000, Count: count, Gap: profile.Micros(1000)})
		if math.Abs(r.Bandwidth-want) > 1e-9*want {
			t.Errorf("%d frames: %v MB/s, by hand %v", count, r.Bandwidth, want)
		}
	}
}

// TestNoOverlapWithoutBuffers: with one buffer a frame does not begin before the one
// before it has left the sender's NIC.
func TestNoOverlapWithoutBuffers(t *testing.T) {
	r := run(t, virtual.Options{Profile: simple(), Plan: plan(t, "pure-cut-through", pipeline.Parameters{}), Payload: 8000, Count: 5, Log: true})
	left := map[int]int64{}
	for _, l := range r.Log {
		if l.Engine == dmalog.NetTx {
			left[l.Packet] = max(left[l.Packet], l.End)
		}
	}
	for _, l := range r.Log {
		if l.Engine == dmalog.HostTx && l.Packet > 0 && l.Start < left[l.Packet-1] {
			t.Errorf("hostTx %d starts at %d, netTx %d ends at %d", l.Packet, l.Start, l.Packet-1, left[l.Packet-1])
		}
	}
}

// TestSharedMemory: a NIC memory slower than the engines together slows the link down, and not the host's bus; one that is
// fast enough changes nothing.
func TestSharedMemory(t *testing.T) {
	latency := func(mbs float64) profile.Time {
		p := simple()
		if mbs > 0 {
			p.NIC.Memory = profile.NewCost(0, mbs).PerByte
		}
		return run(t, virtual.Options{Profile: p, Plan: plan(t, "amp", pipeline.Parameters{}), Payload: 8000, Count: 1}).Latency
	}
	free, ample, scarce := latency(0), latency(10_000), latency(150)
	should.Be(t, ample, free, "ample memory: without limit")
	if scarce <= free {
		t.Errorf("scarce memory: %v, without limit %v", scarce, free)
	}
	// 250 MB/s leave a pulse 150 MB/s beside the bus's 100, and the link's 200 MB/s from the end of hostTx on.
	p := simple()
	p.NIC.Memory = profile.NewCost(0, 250).PerByte
	r := run(t, virtual.Options{Profile: p, Plan: plan(t, "static", pipeline.Parameters{MinPulseSend: 5000, MinPulseReceive: 8000}), Payload: 8000, Count: 1, Log: true})
	hostTx, pulses := of(r.Log, 0, dmalog.HostTx)[0], of(r.Log, 0, dmalog.NetTx)
	if took := profile.Time(hostTx.End - hostTx.Start); took != profile.Micros(3+80) {
		t.Errorf("hostTx takes %v us", took.Microseconds())
	}
	beside := profile.Time(hostTx.End - pulses[0].Start).Microseconds()
	// The bus takes its rate in 80 of the 83 us of a transfer.
	want := beside + (5000-beside*(250-100*80.0/83))/200
	if took := profile.Time(pulses[0].End - pulses[0].Start).Microseconds(); beside < 20 || math.Abs(took-want) > 0.01 {
		t.Errorf("the first pulse takes %v us, %v of them beside hostTx; by hand %v", took, beside, want)
	}
	if took := profile.Time(pulses[1].End - pulses[1].Start).Microseconds(); math.Abs(took-0.5-15) > 0.01 {
		t.Errorf("the second pulse takes %v us", took)
	}
}

// TestIdleFramesAreAlike: the second of two frames on an idle system takes what the
// first took, and what happens under load does not matter to it.
func TestIdleFramesAreAlike(t *testing.T) {
	r := run(t, virtual.Options{Profile: load(t, "alcor"), Plan: plan(t, "amp", pipeline.Parameters{}), Payload: 8192, Count: 3, Gap: profile.Micros(10_000)})
	for i, d := range r.Delivered {
		should.Be(t, d, r.Latency, "frame %d: first", i)
	}
	late := run(t, virtual.Options{Profile: load(t, "alcor"), Plan: plan(t, "amp", pipeline.Parameters{}), Payload: 8192, Count: 1, Warmup: 20})
	if late.Latency != r.Latency {
		t.Errorf("after a warm-up: %v, before %v", late.Latency, r.Latency)
	}
}

func TestSameSeedSameResult(t *testing.T) {
	for _, name := range []string{"amp", "auto", "static"} {
		o := virtual.Options{Profile: load(t, "p6-natoma"), Plan: plan(t, name, pipeline.Parameters{}), Payload: 5000, Count: 50,
			Gap: profile.Micros(90), Random: true, Seed: 7, Bidirectional: true, Log: true}
		first := run(t, o)
		if second := run(t, o); !reflect.DeepEqual(first, second) {
			t.Errorf("%s: two runs differ", name)
		}
		o.Seed = 8
		if other := run(t, o); reflect.DeepEqual(first.Log, other.Log) {
			t.Errorf("%s: another seed gives the same run", name)
		}
	}
}

// TestAutoFollowsAPlatformThatChanges: bandwidth or overhead of one engine changes by
// a factor of two in the middle of a run. 200 frames later the latency is within 3 %
// of that of a policy that has learned on the new platform alone.
func TestAutoFollowsAPlatformThatChanges(t *testing.T) {
	for _, name := range []string{"p6-natoma", "alcor", "pcie4-x16-100g"} {
		for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.NetTx, dmalog.HostRcv} {
			for _, factors := range [][2]float64{{1, 0.5}, {1, 2}, {2, 1}, {0.5, 1}} {
				change := virtual.Change{Frame: 100, Engine: e, Overhead: factors[0], Bandwidth: factors[1]}
				o := virtual.Options{Profile: load(t, name), Plan: plan(t, "auto", pipeline.Parameters{}), Payload: 8192, Count: 1,
					Warmup: 300, Changes: []virtual.Change{change}}
				followed := run(t, o).Latency
				o.Changes[0].Frame = 0
				fresh := run(t, o).Latency
				if float64(followed) > 1.03*float64(fresh) {
					t.Errorf("%s, %v overhead x%g bandwidth x%g: %v us, learned afresh %v us", name, e, factors[0], factors[1], followed.Microseconds(), fresh.Microseconds())
				}
			}
		}
	}
}

// TestTooMuch: a run that would take too many transfers or too long is refused, on the
// way there.
func TestTooMuch(t *testing.T) {
	slow := simple()
	slow.Sender.Read = profile.NewCost(10_000, 0.1)
	for name, o := range map[string]virtual.Options{
		"log":  {Profile: simple(), Plan: plan(t, "static", pipeline.Parameters{MinPulseSend: 1, MinPulseReceive: 1}), Payload: pipeline.MaxFrame, Count: 1, Log: true},
		"time": {Profile: slow, Plan: plan(t, "store-and-forward", pipeline.Parameters{}), Payload: pipeline.MaxFrame, Count: 20_000},
	} {
		var e *option.Error
		if r, err := virtual.Run(context.Background(), o); !errors.As(err, &e) || r != nil || e.Option != "count" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// TestHugeChange: the cost of the longest frame stays in range whatever the factors.
func TestHugeChange(t *testing.T) {
	p := simple()
	p.Receiver.Write = profile.NewCost(10_000, 0.1)
	r := run(t, virtual.Options{Profile: p, Plan: plan(t, "store-and-forward", pipeline.Parameters{}), Payload: pipeline.MaxFrame, Count: 1,
		Changes: []virtual.Change{{Engine: dmalog.HostRcv, Overhead: 100, Bandwidth: 0.01}}})
	if r.Latency < profile.Micros(1e8) {
		t.Errorf("%v us", r.Latency.Microseconds())
	}
}

// BenchmarkTransfers reports transfers of virtual time per second of real time.
func BenchmarkTransfers(b *testing.B) {
	for _, name := range []string{"store-and-forward", "static", "amp", "auto"} {
		b.Run(name, func(b *testing.B) {
			o := virtual.Options{Profile: load(b, "p6-natoma"), Plan: plan(b, name, pipeline.Parameters{}), Payload: 8192, Count: 2000}
			transfers := 0
			for b.Loop() {
				transfers += run(b, o).Transfers
			}
			b.ReportMetric(float64(transfers)/b.Elapsed().Seconds()/1e6, "Mtransfers/s")
		})
	}
}

// TestRunEnds: a run of many events ends with its context.
func TestRunEnds(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	sent := 0
	// A policy that ends it in the middle.
	stop := pipeline.Plan{Send: func() pipeline.Policy { return counting{&sent, func() { cancel(why) }} }, Receive: func() pipeline.Policy { return pipeline.StoreAndForward{} }}
	_, err := virtual.Run(ctx, virtual.Options{Profile: simple(), Plan: stop, Payload: 8192, Count: 100_000})
	if !errors.Is(err, why) || sent < 1000 || sent > 10_000 {
		t.Errorf("%v after %d questions", err, sent)
	}
}

// counting calls stop at the thousandth question.
type counting struct {
	n    *int
	stop func()
}

func (c counting) Next(v pipeline.View) int {
	if *c.n++; *c.n == 1000 {
		c.stop()
	}
	return v.Available()
}

// TestRequestByHand adds the stages of a request up.
func TestRequestByHand(t *testing.T) {
	o := virtual.Options{Profile: simple()}
	took, log := o.Request()
	want := profile.Micros(5 + // host
		(1 + 4) + // netTx: decision and packet
		(0.5 + 1) + // overhead, control message
		7 + 4 + // latency, packet
		5) // host
	if took != want {
		t.Errorf("%v us, by hand %v", took.Microseconds(), want.Microseconds())
	}
	sent, came := of(log, 0, dmalog.NetTx), of(log, 0, dmalog.NetRcv)
	if len(sent) != 1 || len(came) != 1 || len(log) != 2 || sent[0].Bytes != 200 || came[0].End-sent[0].End != int64(profile.Micros(7)) {
		t.Errorf("the request on the wire: %v, %v", sent, came)
	}
}

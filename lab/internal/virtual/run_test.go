package virtual_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

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
	should.Be(t, profile.Time(hostTx.End-hostTx.Start), profile.Micros(3+80), "hostTx takes")
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
	should.Be(t, late.Latency, r.Latency, "after a warm-up")
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
	should.Be(t, took, want)
	sent, came := of(log, 0, dmalog.NetTx), of(log, 0, dmalog.NetRcv)
	if len(sent) != 1 || len(came) != 1 || len(log) != 2 || sent[0].Bytes != 200 || came[0].End-sent[0].End != int64(profile.Micros(7)) {
		t.Errorf("the request on the wire: %v, %v", sent, came)
	}
}

func onTrunk(t testing.TB, policy string, count int, trunk virtual.Trunk) *virtual.Result {
	t.Helper()
	return run(t, virtual.Options{Profile: load(t, "p6-natoma"), Plan: plan(t, policy, pipeline.Parameters{}), Payload: 8192, Count: count, Log: true, Trunk: &trunk})
}

// TestTrunkOfOneIsALink: a lone sender finds the trunk free, and everything is as on a link.
func TestTrunkOfOneIsALink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		o.Bidirectional = false
		link := must.Get(virtual.Run(context.Background(), o))(t)
		o.Trunk = &virtual.Trunk{Senders: 1}
		r := must.Get(virtual.Run(context.Background(), o))(t)
		if s := r.Senders[0]; s.Waited != 0 || len(r.Holds) != o.Count {
			t.Fatalf("%+v, %d holds", s, len(r.Holds))
		}
		if r.Senders, r.Holds = nil, nil; !reflect.DeepEqual(r, link) {
			t.Fatal("a trunk with one sender differs from a link")
		}
	})
}

// TestTrunkProperties: on any platform each byte moves once, one packet holds the trunk at a time
// and to its end, and no sender has it twice while another waits.
func TestTrunkProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		o.Bidirectional, o.Warmup = false, 0
		o.Profile.Receiver.Read = o.Profile.Sender.Read // for nothingOverruns: all senders are alike
		o.Trunk = &virtual.Trunk{Senders: rapid.IntRange(2, 4).Draw(t, "senders"), Slow: rapid.Float64Range(1, 20).Draw(t, "slow"),
			Packet: rapid.SampledFrom([]int{0, 100, 4096}).Draw(t, "packet")}
		r := must.Get(virtual.Run(context.Background(), o))(t)
		packets := 1
		if n := o.Trunk.Packet; n > 0 {
			packets = (o.Payload + n - 1) / n
		}
		if len(r.Holds) != o.Trunk.Senders*o.Count*packets || len(r.Senders) != o.Trunk.Senders {
			t.Fatalf("%d holds of %d senders", len(r.Holds), len(r.Senders))
		}
		for i := range o.Trunk.Senders {
			bytesMoveOnce(t, o, r.Log, i)
			nothingOverruns(t, o, r.Log, i)
			if s := r.Senders[i]; s.Lost != 0 || s.Idle < 0 || s.Idle > s.Held || s.Latency > s.Longest {
				t.Fatalf("sender %d: %+v", i, s)
			}
		}
		for k, h := range r.Holds {
			if h.End < h.Start || h.Lost || k > 0 && h.Start < r.Holds[k-1].End {
				t.Fatalf("hold %d of sender %d from %d to %d, the one before ends at %d", k, h.Flow, h.Start, h.End, r.Holds[max(k-1, 0)].End)
			}
		}
		if packets > 1 {
			return // the log does not say when each packet asked for the trunk
		}
		asked := map[[2]int]profile.Time{}
		for _, l := range r.Log {
			k := [2]int{l.Flow, l.Packet}
			if at, known := asked[k]; l.Engine == dmalog.NetTx && (!known || profile.Time(l.Start) < at) {
				asked[k] = profile.Time(l.Start)
			}
		}
		for k, h := range r.Holds {
			turns := map[int]int{}
			for _, before := range r.Holds[:k] {
				if before.Start > asked[[2]int{h.Flow, h.Frame}] {
					turns[before.Flow]++
				}
			}
			for flow, n := range turns {
				if n > 1 {
					t.Fatalf("sender %d has the trunk %d times while sender %d waits", flow, n, h.Flow)
				}
			}
		}
	})
}

// TestTrunkLeavesCutThrough: two streams share the trunk equally; a sender that waits gathers data,
// so that its transfers grow and most frames are stored and forwarded.
func TestTrunkLeavesCutThrough(t *testing.T) {
	alone, both := onTrunk(t, "amp", 100, virtual.Trunk{Senders: 1}).Senders[0], onTrunk(t, "amp", 100, virtual.Trunk{Senders: 2}).Senders
	for i, s := range both {
		if s.Pulses >= alone.Pulses/2 || s.CutThrough >= 50 || alone.CutThrough != 100 {
			t.Errorf("sender %d: %.1f pulses a frame, %d cut through; alone %.1f, %d", i, s.Pulses, s.CutThrough, alone.Pulses, alone.CutThrough)
		}
		if share := s.Bandwidth / both[0].Bandwidth; share < 0.99 || share > 1.01 {
			t.Errorf("sender %d has %.2f of the other's bandwidth", i, share)
		}
	}
}

// TestSlowSenderHoldsTheTrunk: a sender with a slow bus that cuts through holds the path idle, and the
// other waits; if it stores and forwards, or delimits packets, the other waits less.
func TestSlowSenderHoldsTheTrunk(t *testing.T) {
	eager := onTrunk(t, "eager", 50, virtual.Trunk{Senders: 2, Slow: 8}).Senders
	whole := onTrunk(t, "store-and-forward", 50, virtual.Trunk{Senders: 2, Slow: 8}).Senders
	packets := onTrunk(t, "eager", 50, virtual.Trunk{Senders: 2, Slow: 8, Packet: 1024}).Senders
	if eager[0].Idle < eager[0].Held/2 || whole[0].Idle > whole[0].Held/20 {
		t.Errorf("held idle: %v of %v us cutting through, %v of %v us storing", eager[0].Idle.Microseconds(), eager[0].Held.Microseconds(),
			whole[0].Idle.Microseconds(), whole[0].Held.Microseconds())
	}
	if eager[1].Longest <= whole[1].Longest || eager[1].Bandwidth >= whole[1].Bandwidth {
		t.Errorf("the other sender: %+v beside cut-through, %+v beside store and forward", eager[1], whole[1])
	}
	if packets[1].Longest >= eager[1].Longest {
		t.Errorf("the other sender: %v us beside packets, %v us beside whole frames", packets[1].Longest.Microseconds(), eager[1].Longest.Microseconds())
	}
}

// TestTrunkWatchdog: a sender that stalls loses its frames and not the others'.
func TestTrunkWatchdog(t *testing.T) {
	stuck := virtual.Trunk{Senders: 3, Slow: 1000}
	without := onTrunk(t, "eager", 20, stuck).Senders
	stuck.Watchdog = profile.Micros(30)
	r := onTrunk(t, "eager", 20, stuck)
	if s := r.Senders[0]; s.Lost != 20 || s.Bandwidth != 0 || s.Latency != 0 {
		t.Errorf("the slow sender: %+v", s)
	}
	lost := 0
	for _, h := range r.Holds {
		if h.Lost {
			lost++
		}
	}
	if lost != 20 || len(r.Holds) != 60 {
		t.Errorf("%d of %d holds were ended", lost, len(r.Holds))
	}
	for i := 1; i < 3; i++ {
		if s := r.Senders[i]; s.Lost != 0 || s.Longest >= without[i].Longest/10 {
			t.Errorf("sender %d: %+v, without a watchdog %+v", i, s, without[i])
		}
	}
	// On any platform all frames arrive or are counted, and none is longer than it was.
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		o.Bidirectional = false
		o.Trunk = &virtual.Trunk{Senders: rapid.IntRange(1, 3).Draw(t, "senders"), Slow: rapid.Float64Range(1, 1000).Draw(t, "slow"),
			Packet: rapid.SampledFrom([]int{0, 0, 500}).Draw(t, "packet"), Watchdog: profile.Micros(rapid.Float64Range(0.001, 20).Draw(t, "watchdog"))}
		r := must.Get(virtual.Run(context.Background(), o))(t)
		came := map[[2]int]int{}
		for _, l := range r.Log {
			if l.Engine == dmalog.HostRcv {
				came[[2]int{l.Flow, l.Packet}] += l.Bytes
			}
		}
		for i, s := range r.Senders {
			whole := 0
			for k := range o.Count {
				n := came[[2]int{i, k}]
				if n < 1 || n > o.Payload {
					t.Fatalf("%d bytes of frame %d of sender %d", n, k, i)
				}
				if n == o.Payload {
					whole++
				}
			}
			must.Be(t, whole, o.Count-s.Lost, "sender %d: frames are whole, %d of %d were lost", i, s.Lost, o.Count)
		}
	})
}

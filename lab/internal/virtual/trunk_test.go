package virtual_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

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

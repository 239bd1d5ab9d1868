package virtual_test

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

// anyOptions draws a platform, a policy and a load.
func anyOptions(t *rapid.T) virtual.Options {
	us := func(name string, high float64) float64 { return rapid.Float64Range(0, high).Draw(t, name) }
	mbs := func(name string) float64 { return rapid.Float64Range(20, 30000).Draw(t, name) }
	bus := func(name string) profile.Bus {
		return profile.Bus{FullDuplex: rapid.Bool().Draw(t, name+" duplex"),
			Read: profile.NewCost(us(name+" read overhead", 8), mbs(name+" read")), Write: profile.NewCost(us(name+" write overhead", 8), mbs(name+" write"))}
	}
	p := &profile.Profile{Name: "random", Sender: bus("sender"), Receiver: bus("receiver"), Host: profile.Micros(us("host", 40)),
		NIC: profile.NIC{Decision: profile.Micros(us("decision", 3)), Completion: profile.Micros(us("completion", 6)),
			Packet: profile.Micros(us("packet", 6)), Buffers: rapid.IntRange(1, 5).Draw(t, "buffers"),
			LogSend: profile.Micros(us("record while sending", 9)), LogReceive: profile.Micros(us("record while receiving", 9))},
		Link: profile.Link{Pulse: profile.NewCost(us("pulse", 2), mbs("link")), Latency: profile.Micros(us("latency", 20)), Header: rapid.IntRange(0, 256).Draw(t, "header")}}
	if rapid.Bool().Draw(t, "shared memory") {
		p.NIC.Memory = profile.NewCost(0, mbs("memory")).PerByte
	}
	payload := rapid.IntRange(1, 9000).Draw(t, "payload")
	plan, err := pipeline.ByName(rapid.SampledFrom(pipeline.PolicyNames()).Draw(t, "policy"), pipeline.Parameters{
		MinPulseSend: rapid.IntRange(40, 3000).Draw(t, "send"), MinPulseReceive: rapid.IntRange(40, 3000).Draw(t, "receive"),
		OptimalSend: []pipeline.Step{{Wait: 20, Bytes: 200}, {Wait: 300, Bytes: 500}}, OptimalReceive: []pipeline.Step{{Wait: 150, Bytes: 400}},
	})
	must.OK(t, err)
	return virtual.Options{Profile: p, Plan: plan, Payload: payload, Count: rapid.IntRange(1, 8).Draw(t, "count"),
		Gap: profile.Micros(us("gap", 200)), Random: rapid.Bool().Draw(t, "random"), Seed: 1,
		Bidirectional: rapid.Bool().Draw(t, "bidirectional"), Warmup: rapid.IntRange(0, 2).Draw(t, "warm-up"), Log: true, LogCosts: rapid.Bool().Draw(t, "log costs")}
}

// TestEveryRunIsPossible checks, for random platforms, policies and loads, that the
// transfers of a run could have happened.
func TestEveryRunIsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		r := must.Get(virtual.Run(context.Background(), o))(t)
		flows := 1
		if o.Bidirectional {
			flows = 2
		}
		for flow := range flows {
			bytesMoveOnce(t, o, r.Log, flow)
			nothingOverruns(t, o, r.Log, flow)
		}
		for node := range 2 {
			exclusive(t, o, r.Log, node)
		}
	})
}

func of(log []dmalog.Record, flow int, e dmalog.Engine) []dmalog.Record {
	var out []dmalog.Record
	for _, l := range log {
		if l.Flow == flow && l.Engine == e {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b dmalog.Record) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// bytesMoveOnce: every engine moves every frame whole, in order, one transfer after
// the other; the incoming engines in one transfer.
func bytesMoveOnce(t *rapid.T, o virtual.Options, log []dmalog.Record, flow int) {
	for e := range dmalog.Engines {
		moved := make([]int, o.Count)
		last, end := 0, int64(-1<<62)
		for _, l := range of(log, flow, e) {
			if l.Packet < last || l.Start < end || l.End < l.Start {
				t.Fatalf("%v: packet %d from %d to %d after packet %d until %d", e, l.Packet, l.Start, l.End, last, end)
			}
			if (e == dmalog.HostTx || e == dmalog.NetRcv) && l.Bytes != o.Payload {
				t.Fatalf("%v moves %d of %d bytes", e, l.Bytes, o.Payload)
			}
			last, end = l.Packet, l.End
			moved[l.Packet] += l.Bytes
		}
		for k, n := range moved {
			must.Be(t, n, o.Payload, "%v moved bytes of packet %d", e, k)
		}
	}
}

// nothingOverruns: an outgoing transfer does not start before as many bytes as it
// ends with can have arrived, even at the full rate of the engine before it.
func nothingOverruns(t *rapid.T, o virtual.Options, log []dmalog.Record, flow int) {
	arrival := map[int]dmalog.Record{}
	for _, l := range of(log, flow, dmalog.HostTx) {
		arrival[l.Packet] = l
	}
	read := o.Profile.Sender.Read
	if flow == 1 {
		read = o.Profile.Receiver.Read
	}
	sent := map[int]int{}
	for _, l := range of(log, flow, dmalog.NetTx) {
		sent[l.Packet] += l.Bytes
		from := arrival[l.Packet]
		if earliest := from.Start + int64(read.Overhead) + int64(read.Bytes(sent[l.Packet])) - 1; l.Start < min(earliest, from.End) {
			t.Fatalf("netTx of packet %d starts at %d with %d bytes, which are there at %d", l.Packet, l.Start, sent[l.Packet], earliest)
		}
	}
	came := map[int]dmalog.Record{}
	for _, l := range of(log, flow, dmalog.NetRcv) {
		came[l.Packet] = l
	}
	link := o.Profile.Link.Pulse
	taken := map[int]int{}
	for _, l := range of(log, flow, dmalog.HostRcv) {
		taken[l.Packet] += l.Bytes
		from := came[l.Packet]
		if earliest := from.Start + int64(link.Bytes(taken[l.Packet])) - 1; l.Start < min(earliest, from.End) {
			t.Fatalf("hostRcv of packet %d starts at %d with %d bytes, which are there at %d", l.Packet, l.Start, taken[l.Packet], earliest)
		}
	}
}

// exclusive: a half-duplex bus carries one transfer at a time.
func exclusive(t *rapid.T, o virtual.Options, log []dmalog.Record, node int) {
	bus := o.Profile.Sender
	if node == 1 {
		bus = o.Profile.Receiver
	}
	if bus.FullDuplex {
		return
	}
	uses := append(of(log, node, dmalog.HostTx), of(log, 1-node, dmalog.HostRcv)...)
	slices.SortStableFunc(uses, func(a, b dmalog.Record) int { return cmp.Compare(a.Start, b.Start) })
	for i := 1; i < len(uses); i++ {
		if uses[i].Start < uses[i-1].End {
			t.Fatalf("bus %d: %v until %d, %v from %d", node, uses[i-1].Engine, uses[i-1].End, uses[i].Engine, uses[i].Start)
		}
	}
}

// TestEagerDoesNotIdle: under an eager policy hostRcv starts no later than one
// decision, and the processor's other business (records, too), after its threshold was reached.
func TestEagerDoesNotIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		threshold := rapid.IntRange(1, 512).Draw(t, "threshold")
		plan := must.Get(pipeline.ByName("amp", pipeline.Parameters{MinPulseSend: threshold, MinPulseReceive: threshold}))(t)
		o.Plan, o.Bidirectional = plan, false
		r := must.Get(virtual.Run(context.Background(), o))(t)
		// Between two hostRcv transfers of one frame there is never more time than the
		// rest of the frame, or the threshold, takes to arrive.
		nic := o.Profile.NIC
		other := int64(3*nic.Decision + 2*nic.Packet)
		if o.LogCosts {
			other += 3 * int64(nic.LogReceive)
		}
		arrivals := map[int]dmalog.Record{}
		for _, l := range of(r.Log, 0, dmalog.NetRcv) {
			arrivals[l.Packet] = l
		}
		taken := map[int]int{}
		previous := dmalog.Record{Packet: -1}
		for _, l := range of(r.Log, 0, dmalog.HostRcv) {
			came := arrivals[l.Packet]
			if l.Packet == previous.Packet {
				if ready := max(previous.End, came.End); l.Start > ready+other {
					t.Fatalf("packet %d: hostRcv idle from %d to %d although all had arrived at %d", l.Packet, previous.End, l.Start, came.End)
				}
			}
			taken[l.Packet] += l.Bytes
			previous = l
		}
	})
}

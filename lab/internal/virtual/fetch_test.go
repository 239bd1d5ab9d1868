package virtual_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

// TestFetchByHand adds the stages of a request up. The page costs what it costs when nobody
// asks for it.
func TestFetchByHand(t *testing.T) {
	o := virtual.Options{Profile: simple(), Plan: plan(t, "store-and-forward", pipeline.Parameters{}), Payload: 1000, Count: 1}
	page := run(t, o).Latency
	o.Fetch, o.Server, o.Log = true, profile.Micros(25), true
	r := run(t, o)
	request := profile.Micros(5 + // host
		(1 + 4) + // netTx: decision and packet
		(0.5 + 1) + // overhead, control message
		7 + 4 + // latency, packet
		5) // host
	if r.Request != request || r.Latency != page || r.Fetched != request+profile.Micros(25)+page {
		t.Errorf("request %v, page %v, fetch %v us; the request takes %v, the page %v", r.Request.Microseconds(), r.Latency.Microseconds(),
			r.Fetched.Microseconds(), request.Microseconds(), page.Microseconds())
	}
	for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.HostRcv} {
		if l := of(r.Log, 1, e); len(l) != 0 {
			t.Errorf("%v moves a request: %v", e, l)
		}
	}
	sent, came := of(r.Log, 1, dmalog.NetTx), of(r.Log, 1, dmalog.NetRcv)
	if len(sent) != 1 || len(came) != 1 || sent[0].Bytes != 200 || came[0].End-sent[0].End != int64(profile.Micros(7)) {
		t.Errorf("the request on the wire: %v, %v", sent, came)
	}
}

// TestFetches: each fetch of a series takes as long as a lone one, whatever went before,
// and its transfers could have happened.
func TestFetches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		o.Fetch, o.Bidirectional, o.Gap, o.Server = true, false, 0, profile.Micros(rapid.Float64Range(0, 50).Draw(t, "server"))
		r, err := virtual.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Fetched != r.Request+o.Server+r.Latency {
			t.Fatalf("request %d, server %d, page %d: fetch %d", r.Request, o.Server, r.Latency, r.Fetched)
		}
		bytesMoveOnce(t, o, r.Log, 0)
		nothingOverruns(t, o, r.Log, 0)
		requests, pages := of(r.Log, 1, dmalog.NetRcv), of(r.Log, 0, dmalog.HostRcv)
		if len(requests) != o.Count {
			t.Fatalf("%d requests, %d fetches", len(requests), o.Count)
		}
		for _, p := range pages {
			if p.Start < requests[p.Packet].End+int64(o.Server) {
				t.Fatalf("page %d comes at %d, its request at %d", p.Packet, p.Start, requests[p.Packet].End)
			}
			if next := p.Packet + 1; next < len(requests) && requests[next].Start < p.End {
				t.Fatalf("request %d at %d, before page %d at %d", next, requests[next].Start, p.Packet, p.End)
			}
		}
	})
}

// TestPublishedFetch: the papers' page of 8 KiB in 200 us, within 10 %.
func TestPublishedFetch(t *testing.T) {
	for _, name := range []string{"alcor", "alcor-hpdc97"} {
		r := run(t, virtual.Options{Profile: load(t, name), Plan: plan(t, "eager", pipeline.Parameters{}), Payload: 8192, Count: 1, Fetch: true})
		if us := r.Fetched.Microseconds(); us < 180 || us > 220 {
			t.Errorf("%s: %v us", name, us)
		}
	}
}

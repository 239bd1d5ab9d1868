package report_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

func TestPageIsCompleteAndRepeatable(t *testing.T) {
	p := must.Get(profile.Hosts.Load("p6-natoma"))(t)
	rows, err := published.Read(strings.NewReader(published.Columns+"\nr1,s,q,c,59,MB/s,,stream bandwidth,alcor,store-and-forward,8192,,,,\n"+
		"r2,s,quantity,,50,MB/s,>,stream bandwidth,alcor,store-and-forward,8192,,,,\n"), "r.csv")
	must.OK(t, err)
	steps := 0
	o := report.PageOptions{Profiles: []*profile.Profile{p}, Published: rows, Progress: func() error { steps++; return nil }}
	page := must.Get(report.Page(context.Background(), o))(t)
	if n := bytes.Count(page, []byte("<svg ")); n != report.PageSteps(o) || n != steps {
		t.Errorf("%d pictures, %d steps, %d announced", n, steps, report.PageSteps(o))
	}
	for _, want := range []string{"<td>r1</td>", `<td>quantity</td><td class="n">&gt;50</td>`} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page has no %s", want)
		}
	}
	should.Same(t, page, must.Get(report.Page(context.Background(), o))(t), "two pages differ")
	stop := errors.New("stop")
	o.Progress = func() error { return stop }
	should.Refuse(report.Page(context.Background(), o))(t, stop, "progress failed, the page gives")
}

// TestFetchAxis: the axis of a fetched page ends at the figure that its note gives, and each
// engine that is named has a transfer.
func TestFetchAxis(t *testing.T) {
	c := report.Case{Profile: load(t, "p6-natoma"), Policy: "amp", Payload: 8192}
	f := must.Get(c.Fetch(t.Context()))(t)
	svg := must.Get(c.Page(t.Context()))(t)
	// The picture is 858 wide between its axis' ends; a tick tells how much of that is 100 us.
	tick := regexp.MustCompile(`<text x="([0-9.]+)" y="[0-9.]+" text-anchor="middle">100</text>`).FindSubmatch(svg)
	if tick == nil {
		t.Fatalf("no tick at 100 us in %s", svg)
	}
	var x float64
	must.Get(fmt.Sscan(string(tick[1]), &x))(t)
	if end := 858 / (x - 118) * 100; end < 0.998*f.Whole.Microseconds() || end > 1.002*f.Whole.Microseconds() {
		t.Errorf("the axis ends at %.1f us, the page is there after %.1f", end, f.Whole.Microseconds())
	}
	for _, idle := range []string{"hostTx, request", "hostRcv, request"} {
		if strings.Contains(string(svg), idle) {
			t.Errorf("a row for %s, which moves nothing", idle)
		}
	}
}

// TestPauses: of a log with pauses, the stretch with the most transfers is drawn, wide enough
// for the numbers of packets.
func TestPauses(t *testing.T) {
	const us = 1_000_000
	var log []dmalog.Record
	for packet := range int64(5) {
		log = append(log, dmalog.Record{Packet: int(packet), Engine: dmalog.HostTx, Start: packet * 10 * us, End: (packet*10 + 9) * us, Bytes: 64})
	}
	whole, err := report.Case{Recorded: log, Source: "DMA log a"}.Flow(t.Context())
	if err != nil || !strings.Contains(string(whole), ">DMA log a: 5 transfers<") || !strings.Contains(string(whole), ">4</text>") {
		t.Errorf("without a pause: %v, %s", err, whole)
	}
	for _, at := range []int64{100_000 * us, 7_000_000 * us} {
		log = append(log, dmalog.Record{Packet: 6, Engine: dmalog.NetTx, Start: at, End: at + us, Bytes: 64})
	}
	svg, err := report.Case{Recorded: log, Source: "DMA log a"}.Flow(t.Context())
	if err != nil || !strings.Contains(string(svg), "DMA log a: 7 transfers in 7000001 us; drawn are 5 of them, between pauses") || !strings.Contains(string(svg), ">4</text>") {
		t.Errorf("with pauses: %v, %s", err, svg)
	}
}

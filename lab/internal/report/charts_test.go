package report_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// TestFetchAxis: the axis of a fetched page ends at the figure that its note gives, and each
// engine that is named has a transfer.
func TestFetchAxis(t *testing.T) {
	c := report.Case{Profile: load(t, "p6-natoma"), Policy: "amp", Payload: 8192}
	f, err := c.Fetch(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := report.FetchGraph(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The picture is 858 wide between its axis' ends; a tick tells how much of that is 100 us.
	tick := regexp.MustCompile(`<text x="([0-9.]+)" y="[0-9.]+" text-anchor="middle">100</text>`).FindSubmatch(svg)
	if tick == nil {
		t.Fatalf("no tick at 100 us in %s", svg)
	}
	var x float64
	if _, err := fmt.Sscan(string(tick[1]), &x); err != nil {
		t.Fatal(err)
	}
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
	whole, err := report.FlowGraph(t.Context(), report.Case{}, log, "DMA log a")
	if err != nil || !strings.Contains(string(whole), ">DMA log a: 5 transfers<") || !strings.Contains(string(whole), ">4</text>") {
		t.Errorf("without a pause: %v, %s", err, whole)
	}
	for _, at := range []int64{100_000 * us, 7_000_000 * us} {
		log = append(log, dmalog.Record{Packet: 6, Engine: dmalog.NetTx, Start: at, End: at + us, Bytes: 64})
	}
	svg, err := report.FlowGraph(t.Context(), report.Case{}, log, "DMA log a")
	if err != nil || !strings.Contains(string(svg), "DMA log a: 7 transfers in 7000001 us; drawn are 5 of them, between pauses") || !strings.Contains(string(svg), ">4</text>") {
		t.Errorf("with pauses: %v, %s", err, svg)
	}
}

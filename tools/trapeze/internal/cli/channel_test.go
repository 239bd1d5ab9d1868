package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

type channelReport struct {
	Peer, Priority              string
	Bytes, Participants, Rounds int
	Min                         float64 `json:"min_us"`
	P50                         float64 `json:"p50_us"`
	P99                         float64 `json:"p99_us"`
	Max                         float64 `json:"max_us"`
}

func (r *channelReport) sound() bool {
	return r.Min > 0 && r.Min <= r.P50 && r.P50 <= r.P99 && r.P99 <= r.Max
}

func TestChannelPing(t *testing.T) {
	for _, priority := range []string{"high", "low"} {
		var r channelReport
		decode(t, run(t, "channel", "ping", "--count", "20", "--size", "400", "--priority", priority, "--json"), &r)
		should.Hold(t, r.sound() && r.Rounds == 20 && r.Bytes == 400 && r.Priority == priority && r.Peer != "", "%+v", r)
	}
	run(t, "channel", "ping", "-c", "3").exit(t, 0, "rounds    3\n")
	for _, args := range [][]string{{"--size", "12"}, {"--size", "0"}, {"--size", "8192"}, {"--count", "0"}, {"--priority", "medium"},
		{"--timeout", "0s"}, {"--to", "nobody"}} {
		run(t, append([]string{"channel", "ping"}, args...)...).exit(t, shell.ExitUsage)
	}
}

// TestChannelPingLost: who pings over a wire that loses messages does not wait for ever.
func TestChannelPingLost(t *testing.T) {
	at := "emu:?wire=mem:losing&loss=0.3&seed=7"
	ctx, stop := context.WithCancel(context.Background())
	listening := make(chan outcome)
	go func() { listening <- runWith(ctx, nil, "channel", "listen", "--device", at) }()
	o := run(t, "channel", "ping", "--count", "1000", "--timeout", "500ms", "--device", at)
	stop()
	l := <-listening
	should.Hold(t, o.code == shell.ExitTimeout && strings.Contains(o.stderr, "no answer to message") && l.code == 0, "%+v, %+v", o, l)
}

// TestChannelInterrupted: what was measured until then is shown.
func TestChannelInterrupted(t *testing.T) {
	o := interrupted(t, `"rounds":`, "channel", "ping", "--count", "1000000000", "--json")
	var r channelReport
	err := json.Unmarshal([]byte(o.stdout), &r)
	should.Hold(t, err == nil && o.code != 0 && r.Rounds != 0 && r.sound(), "%v, %+v", err, o)
}

// TestDemoChannels: urgent cells and bulk arrive, all of them in the histogram, and those that
// are urgent do not wait for whole messages.
func TestDemoChannels(t *testing.T) {
	type latency struct {
		Bytes int
		P50   float64 `json:"p50_us"`
		P99   float64 `json:"p99_us"`
		P999  float64 `json:"p999_us"`
	}
	var r struct {
		Latency   []latency
		Rate      float64 `json:"bulk_mb_per_s"`
		Histogram []struct {
			UpTo               float64 `json:"up_to_us"`
			Idle, Urgent, Bulk int
		}
	}
	decode(t, run(t, "demo", "--channels", "--duration", "100ms", "--json"), &r)
	must.Be(t, len(r.Latency), 3, "%+v", r)
	for _, l := range r.Latency {
		should.Hold(t, l.P50 > 0 && l.P50 <= l.P99 && l.P99 <= l.P999 && l.Bytes != 0, "%+v", l)
	}
	counts, last := [3]int{}, 0.0
	for _, b := range r.Histogram {
		should.Hold(t, b.UpTo > last, "%+v", r.Histogram)
		last = b.UpTo
		counts[0], counts[1], counts[2] = counts[0]+b.Idle, counts[1]+b.Urgent, counts[2]+b.Bulk
	}
	should.Hold(t, counts[0] != 0 && counts[1] != 0 && counts[2] != 0 && last >= r.Latency[2].P999 && r.Rate > 0, "%v of the kinds, %+v", counts, r)
	run(t, "demo", "--channels", "--duration", "10ms").exit(t, 0, "urgent, beside bulk")
}

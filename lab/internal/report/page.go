package report

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// PageOptions say what the page shows.
type PageOptions struct {
	Profiles  []*profile.Profile
	Published []published.Row // shown beside the computed figures; nil = left out
	Progress  func() error    // called after each picture
}

// Payloads of the page's curves and of its flow graphs, in bytes.
const pagePayload = 8192

var (
	latencyPayloads   = []int{256, 512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192}
	bandwidthPayloads = []int{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
	flowPolicies      = []string{"store-and-forward", "static", "pure-cut-through", "amp", "auto"}
)

// PageSteps returns how often Progress will be called.
func PageSteps(o PageOptions) int { return len(o.Profiles) * (len(flowPolicies) + 4) }

// Page makes one self-contained HTML page that reads like the papers' evaluation.
func Page(ctx context.Context, o PageOptions) ([]byte, error) {
	var sections []plot.Section
	if o.Published != nil {
		s, err := comparison(ctx, o.Published)
		if err != nil {
			return nil, err
		}
		sections = append(sections, s)
	}
	for _, p := range o.Profiles {
		s, err := platform(ctx, p, o.Progress)
		if err != nil {
			return nil, err
		}
		sections = append(sections, s)
	}
	intro := "Computed in virtual time by the scheduler and the policies that move the bytes of the live device. " +
		"Latency is one way, one payload on an idle system; bandwidth is that of a stream; MB is 10^6 bytes."
	return plot.HTML("Trapeze: delivery policies", intro, sections), nil
}

func platform(ctx context.Context, p *profile.Profile, progress func() error) (plot.Section, error) {
	s := plot.Section{Title: p.Name, Text: describe(p)}
	var err error
	draw := func(caption string, picture func(context.Context) ([]byte, error)) {
		if err != nil {
			return
		}
		var svg []byte
		if svg, err = picture(ctx); err == nil {
			s.Pictures = append(s.Pictures, plot.Picture{Caption: caption, SVG: svg})
			err = progress()
		}
	}
	for _, policy := range flowPolicies {
		draw("Six payloads of 8 KiB under policy "+policy+".", Case{Profile: p, Policy: policy, Payload: pagePayload, Count: 6, Warmup: -1}.Flow)
	}
	draw("Latency of 8 KiB against the threshold of either side and of both.", Case{Profile: p, Payload: pagePayload}.Thresholds)
	draw("Latency against payload.", Curves{p, Compared, latencyPayloads}.Latencies)
	draw("Bandwidth of streams against payload, with what the bus alone would carry.", Curves{p, Compared, bandwidthPayloads}.Bandwidths)
	draw("What each engine moves while an AMP stream of 8 KiB payloads starts and settles.", func(ctx context.Context) ([]byte, error) {
		c := Case{Profile: p, Policy: "amp", Payload: pagePayload, Count: 20, Warmup: -1}
		lone, err := c.Measure(ctx)
		if err != nil {
			return nil, err
		}
		c.Window = lone.Latency / 2
		return c.Rates(ctx)
	})
	return s, err
}

func describe(p *profile.Profile) string {
	duplex := "half duplex"
	if p.Sender.FullDuplex {
		duplex = "full duplex"
	}
	return fmt.Sprintf("%s. Bus (%s): reads %s MB/s after %s us, writes %s MB/s after %s us. Link: %s MB/s, %s us. "+
		"Firmware: %s us for a decision, %s us to take note of the end of an incoming transfer. Hosts: %s us.",
		p.Summary, duplex, figure(p.Sender.Read.Bandwidth()), figure(p.Sender.Read.Overhead.Microseconds()),
		figure(p.Receiver.Write.Bandwidth()), figure(p.Receiver.Write.Overhead.Microseconds()),
		figure(p.Link.Pulse.Bandwidth()), figure(p.Link.Latency.Microseconds()), figure(p.NIC.Decision.Microseconds()),
		figure(p.NIC.Completion.Microseconds()), figure(p.Host.Microseconds()))
}

// figure writes a number with about four digits, and never with an exponent.
func figure(v float64) string {
	digits := 3
	for n := math.Abs(v); n >= 10 && digits > 0; n /= 10 {
		digits--
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func comparison(ctx context.Context, rows []published.Row) (plot.Section, error) {
	lines, err := published.Compare(published.NewModel(ctx, profile.Hosts.Load), rows)
	if err != nil {
		return plot.Section{}, err
	}
	t := plot.Table{Caption: "Published figures and what the model computes for them.",
		Header: []string{"id", "source", "figure", "published", "computed", "to", "error, %", "unit"}}
	left := 0
	for _, l := range lines {
		if l.Kind == published.NotModelled {
			left++
			continue
		}
		t.Rows = append(t.Rows, []string{l.ID, l.Source, strings.TrimSuffix(l.Quantity+"; "+l.Condition, "; "), string(l.Bound) + l.Value,
			command.Word(l.Computed), command.Word(l.Highest), command.Word(l.Error), l.Unit})
	}
	s := published.Summarise(lines, func(published.Line) bool { return true })
	text := fmt.Sprintf("Over %d computed times and bandwidths the mean error is %.2f %% and the greatest %.2f %% (%s). %d rows are not modelled.",
		s.Rows, 100*s.Mean, 100*s.Maximum, s.Worst, left)
	return plot.Section{Title: "Published and computed", Text: text, Tables: []plot.Table{t}}, nil
}

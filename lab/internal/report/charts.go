package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// streamFrames is the length of the streams behind bandwidth curves.
const streamFrames = 60

// FlowGraph draws the first frames of a stream, or of a live device's log if
// records are given.
func FlowGraph(ctx context.Context, c Case, records []dmalog.Record, source string) ([]byte, error) {
	figures, title, note, err := c.logged(ctx, "Packet flow graph", records, source, ", virtual time from the posting of the first")
	if err != nil {
		return nil, err
	}
	f := plot.Flow{Title: title, Note: note, Records: figures.Log, Control: figures.Control}
	if source != "" {
		f.From, f.To, f.Note = busiest(records, source)
	}
	return f.SVG()
}

// pause is the share of what is shown beyond which a time without transfers is left out:
// stripes beside it are too narrow to be told apart.
const pause = 0.1

// busiest returns the span of a log, in picoseconds, with the most transfers that no pause
// parts, and what a picture of it says. A log without a pause is shown as a whole.
func busiest(records []dmalog.Record, source string) (from, to int64, note string) {
	sorted := slices.SortedFunc(slices.Values(records), func(a, b dmalog.Record) int { return cmp.Compare(a.Start, b.Start) })
	shown := sorted
	for parts := 2; parts > 1; {
		parts = 0
		var most []dmalog.Record
		for rest := shown; len(rest) > 0; parts++ {
			n := untilPause(rest, shown)
			if n > len(most) {
				most = rest[:n]
			}
			rest = rest[n:]
		}
		shown = most
	}
	if len(shown) == 0 {
		return 0, 0, source
	}
	note = fmt.Sprintf("%s: %d transfers", source, len(records))
	if len(shown) == len(records) {
		return 0, 0, note
	}
	from, to = shown[0].Start, endOf(shown)
	return from, to, fmt.Sprintf("%s in %s us; drawn are %d of them, between pauses", note, figure(dmalog.Microseconds(endOf(sorted)-sorted[0].Start)), len(shown))
}

// untilPause returns how many records are before the first pause of those that are shown.
func untilPause(rest, shown []dmalog.Record) int {
	least := int64(pause * float64(endOf(shown)-shown[0].Start))
	end := rest[0].End
	for i, r := range rest {
		if r.Start-end > least {
			return i
		}
		end = max(end, r.End)
	}
	return len(rest)
}

// endOf is when the last of some transfers ends.
func endOf(records []dmalog.Record) (end int64) {
	for _, r := range records {
		end = max(end, r.End)
	}
	return end
}

// FetchGraph draws one page that is fetched, from the posting of the request on.
func FetchGraph(ctx context.Context, c Case, server profile.Time) ([]byte, error) {
	f, err := c.Fetch(ctx, server)
	if err != nil {
		return nil, err
	}
	for _, records := range [][]dmalog.Record{f.Log, f.Control} {
		for i := range records {
			records[i].Packet = 1 - records[i].Flow // the request is the first
		}
	}
	return plot.Flow{
		Title:      fmt.Sprintf("Page fetch: %s, %s", c.Profile.Name, c.Policy),
		Note:       fmt.Sprintf("%d bytes in %s us: request %s, server %s, page %s", c.Payload, figure(f.Whole.Microseconds()), figure(f.Request.Microseconds()), figure(server.Microseconds()), figure(f.Page.Microseconds())),
		Records:    f.Log,
		Control:    f.Control,
		To:         int64(f.Whole), // the program has the page a little after the last transfer
		Directions: [2]string{"page", "request"},
	}.SVG()
}

// Rates draws every engine's effective bandwidth over time.
func Rates(ctx context.Context, c Case, records []dmalog.Record, source string, window profile.Time) ([]byte, error) {
	figures, title, note, err := c.logged(ctx, "Effective bandwidth", records, source, fmt.Sprintf("; mean over windows of %s us", figure(window.Microseconds())))
	if err != nil {
		return nil, err
	}
	return plot.Rate{Title: title, Note: note, Records: figures.Log, Window: int64(window)}.SVG()
}

// logged returns the log that is given with their source, or else those of the case, with
// what a picture of them says: more has what it says of the case only.
func (c *Case) logged(ctx context.Context, title string, given []dmalog.Record, source, more string) (f *Figures, full, note string, err error) {
	if given != nil {
		return &Figures{Log: given}, title, source, nil
	}
	c.Log = true
	if f, err = c.Measure(ctx); err != nil {
		return nil, "", "", err
	}
	each := ""
	if c.Bidirectional {
		each = " each way"
	}
	return f, fmt.Sprintf("%s: %s, %s", title, c.Profile.Name, c.Policy), fmt.Sprintf("%d packets of %d bytes%s%s", c.Count, c.Payload, each, more), nil
}

// tooSlow is where threshold curves are cut off, as a multiple of store and
// forward: very small static pulses would press all other curves flat.
const tooSlow = 1.5

// Thresholds draws latency against the threshold or pulse of one side or of both,
// for eager and for static pulses.
func Thresholds(ctx context.Context, p *profile.Profile, payload int) ([]byte, error) {
	ch := plot.Chart{
		Title: "Latency against threshold: " + p.Name,
		Note:  fmt.Sprintf("%d bytes, one way, idle system, other side at its default; more than %g times store and forward left out", payload, tooSlow),
		X:     plot.Axis{Label: "threshold or pulse, bytes", Log2: true, Bytes: true},
		Y:     plot.Axis{Label: "one-way latency, us"},
	}
	whole, err := Case{Profile: p, Policy: "store-and-forward", Payload: payload, Count: 1}.Measure(ctx)
	if err != nil {
		return nil, err
	}
	limit := profile.Time(tooSlow * float64(whole.Latency))
	for _, line := range []struct {
		name, policy  string
		send, receive bool
	}{
		{"eager, both sides", "eager", true, true}, {"eager, sender", "eager", true, false},
		{"eager, receiver", "eager", false, true}, {"static, both sides", "static", true, true},
		{"static, sender", "static", true, false}, {"static, receiver", "static", false, true},
	} {
		s := plot.Series{Name: line.name}
		for n := 32; n <= payload; n *= 2 {
			for _, v := range []int{n, n + n/2} {
				if v > payload {
					break
				}
				c := Case{Profile: p, Policy: line.policy, Payload: payload, Count: 1}
				if line.send {
					c.MinPulseSend = v
				}
				if line.receive {
					c.MinPulseReceive = v
				}
				f, err := c.Measure(ctx)
				if err != nil {
					return nil, err
				}
				if f.Latency <= limit {
					s.Points = append(s.Points, plot.Point{X: float64(v), Y: f.Latency.Microseconds()})
				}
			}
		}
		ch.Series = append(ch.Series, s)
	}
	return ch.SVG()
}

// Compared are the policies that payload curves show.
var Compared = []string{"store-and-forward", "static", "pure-cut-through", "amp", "auto"}

// Latencies draws latency against payload.
func Latencies(ctx context.Context, p *profile.Profile, policies []string, payloads []int) ([]byte, error) {
	ch := plot.Chart{
		Title: "Latency against payload: " + p.Name,
		Note:  "one way, idle system, thresholds at their defaults",
		X:     plot.Axis{Label: "payload, bytes", Zero: true, Bytes: true},
		Y:     plot.Axis{Label: "one-way latency, us", Zero: true},
	}
	if payloads[len(payloads)-1] > 16384 {
		ch.X.Zero, ch.X.Log2 = false, true
	}
	return curves(ctx, ch, p, policies, payloads, 1, func(f *Figures) float64 { return f.Latency.Microseconds() })
}

// curves draws a chart with a figure of streams of count payloads for each policy.
func curves(ctx context.Context, ch plot.Chart, p *profile.Profile, policies []string, payloads []int, count int, figure func(*Figures) float64) ([]byte, error) {
	for _, policy := range policies {
		s := plot.Series{Name: policy}
		for _, n := range payloads {
			f, err := Case{Profile: p, Policy: policy, Payload: n, Count: count, Warmup: -1}.Measure(ctx)
			if err != nil {
				return nil, err
			}
			s.Points = append(s.Points, plot.Point{X: float64(n), Y: figure(f)})
		}
		ch.Series = append(ch.Series, s)
	}
	return ch.SVG()
}

// Bandwidths draws bandwidth against payload, with what the bus alone would carry
// behind it.
func Bandwidths(ctx context.Context, p *profile.Profile, policies []string, payloads []int) ([]byte, error) {
	ch := plot.Chart{
		Title: "Bandwidth against payload: " + p.Name,
		Note:  fmt.Sprintf("streams of %d payloads; grey: transfers of that size over the bus alone", streamFrames),
		X:     plot.Axis{Label: "payload, bytes", Log2: true, Bytes: true},
		Y:     plot.Axis{Label: "bandwidth, MB/s", Zero: true},
		Series: []plot.Series{
			{Name: "bus, reading", Behind: true, Points: busCurve(p.Sender.Read, payloads)},
			{Name: "bus, writing", Behind: true, Points: busCurve(p.Receiver.Write, payloads)},
		},
	}
	return curves(ctx, ch, p, policies, payloads, streamFrames, func(f *Figures) float64 { return f.Bandwidth })
}

func busCurve(c profile.Cost, payloads []int) []plot.Point {
	points := make([]plot.Point, len(payloads))
	for i, n := range payloads {
		points[i] = plot.Point{X: float64(n), Y: float64(n) / c.Transfer(n).Microseconds()}
	}
	return points
}

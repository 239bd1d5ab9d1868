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

// Flow draws the first frames of a stream, or those of a live device's log.
func (c Case) Flow(ctx context.Context) ([]byte, error) {
	figures, title, note, err := c.logged(ctx, "Packet flow graph", ", virtual time from the posting of the first")
	if err != nil {
		return nil, err
	}
	f := plot.Flow{Title: title, Note: note, Records: figures.Log, Control: figures.Control}
	if c.Source != "" {
		f.From, f.To, f.Note = busiest(c.Recorded, c.Source)
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

func endOf(records []dmalog.Record) (end int64) {
	for _, r := range records {
		end = max(end, r.End)
	}
	return end
}

// Page draws one page that is fetched, from the posting of the request on.
func (c Case) Page(ctx context.Context) ([]byte, error) {
	f, err := c.Fetch(ctx)
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
		Note:       fmt.Sprintf("%d bytes in %s us: request %s, server %s, page %s", c.Payload, figure(f.Whole.Microseconds()), figure(f.Request.Microseconds()), figure(c.Server.Microseconds()), figure(f.Page.Microseconds())),
		Records:    f.Log,
		Control:    f.Control,
		To:         int64(f.Whole), // the program has the page a little after the last transfer
		Directions: [2]string{"page", "request"},
	}.SVG()
}

// Rates draws every engine's effective bandwidth over time.
func (c Case) Rates(ctx context.Context) ([]byte, error) {
	figures, title, note, err := c.logged(ctx, "Effective bandwidth", fmt.Sprintf("; mean over windows of %s us", figure(c.Window.Microseconds())))
	if err != nil {
		return nil, err
	}
	return plot.Rate{Title: title, Note: note, Records: figures.Log, Window: int64(c.Window)}.SVG()
}

// logged returns the log that a case has from a device, or else the one of its run, with what a picture of it says:
// more has what it says of a run only.
func (c *Case) logged(ctx context.Context, title, more string) (f *Figures, full, note string, err error) {
	if c.Source != "" {
		return &Figures{Log: c.Recorded}, title, c.Source, nil
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

// thresholdCurve is one of a policy against the threshold of one side or of both; the other side has a threshold of its own.
type thresholdCurve struct {
	name, policy  string
	send, receive bool
	other         int // 0: its default
}

// Thresholds draws latency against the threshold or pulse of one side or of both, for eager and static pulses. With
// thresholds of the other side it draws static pulses, a chart for each side with a curve for each of these.
func (c Case) Thresholds(ctx context.Context) ([]byte, error) {
	title := "Latency against threshold: " + c.Profile.Name
	m := meter{ctx: ctx}
	if len(c.Others) == 0 {
		var all []thresholdCurve
		for _, policy := range []string{"eager", "static"} {
			all = append(all, thresholdCurve{policy + ", both sides", policy, true, true, 0},
				thresholdCurve{policy + ", sender", policy, true, false, 0}, thresholdCurve{policy + ", receiver", policy, false, true, 0})
		}
		return m.draw(c.thresholds(&m, title, "other side at its default", all))
	}
	var charts []plot.Chart
	for _, side := range []struct {
		name, other string
		send        bool
	}{{"sender", "receiver", true}, {"receiver", "sender", false}} {
		var all []thresholdCurve
		for _, n := range c.Others {
			all = append(all, thresholdCurve{fmt.Sprintf("%s %d bytes", side.other, n), "static", side.send, !side.send, n})
		}
		charts = append(charts, c.thresholds(&m, "Static pulse of the "+side.name, side.other+" as named", all))
	}
	if m.err != nil {
		return nil, m.err
	}
	return plot.Stack(title, charts...)
}

func (c *Case) thresholds(m *meter, title, other string, curves []thresholdCurve) plot.Chart {
	p, payload := c.Profile, c.Payload
	ch := plot.Chart{
		Title: title,
		Note:  fmt.Sprintf("%d bytes, one way, idle system, %s; more than %g times store and forward left out", payload, other, tooSlow),
		X:     plot.Axis{Label: "threshold or pulse, bytes", Log2: true, Bytes: true},
		Y:     plot.Axis{Label: "one-way latency, us"},
	}
	whole := m.measure(Case{Profile: p, Policy: "store-and-forward", Payload: payload, Count: 1})
	var sizes []int
	for n := 32; n <= payload; n *= 2 {
		sizes = append(sizes, n, min(n+n/2, payload))
	}
	sizes = slices.Compact(sizes)
	limit := profile.Time(tooSlow * float64(whole.Latency))
	for _, line := range curves {
		s := curve(m, line.name, sizes, latency, func(n int) Case {
			c := Case{Profile: p, Policy: line.policy, Payload: payload, Count: 1, MinPulseSend: line.other, MinPulseReceive: line.other}
			if line.send {
				c.MinPulseSend = n
			}
			if line.receive {
				c.MinPulseReceive = n
			}
			return c
		})
		s.Points = slices.DeleteFunc(s.Points, func(p plot.Point) bool { return p.Y > limit.Microseconds() })
		ch.Series = append(ch.Series, s)
	}
	return ch
}

func latency(f *Figures) float64 { return f.Latency.Microseconds() }

// curve measures a case for each of some sizes in bytes.
func curve(m *meter, name string, sizes []int, figure func(*Figures) float64, of func(bytes int) Case) plot.Series {
	s := plot.Series{Name: name}
	for _, n := range sizes {
		s.Points = append(s.Points, plot.Point{X: float64(n), Y: figure(m.measure(of(n)))})
	}
	return s
}

// Compared are the policies that payload curves show.
var Compared = []string{"store-and-forward", "static", "pure-cut-through", "amp", "auto"}

// Curves are of policies against payload.
type Curves struct {
	Profile  *profile.Profile
	Policies []string
	Payloads []int // bytes
}

// Latencies draws latency against payload.
func (o Curves) Latencies(ctx context.Context) ([]byte, error) {
	ch := plot.Chart{
		Title: "Latency against payload: " + o.Profile.Name,
		Note:  "one way, idle system, thresholds at their defaults",
		X:     plot.Axis{Label: "payload, bytes", Zero: true, Bytes: true},
		Y:     plot.Axis{Label: "one-way latency, us", Zero: true},
	}
	return o.draw(ctx, ch, 1, latency)
}

// draw draws a chart with a figure of streams of count payloads for each policy.
func (o Curves) draw(ctx context.Context, ch plot.Chart, count int, figure func(*Figures) float64) ([]byte, error) {
	m := meter{ctx: ctx}
	for _, policy := range o.Policies {
		ch.Series = append(ch.Series, curve(&m, policy, o.Payloads, figure, func(n int) Case {
			return Case{Profile: o.Profile, Policy: policy, Payload: n, Count: count, Warmup: -1}
		}))
	}
	return m.draw(ch)
}

// Bandwidths draws bandwidth against payload, with what the bus alone would carry
// behind it.
func (o Curves) Bandwidths(ctx context.Context) ([]byte, error) {
	ch := plot.Chart{
		Title: "Bandwidth against payload: " + o.Profile.Name,
		Note:  fmt.Sprintf("streams of %d payloads; grey: transfers of that size over the bus alone", streamFrames),
		X:     plot.Axis{Label: "payload, bytes", Log2: true, Bytes: true},
		Y:     plot.Axis{Label: "bandwidth, MB/s", Zero: true},
		Series: []plot.Series{
			{Name: "bus, reading", Behind: true, Points: busCurve(o.Profile.Sender.Read, o.Payloads)},
			{Name: "bus, writing", Behind: true, Points: busCurve(o.Profile.Receiver.Write, o.Payloads)},
		},
	}
	return o.draw(ctx, ch, streamFrames, func(f *Figures) float64 { return f.Bandwidth })
}

func busCurve(c profile.Cost, payloads []int) []plot.Point {
	points := make([]plot.Point, len(payloads))
	for i, n := range payloads {
		points[i] = plot.Point{X: float64(n), Y: float64(n) / c.Transfer(n).Microseconds()}
	}
	return points
}

// Moved are the transfers of live NICs, by their logs.
type Moved []dmalog.Record

// Bandwidths draws the bandwidth of DMA between host memory and NIC against the size of a transfer, in both directions: medians.
func (m Moved) Bandwidths(context.Context) ([]byte, error) {
	took := map[dmalog.Engine]map[int][]float64{dmalog.HostTx: {}, dmalog.HostRcv: {}}
	for _, r := range m {
		if of := took[r.Engine]; of != nil && r.End > r.Start {
			of[r.Bytes] = append(of[r.Bytes], dmalog.Microseconds(r.End-r.Start))
		}
	}
	ch := plot.Chart{Title: "Bandwidth of live DMA against the size of a transfer", Note: fmt.Sprintf("medians, by logs of %d transfers", len(m)),
		X: plot.Axis{Label: "transfer, bytes", Log2: true, Bytes: true}, Y: plot.Axis{Label: "bandwidth, MB/s", Zero: true}}
	for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.HostRcv} {
		s := plot.Series{Name: e.String()}
		for bytes, all := range took[e] {
			slices.Sort(all)
			s.Points = append(s.Points, plot.Point{X: float64(bytes), Y: float64(bytes) / all[len(all)/2]})
		}
		slices.SortFunc(s.Points, func(a, b plot.Point) int { return int(a.X - b.X) })
		if len(s.Points) > 0 {
			ch.Series = append(ch.Series, s)
		}
	}
	return ch.SVG()
}

// Projection says what a faster bus and a faster link would do: overheads, firmware and hosts
// stay as they are (cut-through paper, section 4.4).
type Projection struct {
	Buses   []*profile.Profile // whose buses and firmware are taken
	Labels  []string           // of the buses
	Links   []float64          // MB/s
	Policy  string
	Payload int // bytes
}

// Projected is one pair of a bus and a link.
type Projected struct {
	Bus       string       `json:"bus"`
	Link      float64      `json:"link_mb_s"`
	Whole     profile.Time `json:"store_and_forward_us"`
	Latency   profile.Time `json:"latency_us"`
	Reduction float64      `json:"reduction_percent"`
	Bandwidth float64      `json:"bandwidth_mb_s"`
}

// FasterBus returns a copy of a profile whose buses have factor times the bandwidth.
func FasterBus(p *profile.Profile, factor float64) *profile.Profile {
	q := *p
	for _, c := range []*profile.Cost{&q.Sender.Read, &q.Sender.Write, &q.Receiver.Read, &q.Receiver.Write} {
		c.PerByte = profile.NewCost(0, c.Bandwidth()*factor).PerByte
	}
	return &q
}

// Run computes each pair, all links of the first bus first.
func (o Projection) Run(ctx context.Context) ([]Projected, error) {
	var rows []Projected
	m := meter{ctx: ctx}
	for i, bus := range o.Buses {
		for _, link := range o.Links {
			p := *bus
			p.Link.Pulse.PerByte = profile.NewCost(0, link).PerByte
			whole := m.measure(Case{Profile: &p, Policy: "store-and-forward", Payload: o.Payload, Count: 1})
			f := m.measure(Case{Profile: &p, Policy: o.Policy, Payload: o.Payload, Count: streamFrames, Warmup: -1})
			rows = append(rows, Projected{Bus: o.Labels[i], Link: link, Whole: whole.Latency, Latency: f.Latency, Bandwidth: f.Bandwidth,
				Reduction: 100 * (1 - float64(f.Latency)/float64(whole.Latency))})
		}
	}
	return rows, m.err
}

// Draw draws the reduction of latency against the link, a curve for each bus.
func (o Projection) Draw(ctx context.Context) ([]byte, error) {
	rows, err := o.Run(ctx)
	if err != nil {
		return nil, err
	}
	ch := plot.Chart{
		Title: "Projection: " + o.Policy + " against store and forward",
		Note:  fmt.Sprintf("%d bytes, one way, idle system; overheads, firmware and hosts as they are", o.Payload),
		X:     plot.Axis{Label: "link, MB/s", Log2: true},
		Y:     plot.Axis{Label: "latency less, %", Zero: true},
	}
	for i, label := range o.Labels {
		s := plot.Series{Name: label}
		for _, r := range rows[i*len(o.Links) : (i+1)*len(o.Links)] {
			s.Points = append(s.Points, plot.Point{X: r.Link, Y: r.Reduction})
		}
		ch.Series = append(ch.Series, s)
	}
	return ch.SVG()
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Comparison is what Compare does.
type Comparison struct {
	// Wire and Placement of ours for messages.
	Wire, Placement string
	Rounds          int
	For             time.Duration // each measurement
	Cores           []int         // two
	Peers           []Peer        // those that are here
	// Rows to measure; nil for DefaultRows.
	Rows []Row
	// Progress is called after each measurement.
	Progress func()
}

// Row is one question and everybody's answers.
type Row struct {
	Test  string `json:"test"`
	Bytes int    `json:"bytes"`
	Unit  string `json:"unit"`
	// Better is "lower" or "higher".
	Better string `json:"better"`
	// Ours and Peers are medians over the rounds; Spread are lowest and highest.
	Ours       float64               `json:"ours"`
	OursSpread [2]float64            `json:"ours_spread"`
	Peers      map[string]float64    `json:"peers"`
	PeerSpread map[string][2]float64 `json:"peers_spread"`
	// Statistics say what a latency is for each, such as p50.
	Statistics map[string]string `json:"statistics,omitempty"`
	// Tail is the p99.9 latency of those who tell it.
	Tail map[string]float64 `json:"p999_us,omitempty"`
	// Best is the best peer, RatioToBest ours divided by its figure: the median of
	// the rounds' ratios, and their spread.
	Best        string            `json:"best_peer,omitempty"`
	RatioToBest *float64          `json:"ratio_to_best"`
	RatioSpread *[2]float64       `json:"ratio_spread,omitempty"`
	TailRatio   *float64          `json:"p999_ratio_to_best,omitempty"`
	Failures    map[string]string `json:"failures,omitempty"`
	// Switches is how often a second our processes were taken off their cores.
	Switches float64 `json:"involuntary_switches_per_s"`
	// Incomplete: it ended before all rounds were measured.
	Incomplete bool `json:"incomplete,omitempty"`

	answers map[string][]Answer // by who, by round
}

// ours is who we are in a row's answers.
const ours = "trapeze"

// DefaultRows are what the project has goals for.
func DefaultRows() []Row {
	return []Row{
		{Test: "latency", Bytes: 64}, {Test: "latency", Bytes: 4 << 10}, {Test: "latency", Bytes: 8 << 10}, {Test: "latency", Bytes: 64 << 10},
		{Test: "bandwidth", Bytes: 8 << 10}, {Test: "bandwidth", Bytes: 64 << 10},
		{Test: "rate", Bytes: 64},
		{Test: "frames", Bytes: 64}, {Test: "frames", Bytes: 1500},
	}
}

// Steps is how many times Compare calls Progress.
func (c *Comparison) Steps() int {
	n := 0
	for _, r := range c.rows() {
		n++
		for i := range c.Peers {
			if slices.Contains(c.Peers[i].Tests, r.Test) {
				n++
			}
		}
	}
	return n * c.Rounds
}

func (c *Comparison) rows() []Row {
	if c.Rows == nil {
		return DefaultRows()
	}
	return c.Rows
}

// Validate checks what can be checked before anything is measured. Errors wrap
// ErrSpec.
func (c *Comparison) Validate() error {
	if c.Rounds < 1 || c.Rounds > 1000 {
		return fmt.Errorf("%w: %d rounds (1 to 1000)", ErrSpec, c.Rounds)
	}
	for _, r := range c.rows() {
		if r.Test != "frames" {
			t := c.task(Question{Test: r.Test, Bytes: r.Bytes, For: c.For})
			if err := t.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Compare measures every row with everybody in turn, A B A B, so that what changes
// on the machine changes for all. A peer that fails is left out of the row, which
// says why; a failure of ours ends it all. With an error it returns the rows that
// were measured before, the last one perhaps in part.
func (c *Comparison) Compare(ctx context.Context) ([]Row, error) {
	if len(c.Cores) < 2 {
		return nil, fmt.Errorf("%w: two cores are needed, this process may use %d", ErrSpec, len(c.Cores))
	}
	rows := slices.Clone(c.rows())
	for i := range rows {
		r := &rows[i]
		r.prepare()
		for range c.Rounds {
			if err := c.round(ctx, r); err != nil {
				if r.Incomplete = len(r.answers[ours]) > 0; r.Incomplete {
					r.conclude()
					i++
				}
				return rows[:i], fmt.Errorf("%s, %d bytes: %w", r.Test, r.Bytes, err)
			}
		}
		r.conclude()
	}
	return rows, nil
}

func (r *Row) prepare() {
	r.Better, r.Unit = "higher", map[string]string{"latency": "us", "bandwidth": "MB/s", "rate": "messages/s", "frames": "frames/s"}[r.Test]
	if r.Test == "latency" {
		r.Better, r.Tail, r.Statistics = "lower", map[string]float64{}, map[string]string{ours: "p50"}
	}
	r.Peers, r.PeerSpread, r.answers = map[string]float64{}, map[string][2]float64{}, map[string][]Answer{}
}

// round asks everybody once.
func (c *Comparison) round(ctx context.Context, r *Row) error {
	q := Question{Test: r.Test, Bytes: r.Bytes, For: c.For, Cores: c.Cores}
	a, err := c.askUs(ctx, q)
	if err != nil {
		return err
	}
	r.answers[ours] = append(r.answers[ours], a)
	c.step()
	for i := range c.Peers {
		p := &c.Peers[i]
		if !slices.Contains(p.Tests, r.Test) {
			continue
		}
		if r.Failures[p.Name] == "" {
			if a, err = p.Ask(ctx, q); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if r.Failures == nil {
					r.Failures = map[string]string{}
				}
				r.Failures[p.Name] = err.Error()
			} else {
				r.answers[p.Name] = append(r.answers[p.Name], a)
			}
			if r.Test == "latency" {
				r.Statistics[p.Name] = p.Statistic
			}
		}
		c.step()
	}
	return nil
}

func (c *Comparison) step() {
	if c.Progress != nil {
		c.Progress()
	}
}

// errNothing: a measurement came back empty.
var errNothing = errors.New("nothing was measured")

func (c *Comparison) askUs(ctx context.Context, q Question) (a Answer, err error) {
	if q.Test == "frames" {
		return askFrames(ctx, q)
	}
	r, err := Run(ctx, c.task(q))
	if err != nil {
		return a, err
	}
	if r.Source.Messages == 0 {
		return a, errNothing
	}
	switch q.Test {
	case "latency":
		return Answer{Value: r.Source.Percentile(50), Tail: r.Source.Percentile(99.9), switches: r.SwitchRate()}, nil
	case "bandwidth":
		return Answer{Value: r.Source.MBPerSecond(), switches: r.SwitchRate()}, nil
	}
	return Answer{Value: r.Source.MessageRate(), switches: r.SwitchRate()}, nil
}

// task is our measurement for a question about messages.
func (c *Comparison) task(q Question) Task {
	t := Task{Wire: c.Wire, Placement: c.Placement, Cores: c.Cores,
		Spec: Spec{Test: Bandwidth, Role: Source, Bytes: q.Bytes, VIs: 1, Reliability: "reliable-delivery", Nanoseconds: int64(q.For), Core: -1}}
	if q.Test == "latency" {
		t.Spec.Test = Latency
	}
	t.Spec.Window = UsualWindow(t.Spec.Test, q.Bytes)
	return t
}

// conclude computes what a row says from its answers.
func (r *Row) conclude() {
	for who, answers := range r.answers {
		var values, tails, switches []float64
		for _, a := range answers {
			values, tails, switches = append(values, a.Value), append(tails, a.Tail), append(switches, a.switches)
		}
		m, spread := Median(values)
		if who == ours {
			r.Ours, r.OursSpread = m, spread
			r.Switches, _ = Median(switches)
		} else {
			r.Peers[who], r.PeerSpread[who] = m, spread
		}
		if t, _ := Median(tails); t > 0 && r.Tail != nil {
			r.Tail[who] = t
		}
	}
	better := func(a, b float64) bool { return a > b != (r.Better == "lower") }
	bestTail := 0.0
	for who, v := range r.Peers {
		if r.Best == "" || better(v, r.Peers[r.Best]) || v == r.Peers[r.Best] && who < r.Best {
			r.Best = who
		}
		if t := r.Tail[who]; t > 0 && (bestTail == 0 || t < bestTail) {
			bestTail = t
		}
	}
	if r.Best == "" {
		return
	}
	var ratios []float64
	for i, a := range r.answers[ours] {
		if i < len(r.answers[r.Best]) {
			ratios = append(ratios, a.Value/r.answers[r.Best][i].Value)
		}
	}
	m, spread := Median(ratios)
	r.RatioToBest, r.RatioSpread = &m, &spread
	if t := r.Tail[ours]; t > 0 && bestTail > 0 {
		t /= bestTail
		r.TailRatio = &t
	}
}

// Median returns the middle, the lowest and the highest of values.
func Median(values []float64) (m float64, spread [2]float64) {
	if len(values) == 0 {
		return 0, spread
	}
	s := slices.Sorted(slices.Values(values))
	m = s[len(s)/2]
	if len(s)%2 == 0 {
		m = (m + s[len(s)/2-1]) / 2
	}
	return m, [2]float64{s[0], s[len(s)-1]}
}

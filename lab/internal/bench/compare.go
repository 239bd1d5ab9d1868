package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// question is a test that all competitors take.
type question struct {
	name string
	// test that we run; empty if we run a program too. wire replaces the comparison's, unless it is empty.
	test Test
	wire string
	// unit is us one way, or there and back of a read, for which less is better; else more is.
	unit  string
	sizes []option.Bytes
	// named: it is asked only by name, as it takes root or Open MPI.
	named bool
}

var questions = []question{
	{"latency", Latency, "", "us", []option.Bytes{64, 4 << 10, 8 << 10, 64 << 10}, false},
	{"put", Put, "", "us", []option.Bytes{64, 4 << 10, 8 << 10, 64 << 10}, false},
	{"get", Get, "", "us", []option.Bytes{64, 4 << 10, 8 << 10, 64 << 10}, false},
	{"fetch", Fetch, "", "us", []option.Bytes{4 << 10, 8 << 10, 64 << 10}, false},
	{"bandwidth", Bandwidth, "", "MB/s", []option.Bytes{8 << 10, 64 << 10}, false},
	{"rate", Bandwidth, "", "messages/s", []option.Bytes{64}, false},
	{"frames", Frames, "memif", "frames/s", []option.Bytes{64, 1500}, false},
	{MPI, "", "", "us", []option.Bytes{64, 64 << 10, 1 << 20}, true},
	{veth, Bandwidth, veth, "MB/s", []option.Bytes{64 << 10}, true},
	{vethJumbo, Bandwidth, vethJumbo, "MB/s", []option.Bytes{64 << 10}, true},
	{vethLong, Bandwidth, vethLong, "MB/s", []option.Bytes{64 << 10}, true},
}

// Questions returns the names of the questions: all, or those that are asked unless some are named.
func Questions(all bool) (names []string) {
	for _, q := range questions {
		if all || !q.named {
			names = append(names, q.name)
		}
	}
	return names
}

// Comparison holds what Compare does.
type Comparison struct {
	Wire      string         `flag:"wire" default:"{usual-wire}" help:"wire of our messages (shm-share: at most one copy, as UCX has it over cma): {wires}"`
	Placement string         `flag:"placement" default:"default" oneof:"default,inline,thread" help:"our engine: default (the wire's), inline, thread"`
	Tests     []string       `flag:"tests" split:"comma" default:"{usual-tests}" help:"{all-tests}"`
	Peers     []string       `flag:"peers" split:"comma" default:"{peers}" help:"peers to measure, those that are installed"`
	Rounds    int            `flag:"rounds" default:"3" range:"1..1000" help:"how many turns each has"`
	For       time.Duration  `flag:"duration" default:"1s" range:"1ms..1h" help:"how long to measure each time, about"`
	Sizes     []option.Bytes `flag:"sizes" range:"0..1G" help:"bytes, in place of those of each test; K and M are powers of two"`
	Pairs     []Pair         // where, one after the other
}

// UsualWire is our wire in a comparison by default: it copies payloads at most once, as UCX does
// over cma.
const UsualWire = "shm-share"

// asked is a question for one message size and one pair of cores, with all answers.
type asked struct {
	question
	Pair
	comparison *Comparison
	bytes      int
	duration   time.Duration
	who        []Peer              // we first
	answers    map[string][]Answer // by who, by round
	failures   map[string]string
	crossings  [][]float64 // by round
}

// all are the questions, in order.
func (c *Comparison) all() (list []*asked) {
	for _, q := range questions {
		if !slices.Contains(c.Tests, q.name) {
			continue
		}
		us := Peer{Name: Us, wire: c.Wire, Statistic: "p50"}
		if q.wire != "" {
			us.wire = q.wire
		} else if q.test == "" {
			us = mpi(Us, overLibfabric+"trapeze;ofi_rxm")
		}
		who := []Peer{us}
		for _, p := range Peers() {
			if slices.Contains(c.Peers, p.Name) && p.answers(&q) && p.Available() == nil {
				who = append(who, p)
			}
		}
		sizes := q.sizes
		if c.Sizes != nil {
			sizes = c.Sizes
		}
		for _, bytes := range sizes {
			for _, pair := range c.Pairs {
				list = append(list, &asked{question: q, Pair: pair, comparison: c, bytes: int(bytes), duration: c.For, who: who,
					answers: map[string][]Answer{}, failures: map[string]string{}})
			}
		}
	}
	return list
}

// Steps is the number of times that Compare calls progress.
func (c *Comparison) Steps() (n int) {
	for _, q := range c.all() {
		n += len(q.who) * c.Rounds
	}
	return n
}

// Validate checks what can be checked before anything is measured. Errors wrap ErrSpec.
func (c *Comparison) Validate() error {
	if err := errors.Join(EachOf("test", c.Tests, Questions(true)), EachOf("peer", c.Peers, PeerNames())); err != nil {
		return err
	}
	if len(c.Pairs) == 0 || slices.ContainsFunc(c.Pairs, func(p Pair) bool { return len(p.Cores) != 2 }) {
		return fmt.Errorf("%w: two cores are needed, as a comparison is of two processes pinned to a core each", ErrSpec)
	}
	for _, q := range c.all() {
		if t := q.task(q.who[0].wire); q.test != "" {
			if err := t.Validate(); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
		}
	}
	return nil
}

// Compare, which is valid, asks every question on every pair of all in turn, A B A B, so that what
// changes on the machine changes for all. A peer that fails is left out of the further rounds, and its row
// says why; a failure of ours ends it all. With an error it returns the rows that
// were measured before, the last ones perhaps in part.
func (c *Comparison) Compare(ctx context.Context, progress func()) (rows []Row, err error) {
	for _, q := range c.all() {
		for i := 0; i < c.Rounds && err == nil; i++ {
			err = q.round(ctx, progress)
		}
		rows = append(rows, q.conclude()...)
		if err != nil {
			return rows, fmt.Errorf("%s, %d bytes: %w", q.name, q.bytes, err)
		}
	}
	return rows, nil
}

// crossingFor is the time that one look at the distance of the cores takes.
const crossingFor = 5 * time.Millisecond

// round asks all once, and measures the distance of the cores before and after each answer.
func (q *asked) round(ctx context.Context, progress func()) error {
	var crossings []float64
	cross := func() error {
		ns, err := Crossing(ctx, q.Cores, crossingFor)
		crossings = append(crossings, ns)
		return err
	}
	if err := cross(); err != nil {
		return err
	}
	defer func() {
		if len(q.answers[Us]) > len(q.crossings) {
			q.crossings = append(q.crossings, crossings)
		}
	}()
	for _, p := range q.who {
		if q.failures[p.Name] == "" {
			a, err := Answer{}, p.Available()
			if err == nil {
				a, err = p.ask(ctx, q)
			}
			switch {
			case err == nil:
				q.answers[p.Name] = append(q.answers[p.Name], a)
				err = cross()
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case p.Name != Us:
				q.failures[p.Name] = err.Error()
				err = nil
			}
			if err != nil {
				return err
			}
		}
		progress()
	}
	return nil
}

// task makes the task that answers the question over one of our wires.
func (q *asked) task(wire string) Task {
	t := NewTask(q.test, wire, q.bytes, q.duration, q.Cores)
	if wires[wire].placed {
		t.Placement = q.comparison.Placement
	}
	return t
}

// errNothing: a measurement came back empty.
var errNothing = errors.New("nothing was measured")

// ofTask measures a task, in the unit of the question.
func (q *asked) ofTask(ctx context.Context, t Task) (Answer, error) {
	r, err := Run(ctx, t)
	if err != nil {
		return Answer{}, err
	}
	s, a := r.Counted(), Answer{switches: r.SwitchRate()}
	switch {
	case s.Messages == 0:
		return a, errNothing
	case q.unit == "us":
		a.Value, a.Tail = s.Percentile(50), s.Percentile(99.9)
	case q.unit == "MB/s":
		a.Value = s.MBPerSecond()
	default:
		a.Value = s.MessageRate()
	}
	return a, nil
}

// Row is the result of one competitor in a test, over the rounds in which the two cores were at the same distance.
type Row struct {
	Test  string `json:"test"`
	Bytes Size   `json:"bytes"`
	Pair
	// Crossing is the time in ns in which a cache line goes from one core to the
	// other, measured before and after each answer, in the median; 0 where there are
	// not two.
	Crossing       Figure `json:"crossing_ns"`
	CrossingSpread Spread `json:"crossing_spread_ns" text:"-"`
	// Rounds are those that count. Unsteady ones are those in which the distance
	// changed between two answers: they are left out, unless there are no others.
	Rounds   int    `json:"rounds"`
	Unsteady int    `json:"unsteady_rounds"`
	Who      string `json:"who" help:"trapeze, or a peer"`
	// Value is the median over the rounds; Statistic says what a latency is, such as p50.
	Value     *Figure `json:"value" help:"null if it failed"`
	Unit      string  `json:"unit"`
	Spread    Spread  `json:"spread"`
	Statistic string  `json:"statistic,omitempty"`
	Tail      *Figure `json:"p999_us" help:"null where it is not told"`
	// Ratio is the median of the rounds' ratios.
	Ratio       *Figure `json:"ratio" help:"ours divided by the peer's: in us better below 1, in all else above"`
	RatioSpread *Spread `json:"ratio_spread" text:"-"`
	TailRatio   *Figure `json:"p999_ratio"`
	// Switches is the number of times a second that our processes were taken off their cores.
	Switches Figure `json:"involuntary_switches_per_s" text:"-"`
	Failure  string `json:"failure,omitempty" text:"-"`
	// Incomplete: it ended before all rounds were measured.
	Incomplete bool `json:"incomplete,omitempty" text:"-"`
}

// elsewhere is the factor by which a cache line takes longer if a core is somewhere else: between
// two dies it takes four to five times as long as between two cores of one; on cores that stay,
// medians differ by less than half.
const elsewhere = 2

// conclude sums up the rounds: rows for each distance between the cores, the nearest first, with one row
// for each competitor.
func (q *asked) conclude() (rows []Row) {
	var steady, unsteady []int
	for i, ns := range q.crossings {
		if slices.Max(ns) <= elsewhere*slices.Min(ns) {
			steady = append(steady, i)
		} else {
			unsteady = append(unsteady, i)
		}
	}
	if steady == nil {
		steady = unsteady
	}
	nearest := func(i int) float64 { return slices.Min(q.crossings[i]) }
	slices.SortStableFunc(steady, func(a, b int) int { return cmp.Compare(nearest(a), nearest(b)) })
	for len(steady) > 0 {
		n := 1
		for n < len(steady) && nearest(steady[n]) <= elsewhere*nearest(steady[0]) {
			n++
		}
		for i := range q.who {
			row := q.row(&q.who[i], steady[:n])
			row.Unsteady = len(unsteady)
			rows = append(rows, row)
		}
		steady = steady[n:]
	}
	return rows
}

func (q *asked) row(p *Peer, rounds []int) Row {
	r := Row{Test: q.name, Bytes: Size(q.bytes), Pair: q.Pair, Rounds: len(rounds), Who: p.Name, Unit: q.unit,
		Failure: q.failures[p.Name], Incomplete: len(q.crossings) < q.comparison.Rounds}
	var crossings, values, tails, switches, ratios, tailRatios []float64
	answers, ours := q.answers[p.Name], q.answers[Us]
	for _, i := range rounds {
		crossings = append(crossings, q.crossings[i]...)
		if i >= len(answers) {
			continue
		}
		a := answers[i]
		values, switches, ratios = append(values, a.Value), append(switches, a.switches), append(ratios, ours[i].Value/a.Value)
		if a.Tail > 0 {
			tails, tailRatios = append(tails, a.Tail), append(tailRatios, ours[i].Tail/a.Tail)
		}
	}
	r.Crossing, r.CrossingSpread = Median(crossings)
	r.Switches, _ = Median(switches)
	middle := func(values []float64) *Figure {
		if len(values) == 0 {
			return nil
		}
		m, _ := Median(values)
		return &m
	}
	r.Value, r.Tail = middle(values), middle(tails)
	_, r.Spread = Median(values)
	if q.unit == "us" {
		r.Statistic = p.Statistic
	}
	if p.Name != Us && len(ratios) > 0 {
		_, spread := Median(ratios)
		r.Ratio, r.RatioSpread, r.TailRatio = middle(ratios), &spread, middle(tailRatios)
	}
	return r
}

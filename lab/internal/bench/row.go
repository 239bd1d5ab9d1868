package bench

import (
	"cmp"
	"slices"
)

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

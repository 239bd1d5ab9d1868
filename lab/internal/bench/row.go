package bench

import (
	"cmp"
	"slices"
)

// Row is one question and all answers, on one pair of cores that stayed as far
// from each other.
type Row struct {
	Test  string `json:"test" help:"latency, put, get, fetch, mpi, bandwidth, rate, frames, veth, veth-9000 or veth-65535"`
	Bytes int    `json:"bytes"`
	Unit  string `json:"unit" help:"us for the first five"`
	Pair
	// Crossing is the time in ns in which a cache line goes from one core to the
	// other, measured before and after each answer, in the median; 0 where there are
	// not two. CrossingSpread are lowest and highest.
	Crossing       float64    `json:"crossing_ns"`
	CrossingSpread [2]float64 `json:"crossing_spread_ns"`
	// Rounds are those that count. Unsteady ones are those in which the distance
	// changed between two answers: they are left out, unless there are no others.
	Rounds   int `json:"rounds"`
	Unsteady int `json:"unsteady_rounds"`
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
	// Switches is the number of times a second that our processes were taken off their cores.
	Switches float64 `json:"involuntary_switches_per_s"`
	// Incomplete: it ended before all rounds were measured.
	Incomplete bool `json:"incomplete,omitempty"`

	answers   map[string][]Answer // by who, by round
	crossings [][]float64         // by round
}

// Us is who we are in a row's answers.
const Us = "trapeze"

func (r *Row) prepare() {
	r.Better, r.Unit = "higher", map[string]string{"latency": "us", "put": "us", "get": "us", fetch: "us", MPI: "us", "bandwidth": "MB/s", veth: "MB/s", vethJumbo: "MB/s", vethLong: "MB/s", "rate": "messages/s", "frames": "frames/s"}[r.Test]
	if r.timed() {
		r.Better, r.Tail, r.Statistics = "lower", map[string]float64{}, map[string]string{Us: "p50"}
	}
	r.answers = map[string][]Answer{}
}

// timed reports whether the figures are times, which have a tail.
func (r *Row) timed() bool { return r.Unit == "us" }

// elsewhere is the factor by which a cache line takes longer if a core is somewhere else: between
// two dies it takes four to five times as long as between two cores of one; on cores that stay,
// medians differ by less than half.
const elsewhere = 2

// conclude makes a row of the rounds in which the cores were as far from each other. There
// may be several such distances, the nearest comes first.
func (r *Row) conclude() []Row {
	var steady, unsteady []int
	for i, ns := range r.crossings {
		if slices.Max(ns) <= elsewhere*slices.Min(ns) {
			steady = append(steady, i)
		} else {
			unsteady = append(unsteady, i)
		}
	}
	if steady == nil {
		steady = unsteady
	}
	nearest := func(i int) float64 { return slices.Min(r.crossings[i]) }
	slices.SortStableFunc(steady, func(a, b int) int { return cmp.Compare(nearest(a), nearest(b)) })
	var rows []Row
	for len(steady) > 0 {
		n := 1
		for n < len(steady) && nearest(steady[n]) <= elsewhere*nearest(steady[0]) {
			n++
		}
		row := *r
		row.Unsteady = len(unsteady)
		row.summarize(steady[:n])
		rows = append(rows, row)
		steady = steady[n:]
	}
	return rows
}

// summarize computes what a row says from the answers of these rounds.
func (r *Row) summarize(rounds []int) {
	r.Rounds = len(rounds)
	slices.Sort(rounds)
	r.Peers, r.PeerSpread = map[string]float64{}, map[string][2]float64{}
	if r.Tail != nil {
		r.Tail = map[string]float64{}
	}
	var crossings []float64
	for _, i := range rounds {
		crossings = append(crossings, r.crossings[i]...)
	}
	r.Crossing, r.CrossingSpread = Median(crossings)
	for who, answers := range r.answers {
		var values, tails, switches []float64
		for _, i := range rounds {
			if i < len(answers) {
				a := answers[i]
				values, tails, switches = append(values, a.Value), append(tails, a.Tail), append(switches, a.switches)
			}
		}
		if values == nil {
			continue
		}
		m, spread := Median(values)
		if who == Us {
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
	for _, i := range rounds {
		if i < len(r.answers[r.Best]) {
			ratios = append(ratios, r.answers[Us][i].Value/r.answers[r.Best][i].Value)
		}
	}
	m, spread := Median(ratios)
	r.RatioToBest, r.RatioSpread = &m, &spread
	if t := r.Tail[Us]; t > 0 && bestTail > 0 {
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

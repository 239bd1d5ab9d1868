package bench

import (
	"slices"
	"testing"
)

// askedOf is a question whose rounds have these times of a cache line, and in which our and the
// peer's latencies are the round's number and its double.
func askedOf(crossings ...[]float64) *asked {
	c := &Comparison{Rounds: len(crossings)}
	q := &asked{question: question{name: "latency", unit: "us"}, comparison: c, bytes: 64, crossings: crossings,
		who: []Peer{{Name: Us, Statistic: "p50"}, {Name: "peer", Statistic: "mean"}}, answers: map[string][]Answer{}}
	for i := range crossings {
		q.answers[Us] = append(q.answers[Us], Answer{Value: float64(i + 1), Tail: 10 * float64(i+1)})
		q.answers["peer"] = append(q.answers["peer"], Answer{Value: 2 * float64(i+1), Tail: 5 * float64(i+1)})
	}
	return q
}

// TestDistances: rounds at different distances are not mixed, and those in which the
// cores moved are left out if there are others.
func TestDistances(t *testing.T) {
	for _, tt := range []struct {
		name      string
		crossings [][]float64
		ours      []float64 // the rows' medians
		rounds    []int
		unsteady  int
	}{
		{"they stay", [][]float64{{40, 45, 60}, {50, 70}, {41, 44}}, []float64{2}, []int{3}, 0},
		{"the host moves one between rounds", [][]float64{{210, 220}, {45, 50}, {200, 230}, {48, 47}}, []float64{3, 2}, []int{2, 2}, 0},
		{"and within one", [][]float64{{45, 50}, {45, 210}, {52, 60}}, []float64{2}, []int{2}, 1},
		{"in all rounds", [][]float64{{45, 210}, {220, 50}}, []float64{1.5}, []int{2}, 2},
		{"one core for both", [][]float64{{0, 0}, {0, 0}, {0, 0}}, []float64{2}, []int{3}, 0},
		{"three distances", [][]float64{{10, 10}, {45, 50}, {210, 220}}, []float64{1, 2, 3}, []int{1, 1, 1}, 0},
		{"nothing", nil, nil, nil, 0},
	} {
		var ours []float64
		var rounds []int
		last := Figure(-1)
		rows := askedOf(tt.crossings...).conclude()
		for i := 0; i < len(rows); i += 2 {
			us, peer := rows[i], rows[i+1]
			ours, rounds = append(ours, float64(*us.Value)), append(rounds, us.Rounds)
			if us.Unsteady != tt.unsteady || us.Crossing < last || us.Crossing < us.CrossingSpread[0] || us.Crossing > us.CrossingSpread[1] {
				t.Errorf("%s: %+v", tt.name, us)
			}
			last = us.Crossing
			if us.Who != Us || us.Ratio != nil || *us.Tail != 10**us.Value || us.Statistic != "p50" || us.Incomplete {
				t.Errorf("%s: %+v", tt.name, us)
			}
			if *peer.Ratio != 0.5 || *peer.TailRatio != 2 || *peer.Value != 2**us.Value || peer.Statistic != "mean" || peer.Crossing != us.Crossing {
				t.Errorf("%s: %+v", tt.name, peer)
			}
		}
		if !slices.Equal(ours, tt.ours) || !slices.Equal(rounds, tt.rounds) {
			t.Errorf("%s: ours %v in %v rounds, want %v in %v", tt.name, ours, rounds, tt.ours, tt.rounds)
		}
	}
}

// TestPeerThatFailedLater: its answers before count, in the rounds that have them.
func TestPeerThatFailedLater(t *testing.T) {
	q := askedOf([]float64{45, 50}, []float64{220, 230}, []float64{46, 47}, []float64{210, 220})
	q.answers["peer"] = q.answers["peer"][:1]
	q.failures = map[string]string{"peer": "gone"}
	rows := q.conclude()
	if len(rows) != 4 || *rows[1].Ratio != 0.5 || rows[1].Failure != "gone" || rows[0].Rounds != 2 || rows[3].Ratio != nil || rows[3].Value != nil {
		t.Errorf("%+v", rows)
	}
}

package bench

import (
	"slices"
	"testing"
)

// rowOf is a row whose rounds have these times of a cache line, and in which our and the
// peer's latencies are the round's number and its double.
func rowOf(crossings ...[]float64) Row {
	r := Row{Test: "latency", Bytes: 64}
	r.prepare()
	r.crossings = crossings
	for i := range crossings {
		r.answers[Us] = append(r.answers[Us], Answer{Value: float64(i + 1), Tail: 10 * float64(i+1)})
		r.answers["peer"] = append(r.answers["peer"], Answer{Value: 2 * float64(i+1), Tail: 5 * float64(i+1)})
	}
	return r
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
		r := rowOf(tt.crossings...)
		var ours []float64
		var rounds []int
		last := -1.0
		for _, row := range r.conclude() {
			ours, rounds = append(ours, row.Ours), append(rounds, row.Rounds)
			if row.Unsteady != tt.unsteady || row.Crossing < last || row.Crossing < row.CrossingSpread[0] || row.Crossing > row.CrossingSpread[1] {
				t.Errorf("%s: %+v", tt.name, row)
			}
			last = row.Crossing
			if row.Best != "peer" || *row.RatioToBest != 0.5 || *row.TailRatio != 2 || row.Peers["peer"] != 2*row.Ours || row.Tail[Us] != 10*row.Ours {
				t.Errorf("%s: %+v", tt.name, row)
			}
		}
		if !slices.Equal(ours, tt.ours) || !slices.Equal(rounds, tt.rounds) {
			t.Errorf("%s: ours %v in %v rounds, want %v in %v", tt.name, ours, rounds, tt.ours, tt.rounds)
		}
	}
}

// TestPeerThatFailedLater: its answers before count, in the rounds that have them.
func TestPeerThatFailedLater(t *testing.T) {
	r := rowOf([]float64{45, 50}, []float64{220, 230}, []float64{46, 47}, []float64{210, 220})
	r.answers["peer"] = r.answers["peer"][:1]
	rows := r.conclude()
	if len(rows) != 2 || *rows[0].RatioToBest != 0.5 || rows[0].Rounds != 2 || rows[1].RatioToBest != nil || len(rows[1].Peers) != 0 {
		t.Errorf("%+v", rows)
	}
}

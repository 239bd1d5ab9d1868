package bench

import (
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// machine makes the kernel's files about hardware threads, of each of which it is told
// the siblings and the package.
func machine(threads ...[2]string) fs.FS {
	tree := fstest.MapFS{}
	for i, t := range threads {
		tree[fmt.Sprintf("cpu%d/topology/thread_siblings_list", i)] = &fstest.MapFile{Data: []byte(t[0] + "\n")}
		tree[fmt.Sprintf("cpu%d/topology/physical_package_id", i)] = &fstest.MapFile{Data: []byte(t[1] + "\n")}
	}
	return tree
}

// TestPairs: one pair of each proximity, of the threads that come first.
func TestPairs(t *testing.T) {
	// Siblings are half the machine apart, as servers number them.
	server := machine([2]string{"0,4", "0"}, [2]string{"1,5", "0"}, [2]string{"2,6", "1"}, [2]string{"3,7", "1"},
		[2]string{"0,4", "0"}, [2]string{"1,5", "0"}, [2]string{"2,6", "1"}, [2]string{"3,7", "1"})
	// Siblings are neighbours, as in virtual machines of clouds.
	cloud := machine([2]string{"0-1", "0"}, [2]string{"0-1", "0"}, [2]string{"2-3", "0"}, [2]string{"2-3", "0"})
	for _, tt := range []struct {
		name  string
		sys   fs.FS
		order []int
		want  []Pair
	}{
		{"server", server, []int{0, 1, 2, 3, 4, 5, 6, 7}, []Pair{{[]int{0, 1}, TwoCores}, {[]int{0, 4}, OneCore}}},
		{"the first are busy", server, []int{7, 5, 3, 2, 6, 4, 1, 0}, []Pair{{[]int{2, 7}, TwoCores}, {[]int{3, 7}, OneCore}}},
		{"one core of each package allowed", server, []int{0, 2}, []Pair{{[]int{0, 2}, TwoCores}}},
		{"one package comes first", server, []int{0, 2, 1}, []Pair{{[]int{0, 1}, TwoCores}}},
		{"one core allowed", server, []int{5, 1}, []Pair{{[]int{1, 5}, OneCore}}},
		{"cloud", cloud, []int{0, 1, 2, 3}, []Pair{{[]int{0, 2}, TwoCores}, {[]int{0, 1}, OneCore}}},
		{"no siblings", machine([2]string{"0", "0"}, [2]string{"1", "0"}), []int{0, 1}, []Pair{{[]int{0, 1}, TwoCores}}},
		{"the kernel tells nothing", fstest.MapFS{}, []int{2, 3, 4}, []Pair{{Cores: []int{2, 3}}}},
		{"it tells of one", machine([2]string{"0-1", "0"}), []int{0, 1}, []Pair{{Cores: []int{0, 1}}}},
		{"one thread", cloud, []int{1}, nil},
		{"none", cloud, nil, nil},
	} {
		if got := pairs(tt.sys, tt.order); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestByIdleness: busy cores are left alone, cores that differ little are alike.
func TestByIdleness(t *testing.T) {
	for _, tt := range []struct {
		idle []int // during the look, of cores 0, 1, ...
		want []int // the first two
	}{
		{[]int{10, 10, 10, 10}, []int{0, 1}},
		{[]int{0, 10, 10, 10}, []int{1, 2}},
		{[]int{10, 0, 10, 0}, []int{0, 2}},
		{[]int{98, 100, 97, 100}, []int{0, 1}},
		{[]int{0, 0, 0, 0}, []int{0, 1}},
		{[]int{5, 0, 4, 9}, []int{3, 0}},
	} {
		idle := map[int]int{}
		var have []int
		for c, n := range tt.idle {
			have = append(have, c)
			idle[c] = n
		}
		if got := byIdleness(have, idle); len(got) != len(tt.idle) || !slices.Equal(got[:2], tt.want) {
			t.Errorf("idle %v: %v, want %v", tt.idle, got, tt.want)
		}
	}
	should.Same(t, byIdleness([]int{3, 5, 7}, nil), []int{3, 5, 7}, "without /proc/stat")
	if len(idleTicks()) < len(Cores()) {
		t.Errorf("%v of cores %v", idleTicks(), Cores())
	}
}

// TestLullMonitor: of all threads the second one alone may sleep longer.
func TestLullMonitor(t *testing.T) {
	tasks := must.Get(os.ReadDir("/proc/self/task"))(t)
	var threads []int
	for _, task := range tasks {
		id := must.Get(strconv.Atoi(task.Name()))(t)
		threads = append(threads, id)
	}
	slices.Sort(threads)
	slack := func(id int) string { return firstLine(fmt.Sprintf("/proc/%d/timerslack_ns", id)) }
	before := slack(threads[1])
	restore := func() error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", threads[1]), []byte(before), 0)
	}
	if before == "" || restore() != nil {
		t.Skip("takes CAP_SYS_NICE and a kernel with /proc/PID/timerslack_ns")
	}
	defer restore()
	slices.Reverse(threads) // in whatever order they come
	lullMonitor(threads)
	slices.Sort(threads)
	for i, id := range threads {
		if got, want := slack(id), strconv.Itoa(monitorSlack); got != "" && (got == want) != (i == 1) {
			t.Errorf("thread %d of %d may be %s ns late", i, len(threads), got)
		}
	}
}

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

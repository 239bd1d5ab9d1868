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

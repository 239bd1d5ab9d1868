package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
)

// TestByIdleness: busy cores are left alone, cores that differ little are alike.
func TestByIdleness(t *testing.T) {
	for _, tt := range []struct {
		idle []uint64 // during the look, of cores 0, 1, ...
		want []int    // the first two
	}{
		{[]uint64{10, 10, 10, 10}, []int{0, 1}},
		{[]uint64{0, 10, 10, 10}, []int{1, 2}},
		{[]uint64{10, 0, 10, 0}, []int{0, 2}},
		{[]uint64{98, 100, 97, 100}, []int{0, 1}},
		{[]uint64{0, 0, 0, 0}, []int{0, 1}},
		{[]uint64{5, 0, 4, 9}, []int{3, 0}},
	} {
		before, after := map[int]uint64{}, map[int]uint64{}
		var have []int
		for c, n := range tt.idle {
			have = append(have, c)
			before[c], after[c] = 1000, 1000+n
		}
		if got := byIdleness(have, before, after); len(got) != len(have) || !slices.Equal(got[:2], tt.want) {
			t.Errorf("idle %v: %v, want %v", tt.idle, got, tt.want)
		}
	}
	if got := byIdleness([]int{3, 5, 7}, nil, nil); !slices.Equal(got, []int{3, 5, 7}) {
		t.Errorf("without /proc/stat: %v", got)
	}
	for c := range idleTicks() {
		if c < 0 {
			t.Error("a core without a number")
		}
	}
}

// TestLullMonitor: of all threads the second one alone may sleep longer.
func TestLullMonitor(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var threads []int
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
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

package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
)

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("server-%d", i))
	}
	return list
}

// TestDifferentServers: the copies of a page are on different servers, and the order in
// which servers are named does not matter.
func TestDifferentServers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := names(rapid.IntRange(1, 9).Draw(t, "servers"))
		copies := rapid.IntRange(1, len(list)).Draw(t, "copies")
		p, err := placement.New(list, copies)
		if err != nil {
			t.Fatal(err)
		}
		shuffled := rapid.Permutation(list).Draw(t, "order")
		q, err := placement.New(shuffled, copies)
		if err != nil {
			t.Fatal(err)
		}
		a, b := make([]int, copies), make([]int, copies)
		page := rapid.Uint64().Draw(t, "page")
		p.Of(page, a)
		q.Of(page, b)
		for i := range a {
			if slices.Index(a, a[i]) != i {
				t.Fatalf("copies at %v", a)
			}
			if list[a[i]] != shuffled[b[i]] {
				t.Fatalf("copy %d is on %s and on %s", i, list[a[i]], shuffled[b[i]])
			}
		}
	})
}

// TestShares: no server has much more than its share, and a new one takes pages from
// the others, who exchange none.
func TestShares(t *testing.T) {
	const pages = 40_000
	before, err := placement.New(names(4), 1)
	if err != nil {
		t.Fatal(err)
	}
	after, err := placement.New(names(5), 1)
	if err != nil {
		t.Fatal(err)
	}
	count := make([]int, 5)
	var x, y [1]int
	for page := range uint64(pages) {
		before.Of(page, x[:])
		after.Of(page, y[:])
		count[y[0]]++
		if x != y && y[0] != 4 {
			t.Fatalf("page %d went from server %d to %d", page, x[0], y[0])
		}
	}
	for i, n := range count {
		if n < pages/5*6/10 || n > pages/5*14/10 {
			t.Errorf("server %d has %d of %d pages", i, n, pages)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		names  []string
		copies int
	}{{names(2), 0}, {names(2), 3}, {nil, 1}, {[]string{"a", "b", "a"}, 1}} {
		if _, err := placement.New(c.names, c.copies); err == nil {
			t.Errorf("%d copies on %v were placed", c.copies, c.names)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	p, err := placement.New(names(8), 2)
	if err != nil {
		t.Fatal(err)
	}
	page, into := uint64(0), make([]int, 2)
	if n := testing.AllocsPerRun(100, func() { p.Of(page, into); page++ }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOf(b *testing.B) {
	p, err := placement.New(names(8), 2)
	if err != nil {
		b.Fatal(err)
	}
	into := make([]int, 2)
	for i := range b.N {
		p.Of(uint64(i), into)
	}
}

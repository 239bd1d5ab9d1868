package placement_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
		p := must.Get(placement.New(list, copies))(t)
		shuffled := rapid.Permutation(list).Draw(t, "order")
		q := must.Get(placement.New(shuffled, copies))(t)
		a, b := make([]int, copies), make([]int, copies)
		page := rapid.Uint64().Draw(t, "page")
		p.Of(page, a)
		q.Of(page, b)
		for i := range a {
			must.Be(t, slices.Index(a, a[i]), i, "copies at %v", a)
			must.Be(t, list[a[i]], shuffled[b[i]], "copy %d is on and on", i)
		}
	})
}

// TestShares: no server has much more than its share, and a new one takes pages from
// the others, who exchange none.
func TestShares(t *testing.T) {
	const pages = 40_000
	before := must.Get(placement.New(names(4), 1))(t)
	after := must.Get(placement.New(names(5), 1))(t)
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
	p := must.Get(placement.New(names(8), 2))(t)
	page, into := uint64(0), make([]int, 2)
	should.Be(t, testing.AllocsPerRun(100, func() { p.Of(page, into); page++ }), 0, "allocations")
}

// TestConfiguration: a configuration is read as it was written, each next one is one step further, and nonsense is refused.
func TestConfiguration(t *testing.T) {
	first := placement.Configuration{Pool: 1<<64 - 1, Epoch: 1, Base: 3, Copies: 2, Servers: []placement.Server{
		{Name: "a", Incarnation: 1<<63 + 1, Since: 1}, {Name: "b", Incarnation: 12, Since: 1}, {Name: "c", Incarnation: 13, Since: 1},
	}}
	without := first.With(1, 0)
	back := without.With(1, 22)
	whole := back.Joined()
	for i, c := range []placement.Configuration{first, without, back, whole} {
		got, err := placement.Parse(c.Encode())
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v became %+v, %v", c, got, err)
		}
		if c.Epoch != uint64(i+1) || c.Joins() != (i == 2) || (c.Outside() == 1) != (i == 1 || i == 2) || c.Servers[1].Present() == (i == 1) || c.Servers[1].Member() != (i == 0 || i == 3) {
			t.Errorf("configuration %d is %+v", i, c)
		}
	}
	if whole.Lost != 2 || whole.Servers[1].Since != 3 || back.With(1, 23).Lost != 2 || whole.With(1, 24).Lost != 5 || first.Servers[1].Incarnation != 12 {
		t.Errorf("%+v after %+v", whole, first)
	}
	for what, text := range map[string]string{
		"nothing": "", "no object": "7", "no pool": `{"epoch":1,"copies":1,"servers":[{"name":"a"}]}`, "no epoch": `{"pool":1,"copies":1,"servers":[{"name":"a"}]}`,
		"lost later": `{"pool":1,"epoch":1,"lost":2,"copies":1,"servers":[{"name":"a"}]}`, "too many copies": `{"pool":1,"epoch":1,"copies":2,"servers":[{"name":"a"}]}`,
		"no copies": `{"pool":1,"epoch":1,"servers":[{"name":"a"}]}`, "no order": `{"pool":1,"epoch":1,"copies":1,"servers":[{"name":"b"},{"name":"a"}]}`,
		"twice": `{"pool":1,"epoch":1,"copies":1,"servers":[{"name":"a"},{"name":"a"}]}`,
	} {
		if c, err := placement.Parse([]byte(text)); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// Package scaling measures how the cost of a message grows with the number of
// VIs, completion queues and registered regions, and how much memory each of them takes.
package scaling

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Plan holds what to measure, and how much of it.
type Plan struct {
	bench.Local `override:"duration" default:"300ms" help:"how long to measure each point, about"`
	Curves      []string `flag:"curves" split:"comma" help:"which to measure (default all): {curves}"`
	// MostVIs and MostRegions end the curves.
	MostVIs     int `flag:"max-vis" default:"4096" range:"1..8192" help:"largest number of VIs"`
	MostRegions int `flag:"max-regions" default:"100000" range:"1..1000000" help:"largest number of regions at each NIC"`
}

// Result is all that was measured.
type Result struct {
	Curves []Curve  `json:"curves"`
	Memory []Memory `json:"memory"`
}

// Curve says how one cost depends on one number.
type Curve struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Of     string  `json:"of" help:"what is counted, in the singular"`
	Unit   string  `json:"unit"`
	Points []Point `json:"points"`
	Growth Growth  `json:"growth"`
}

// Point of a curve.
type Point struct {
	// N is the number of something.
	N int `json:"n"`
	// Value is the median, in the curve's unit; Low and High are the quartiles.
	Value bench.Figure `json:"value"`
	Low   bench.Figure `json:"low"`
	High  bench.Figure `json:"high"`
}

// Memory holds what one more of something takes at one NIC, found by difference over many.
type Memory struct {
	Of    string `json:"of"`
	Count int    `json:"count" help:"how many were made"`
	bench.Memory
}

// Bytes of the messages.
const Bytes = 64

// sharers is the number of VIs that share the CQs in the curve of these, at most.
const sharers = 1024

var viCounts = []int{1, 4, 16, 64, 256, 1024, 4096}

// curves are the rows of what is measured. n counts what a curve is of, from 1 to most.
var curves = []struct {
	name, what, of string
	counts         []int
	most           func(*Plan) int
	// task has messages with n of them.
	task func(p *Plan, t *bench.Task, n int)
	// makes describes the creation of one more object, if its time is a curve too.
	makes string
	// memory names the objects whose memory the last task measures; empty if it measures none.
	memory string
}{
	{"vis", "message, VIs taking turns", "VI", viCounts, (*Plan).vis,
		func(_ *Plan, t *bench.Task, n int) { t.VIs = n }, "creating and connecting one more VI", ""},
	{"idle-vis", "message on one VI, the others idle", "VI", viCounts, (*Plan).vis,
		func(_ *Plan, t *bench.Task, n int) { t.Unused = n - 1 }, "", "VI, connected, queues of 2"},
	{"shared-cq", "message, VIs taking turns, one CQ for all", "VI", viCounts, (*Plan).vis,
		func(_ *Plan, t *bench.Task, n int) { t.VIs, t.CQs = n, 1 }, "", ""},
	{"cqs", "message, VIs that share CQs", "CQ", viCounts, (*Plan).sharers,
		func(p *Plan, t *bench.Task, n int) { t.VIs, t.CQs = p.sharers(), n }, "", "CQ"},
	{"regions", "message between regions picked at random", "region", []int{1, 10, 100, 1_000, 10_000, 100_000}, (*Plan).regions,
		func(_ *Plan, t *bench.Task, n int) { t.Regions = n }, "registering one more region", "region"},
}

func (p *Plan) vis() int     { return p.MostVIs }
func (p *Plan) sharers() int { return min(sharers, p.MostVIs) }
func (p *Plan) regions() int { return p.MostRegions }

// Names returns what Plan.Curves can ask for.
func Names() (names []string) {
	for _, c := range curves {
		names = append(names, c.name)
	}
	return names
}

// Validate checks the names of the curves. An error wraps bench.ErrSpec.
func (p *Plan) Validate() error { return bench.EachOf("curve", p.Curves, Names()) }

// asks says whether a curve is asked for; all are if none is named.
func (p *Plan) asks(name string) bool { return len(p.Curves) == 0 || slices.Contains(p.Curves, name) }

// Steps is the number of times that progress is called.
func (p *Plan) Steps() (total int) {
	for _, c := range curves {
		if p.asks(c.name) {
			total += len(upTo(c.counts, c.most(p)))
		}
	}
	return total
}

// Run measures what a valid Plan asks for. With an error it returns what was measured before.
func (p *Plan) Run(ctx context.Context, progress func()) (r Result, err error) {
	r.Curves, r.Memory = []Curve{}, []Memory{}
	task := bench.NewTask(bench.Latency, "memory", Bytes, p.For, nil)
	task.Window = 2
	if core := p.Core(); core >= 0 {
		task.Cores = []int{core}
	}
	for i := range curves {
		c := &curves[i]
		if !p.asks(c.name) {
			continue
		}
		var costs, making []Point
		var s bench.Side
		for _, n := range upTo(c.counts, c.most(p)) {
			t := task
			c.task(p, &t, n)
			m, err := bench.Run(ctx, t)
			if err != nil {
				return r, fmt.Errorf("curve %s, %d: %w", c.name, n, err)
			}
			progress()
			s = m.Source
			at := func(percent float64) bench.Figure { return bench.Figure(1e3 * s.Percentile(percent)) }
			costs = append(costs, Point{n, at(50), at(25), at(75)})
			each := bench.Figure(s.Made) / bench.Figure(time.Microsecond)
			making = append(making, Point{n, each, each, each})
		}
		r.Curves = append(r.Curves, Curve{c.name, c.what, c.of, "ns", costs, Grow(costs)})
		if c.makes != "" {
			r.Curves = append(r.Curves, Curve{c.name + "-setup", c.makes, c.of, "us", making, Grow(making)})
		}
		if c.memory != "" {
			r.Memory = append(r.Memory, Memory{c.memory, c.most(p), s.Used})
		}
	}
	return r, nil
}

func upTo(counts []int, most int) (r []int) {
	for _, n := range counts {
		if n < most {
			r = append(r, n)
		}
	}
	return append(r, most)
}

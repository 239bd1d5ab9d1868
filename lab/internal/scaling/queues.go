package scaling

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// Bytes of the messages, wherever their size is not what varies.
const Bytes = 64

// viCounts are the numbers of VIs; see Curves.
var viCounts = []int{1, 4, 16, 64, 256, 1024, 4096}

// upTo returns the counts up to most, and most.
func upTo(counts []int, most int) []int {
	var r []int
	for _, n := range counts {
		if n < most {
			r = append(r, n)
		}
	}
	return append(r, most)
}

// turning says how messages are spread over VIs.
type turning int

const (
	inTurn   turning = iota // in an order that is not the order of their numbers
	sharedCQ                // the same, with one CQ for all receivers
	oneOnly                 // all on one, the others have nothing to say
)

// vis measures messages beside n VIs, and what it takes to make one more.
func (p *Plan) vis(ctx context.Context, way turning) (costs []Point, setup []Point, err error) {
	w, err := open(ctx, p.MostVIs, 1, 1<<10)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var cq cqOf
	if way == sharedCQ {
		one, err := w.b.CreateCQ(ctx, slots*p.MostVIs)
		if err != nil {
			return nil, nil, err
		}
		cq = func(int) *via.CQ { return one }
	}
	for _, n := range upTo(viCounts, p.MostVIs) {
		more := n - len(w.pairs)
		start := time.Now()
		if err := w.grow(ctx, n, Bytes, cq); err != nil {
			return nil, nil, err
		}
		// At that many VIs, and no mean of all before.
		each := float64(time.Since(start).Microseconds()) / float64(more)
		setup = append(setup, Point{N: n, Value: each, Low: each, High: each})
		pairs := w.pairs
		if way == oneOnly {
			pairs = pairs[:1]
		}
		c, err := p.turns(ctx, pairs, n)
		if err != nil {
			return nil, nil, err
		}
		costs = append(costs, c)
	}
	return costs, setup, nil
}

// turns measures messages on pairs in turn.
func (p *Plan) turns(ctx context.Context, pairs []*pair, n int) (Point, error) {
	order := shuffled(len(pairs))
	c, err := measure(ctx, len(order), p.For, func(i int) error { return pairs[order[i%len(order)]].message(ctx) })
	c.N = n
	p.Progress.Step()
	return c, err
}

// sharers is the number of VIs that share the CQs.
const sharers = 1024

// cqs measures messages on VIs whose receivers share n CQs, from one for all to
// one for each.
func (p *Plan) cqs(ctx context.Context) (costs []Point, err error) {
	vis := min(sharers, p.MostVIs)
	for _, n := range upTo(viCounts, vis) {
		c, err := p.cqsOf(ctx, vis, n)
		if err != nil {
			return nil, err
		}
		costs = append(costs, c)
	}
	return costs, nil
}

func (p *Plan) cqsOf(ctx context.Context, vis, n int) (c Point, err error) {
	w, err := open(ctx, vis, n, 1<<10)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	queues := make([]*via.CQ, n)
	for i := range queues {
		if queues[i], err = w.b.CreateCQ(ctx, slots*((vis+n-1)/n)); err != nil {
			return c, err
		}
	}
	if err := w.grow(ctx, vis, Bytes, func(i int) *via.CQ { return queues[i%n] }); err != nil {
		return c, err
	}
	return p.turns(ctx, w.pairs, n)
}

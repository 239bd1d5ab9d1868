package scaling

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// regionCounts are the numbers of regions; see Curves.
var regionCounts = []int{1, 10, 100, 1_000, 10_000, 100_000}

// buffers are equal parts of one piece of memory, each a region of its own.
type buffers struct {
	nic     *via.NIC
	memory  *via.Memory
	regions []*via.Memory
}

func newBuffers(ctx context.Context, nic *via.NIC, most int) (*buffers, error) {
	m, err := nic.Alloc(ctx, most*Bytes, via.MemoryAttributes{})
	return &buffers{nic: nic, memory: m}, err
}

// grow registers parts until there are n.
func (b *buffers) grow(ctx context.Context, n int) error {
	all := b.memory.Bytes()
	for i := len(b.regions); i < n; i++ {
		if i%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r, err := b.nic.Register(ctx, all[i*Bytes:(i+1)*Bytes], via.MemoryAttributes{})
		if err != nil {
			return err
		}
		b.regions = append(b.regions, r)
	}
	return nil
}

// beside is the number of regions for other things: descriptors, buffers.
const beside = 16

// regions measures messages from and to regions picked at random among n at
// either NIC, and what a registration costs.
func (p *Plan) regions(ctx context.Context) (costs, setup []Point, err error) {
	w, err := open(ctx, 2, 1, p.MostRegions+beside)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.grow(ctx, 1, Bytes, nil); err != nil {
		return nil, nil, err
	}
	from, err := newBuffers(ctx, w.a, p.MostRegions)
	if err != nil {
		return nil, nil, err
	}
	to, err := newBuffers(ctx, w.b, p.MostRegions)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range upTo(regionCounts, p.MostRegions) {
		more := n - len(from.regions)
		start := time.Now()
		if err := errors.Join(from.grow(ctx, n), to.grow(ctx, n)); err != nil {
			return nil, nil, err
		}
		each := float64(time.Since(start).Microseconds()) / float64(2*more)
		setup = append(setup, Point{N: n, Value: each, Low: each, High: each})
		c, err := p.picked(ctx, w.pairs[0], from.regions, to.regions)
		if err != nil {
			return nil, nil, err
		}
		c.N = n
		costs = append(costs, c)
		p.Progress.Step()
	}
	return costs, setup, nil
}

// picks is the number of random choices that are made beforehand, a power of two.
const picks = 1 << 16

// picked measures messages on pair between regions picked at random.
func (p *Plan) picked(ctx context.Context, pair *pair, from, to []*via.Memory) (Point, error) {
	choice := make([]uint32, picks)
	r := rand.New(rand.NewPCG(2, uint64(len(from))))
	for i := range choice {
		choice[i] = r.Uint32N(uint32(len(from)))
	}
	send := func(d *via.Descriptor, i int) error {
		d.Prepare()
		return from[choice[i%picks]].AddTo(d, 0, Bytes)
	}
	receive := func(d *via.Descriptor, i int) error {
		d.Prepare()
		return to[choice[(i+picks/2)%picks]].AddTo(d, 0, Bytes)
	}
	return measure(ctx, 2*slots, p.For, func(i int) error { return pair.messageOf(ctx, i, send, receive) })
}

package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// openBoth makes the ends of both NICs, which one goroutine drives: an end of the source serves its
// peer whenever it has found nothing to do.
func (p *part) openBoth(ctx context.Context, from *via.NIC) (func(*Side) error, error) {
	to, err := p.openNIC(ctx, p.Peer)
	if err != nil {
		return nil, err
	}
	var made Side
	var more *beside
	if err := p.watched(&made, func() error { more, err = p.makeBeside(ctx, from, to); return err }); err != nil {
		return nil, err
	}
	start := time.Now()
	ends, others, err := p.connectBoth(ctx, from, to, more.cqs)
	if err != nil {
		return nil, err
	}
	if p.Unused+p.CQs+p.Regions == 0 {
		made.Made = time.Since(start) / time.Duration(p.VIs)
	}
	p.ready()
	if p.Test == Idle {
		return func(side *Side) error {
			return together(ctx, func(ctx context.Context) error { return p.sleep(ctx, others[0].rarely(), side) },
				func(ctx context.Context) error { return p.wake(ctx, ends[0].rarely()) })
		}, nil
	}
	calls := 0
	for i, e := range ends {
		e.patience, e.serve = 0, func() error {
			if calls++; calls%checkEvery == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for n := 1; n > 0; {
				if n, err = p.replyBoth(ctx, others[i]); err != nil || p.Test != Bandwidth {
					return err
				}
			}
			return nil
		}
	}
	// An order that no prefetcher guesses, the same each time.
	rand.New(rand.NewPCG(1, uint64(len(ends)))).Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	run := p.source(ctx, ends)
	if p.Regions > 0 {
		run = func(side *Side) error {
			x, y := ends[0], others[0]
			return p.timed(side, func(i int) error {
				x.memory, y.memory = more.regions[0][more.pick()], more.regions[1][more.pick()]
				return roundTrip(ctx, x, p.Bytes)
			})
		}
	}
	return func(side *Side) error {
		*side = made
		return run(side)
	}, nil
}

// connectBoth makes and connects the ends of both NICs. Those of the echo share the CQs.
func (p *part) connectBoth(ctx context.Context, from, to *via.NIC, cqs []*via.CQ) (ends, others []*end, err error) {
	var rooms [2]*room
	for k, nic := range []*via.NIC{from, to} {
		if rooms[k], err = p.newRoom(ctx, nic); err != nil {
			return nil, nil, err
		}
	}
	for i := range p.VIs {
		var pair [2]*end
		for k, room := range rooms {
			var cq *via.CQ
			if k == 1 && len(cqs) > 0 {
				cq = cqs[i%len(cqs)]
			}
			if pair[k], err = p.newEnd(ctx, room, cq); err != nil {
				return nil, nil, err
			}
		}
		x, y := pair[0], pair[1]
		if err := Connect(ctx, x.vi, y.vi); err != nil {
			return nil, nil, err
		}
		if x.rdma != nil {
			if err := errors.Join(x.tell(), y.tell(), y.learn(ctx), x.learn(ctx)); err != nil {
				return nil, nil, err
			}
		}
		if p.Regions > 0 {
			x.base, y.base, x.stride, y.stride = 0, 0, 0, 0 // a region has a message
		}
		ends, others = append(ends, x), append(others, y)
	}
	return ends, others, nil
}

// errElsewhere: the CQ names another VI than the one that the message was sent to.
var errElsewhere = errors.New("a message arrived at another VI than it was sent to")

// replyBoth is reply at an end whose receives may complete to a CQ.
func (p *part) replyBoth(ctx context.Context, e *end) (int, error) {
	if e.cq != nil {
		c, err := e.cq.Done()
		switch {
		case notDone(err):
			return 0, nil
		case err != nil:
			return 0, err
		case c.VI != e.vi:
			return 0, errElsewhere
		}
	}
	return p.reply(ctx, e)
}

// beside holds what is created in addition to the VIs that carry messages.
type beside struct {
	cqs     []*via.CQ // of the echo's NIC
	regions [2][]*via.Memory
	random  *rand.Rand
}

func (b *beside) pick() int { return b.random.IntN(len(b.regions[0])) }

// makeBeside makes unused VIs, CQs and regions.
func (p *part) makeBeside(ctx context.Context, from, to *via.NIC) (b *beside, err error) {
	b = &beside{random: rand.New(rand.NewPCG(2, uint64(p.Regions)))}
	for range p.CQs {
		cq, err := to.CreateCQ(ctx, max(p.Window, 2)*((p.VIs+p.CQs-1)/p.CQs))
		if err != nil {
			return nil, err
		}
		b.cqs = append(b.cqs, cq)
	}
	a := via.VIAttributes{SendDepth: 2, RecvDepth: 2, MaxTransfer: uint32(max(p.Bytes, 1))}
	for range p.Unused {
		var pair [2]*via.VI
		for k, nic := range []*via.NIC{from, to} {
			if pair[k], err = nic.CreateVI(ctx, a, nil, nil); err != nil {
				return nil, err
			}
		}
		if err := Connect(ctx, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	for k, nic := range []*via.NIC{from, to} {
		if p.Regions == 0 {
			break
		}
		m, err := nic.Alloc(ctx, p.Regions*p.Bytes, via.MemoryAttributes{})
		if err != nil {
			return nil, err
		}
		for i := range p.Regions {
			if i%256 == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			r, err := nic.Register(ctx, m.Bytes()[i*p.Bytes:(i+1)*p.Bytes], via.MemoryAttributes{})
			if err != nil {
				return nil, err
			}
			b.regions[k] = append(b.regions[k], r)
		}
	}
	return b, nil
}

// Package scaling measures how the cost of a message grows with the number of
// VIs, completion queues and registered regions and with its size, and how much
// memory each of them takes.
package scaling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/via"
)

// world is two NICs on a memory wire, engines inline: one goroutine does the work
// of both hosts and both NICs, so that what is measured is work and not waiting.
type world struct {
	a, b  *via.NIC
	pairs []*pair
}

// worlds numbers them: each needs a wire of its own.
var worlds atomic.Uint32

// open makes a world whose NICs have at least as much as asked for.
func open(ctx context.Context, vis, cqs, regions int) (*world, error) {
	address := fmt.Sprintf("emu:?wire=mem:trapeze-scaling-%d-%d&engine=inline&vis=%d&cqs=%d&regions=%d",
		os.Getpid(), worlds.Add(1), vis, cqs, regions)
	w := &world{}
	for _, end := range []**via.NIC{&w.a, &w.b} {
		nic, err := bench.Open(ctx, address)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		*end = nic
	}
	return w, nil
}

// Close frees everything.
func (w *world) Close() error {
	var errs []error
	for _, n := range []*via.NIC{w.a, w.b} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// slots is the number of descriptors that each queue has: the one in use, and the one of the turn
// before, which its receiver acknowledges with the next frame.
const slots = 2

// end is one end of a connection.
type end struct {
	vi         *via.VI
	cq         *via.CQ // of its receive queue, or nil
	send, recv [slots]*via.Descriptor
	// The calls that poll, bound once: that allocates.
	sent, received func() (*via.Descriptor, error)
	completed      func() (via.Completion, error)
}

// pair is two connected ends; messages go from x to y.
type pair struct {
	x, y    end
	turns   uint
	pending int // sends that were not taken back
}

// cqOf chooses the completion queues of the receivers; nil for none.
type cqOf func(i int) *via.CQ

// grow connects VIs until there are n pairs, whose messages have the given size.
// All that they need shares one piece of memory at either NIC.
func (w *world) grow(ctx context.Context, n, bytes int, cq cqOf) error {
	count := n - len(w.pairs)
	if count <= 0 {
		return nil
	}
	stride := descriptors.DescriptorBytes(1)
	each := 2 * slots * (stride + (bytes+63)&^63)
	var memory [2]*via.Memory
	for i, nic := range []*via.NIC{w.a, w.b} {
		m, err := nic.Alloc(ctx, count*each, via.MemoryAttributes{})
		if err != nil {
			return err
		}
		memory[i] = m
	}
	for i := range count {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		p := &pair{}
		if cq != nil {
			p.y.cq = cq(len(w.pairs))
		}
		for k, e := range []*end{&p.x, &p.y} {
			nic := []*via.NIC{w.a, w.b}[k]
			if err := e.make(ctx, nic, memory[k], i*each, bytes); err != nil {
				return fmt.Errorf("VI %d of %d: %w", len(w.pairs)+1, n, err)
			}
		}
		if err := bench.Connect(ctx, p.x.vi, p.y.vi); err != nil {
			return fmt.Errorf("VI %d of %d: %w", len(w.pairs)+1, n, err)
		}
		w.pairs = append(w.pairs, p)
	}
	return nil
}

// make creates the VI and lays its descriptors and buffers over m from at on. The
// receives are posted.
func (e *end) make(ctx context.Context, nic *via.NIC, m *via.Memory, at, bytes int) (err error) {
	a := via.VIAttributes{SendDepth: slots, RecvDepth: slots, MaxTransfer: uint32(max(bytes, 1))}
	if e.vi, err = nic.CreateVI(ctx, a, nil, e.cq); err != nil {
		return err
	}
	e.sent, e.received = e.vi.SendDone, e.vi.RecvDone
	if e.cq != nil {
		e.completed = e.cq.Done
	}
	stride := descriptors.DescriptorBytes(1)
	for _, ds := range []*[slots]*via.Descriptor{&e.send, &e.recv} {
		for i := range ds {
			if ds[i], err = m.NewDescriptor(at, 1); err != nil {
				return err
			}
			if err := m.AddTo(ds[i], at+stride, bytes); err != nil {
				return err
			}
			at += stride + (bytes+63)&^63
		}
	}
	_, err = e.vi.PostRecvBatch(e.recv[:])
	return err
}

// errLost: a message came to another place than it should have.
var errLost = errors.New("a message arrived at another VI than it was sent to")

// message sends one message from and to the buffers that the descriptors have.
func (p *pair) message(ctx context.Context) error { return p.messageOf(ctx, 0, rearm, rearm) }

func rearm(d *via.Descriptor, _ int) error {
	d.Rearm()
	return nil
}

// messageOf sends one message and takes it at the other end; send and receive
// make the descriptors ready, for message i.
func (p *pair) messageOf(ctx context.Context, i int, send, receive func(d *via.Descriptor, i int) error) error {
	if p.pending == slots {
		if _, err := poll(ctx, p.x.sent); err != nil {
			return err
		}
		p.pending--
	}
	d := p.x.send[p.turns%slots]
	if err := send(d, i); err != nil {
		return err
	}
	if err := p.x.vi.PostSend(d); err != nil {
		return err
	}
	p.pending++
	p.turns++
	if p.y.cq != nil {
		c, err := poll(ctx, p.y.completed)
		if err != nil {
			return err
		}
		if c.VI != p.y.vi {
			return errLost
		}
	}
	r, err := poll(ctx, p.y.received)
	if err != nil {
		return err
	}
	if err := receive(r, i); err != nil {
		return err
	}
	return p.y.vi.PostRecv(r)
}

// checkEvery is after how many looks in vain a poll looks at its context.
const checkEvery = 1 << 14

// poll calls done until it has something.
func poll[T any](ctx context.Context, done func() (T, error)) (T, error) {
	for looks := 1; ; looks++ {
		v, err := done()
		if err != via.ErrNotDone {
			return v, err
		}
		if looks%checkEvery == 0 && ctx.Err() != nil {
			return v, context.Cause(ctx)
		}
	}
}

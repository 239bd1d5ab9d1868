package driver_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestNumbersAreReused has goroutines create, use and destroy on a device that
// has hardly more numbers than there are goroutines: it gives a number away again
// as soon as it has answered, before the destroyer has heard of it. What is done
// with the old owner must not reach the new one.
func TestNumbersAreReused(t *testing.T) {
	const goroutines, rounds = 4, 200
	checkLeaks(t)
	limits := engine.DefaultLimits()
	limits.Endpoints, limits.CQs = goroutines+1, goroutines
	port := must.Get(wire.NewLoopback(wire.MemoryOptions{}))(t)
	x := must.Get(emulator.New(emulator.Options{Wire: port, Limits: limits, Thread: true}))(t)
	n := open(t, x, driver.Options{})
	m := must.Get(n.Alloc(contextFor(t), 4096*goroutines, driver.MemoryAttributes{Ptag: mustPtag(t, n)}))(t)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			d := descriptor(t, m, 4096*g, 64)
			for range rounds {
				if err := createUseDestroy(t, n, m.Attributes().Ptag, d); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// createUseDestroy makes a VI with a CQ, and destroys both while it posts d
// again and again.
func createUseDestroy(t *testing.T, n *driver.NIC, ptag *driver.Ptag, d *descriptors.Descriptor) error {
	ctx := contextFor(t)
	cq, err := n.CreateCQ(ctx, 8)
	if err != nil {
		return err
	}
	v, err := n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, Ptag: ptag,
		SendDepth: 4, RecvDepth: 4}, cq, nil)
	if err != nil {
		return err
	}
	s, err := driver.StateOf(ctx, v)
	if err != nil {
		return err
	}
	if s.SendProducer != 0 || s.RecvProducer != 0 {
		return fmt.Errorf("a new VI has had %d and %d descriptors posted", s.SendProducer, s.RecvProducer)
	}
	posted := make(chan error)
	go func() {
		for {
			err := v.PostRecv(d)
			for err == nil || err == descriptors.ErrNotDone {
				_, err = v.RecvDone()
			}
			if errors.Is(err, descriptors.ErrClosed) {
				posted <- nil
				return
			}
			var flushed *driver.StatusError
			if !errors.As(err, &flushed) {
				posted <- err
				return
			}
			d.Rearm()
		}
	}()
	err = v.Abandon(ctx)
	if perr := <-posted; err == nil {
		err = perr
	}
	d.Rearm()
	return errors.Join(err, cq.Close(ctx))
}

// TestForeignCQ: a completion queue of another NIC, and one of no NIC at all.
func TestForeignCQ(t *testing.T) {
	r, other := newRig(t, nil, 8, 0), newRig(t, nil, 8, 0)
	a := r.v.Attributes()
	for name, cq := range map[string]*driver.CQ{"another NIC's": other.sendCQ, "zero": new(driver.CQ)} {
		for _, side := range []struct{ send, recv *driver.CQ }{{cq, nil}, {nil, cq}} {
			should.Refuse(r.n.CreateVI(contextFor(t), a, side.send, side.recv))(t, descriptors.ErrInvalidParameter, "%s", name)
		}
	}
}

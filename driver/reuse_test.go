package driver_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

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
	port, err := wire.NewLoopback(wire.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := emulator.New(emulator.Options{Wire: port, Limits: limits, Thread: true})
	if err != nil {
		t.Fatal(err)
	}
	n, err := driver.New(contextFor(t), x, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	m, err := n.AllocMemory(contextFor(t), 4096*goroutines, driver.MemoryAttributes{Ptag: mustPtag(t, n)})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// createUseDestroy makes a VI with a CQ, and destroys both while it posts d
// again and again.
func createUseDestroy(t *testing.T, n *driver.NIC, ptag uint32, d *descriptors.Descriptor) error {
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
	s, err := v.Query(ctx)
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
	err = v.Close(ctx)
	if perr := <-posted; err == nil {
		err = perr
	}
	d.Rearm()
	return errors.Join(err, cq.Close(ctx))
}

// TestPostWhileDestroying posts at the moment that the device is asked to destroy
// the VI. The doorbell would reach whoever has its number next. When the device
// refuses, the VI is as it was.
func TestPostWhileDestroying(t *testing.T) {
	refuse := true
	var posted []error
	var r *rig
	var d *descriptors.Descriptor
	r = newRig(t, func(f *fakeDevice) {
		f.mapBAR2 = true // a trapped doorbell would enter the device from within
		f.answer = func(cmd *datasheet.Command) (datasheet.Result, bool) {
			if cmd.Opcode != datasheet.OpDestroyEndpoint || d == nil {
				return datasheet.ResultSuccess, true
			}
			posted = append(posted, r.v.PostRecv(d), r.v.PostSend(d))
			if refuse {
				return datasheet.ResultInvalidParameter, true
			}
			return datasheet.ResultSuccess, true
		}
	}, 0, 0)
	d = r.descriptors(t, 1)[0]
	if err := r.v.Close(contextFor(t)); !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Fatalf("Destroy of a device that refuses: %v", err)
	}
	if err := r.v.PostRecv(d); err != nil {
		t.Fatalf("after a refused Destroy: %v", err)
	}
	refuse = false
	if err := r.v.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if len(posted) != 4 {
		t.Fatalf("%d posts were tried, not 4", len(posted))
	}
	for i, err := range posted {
		if !errors.Is(err, descriptors.ErrClosed) {
			t.Errorf("post %d while the VI is being destroyed: %v", i, err)
		}
	}
}

// TestForeignCQ: a completion queue of another NIC, and one of no NIC at all.
func TestForeignCQ(t *testing.T) {
	r, other := newRig(t, nil, 8, 0), newRig(t, nil, 8, 0)
	a := r.v.Attributes()
	for name, cq := range map[string]*driver.CQ{"another NIC's": other.sendCQ, "zero": new(driver.CQ)} {
		for _, side := range []struct{ send, recv *driver.CQ }{{cq, nil}, {nil, cq}} {
			if _, err := r.n.CreateVI(contextFor(t), a, side.send, side.recv); !errors.Is(err, descriptors.ErrInvalidParameter) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestDestroyUnanswered: a device that does not answer is asked once to destroy a VI.
// That it has failed is no refusal, which a DISCONNECT would help.
func TestDestroyUnanswered(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, CommandTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	v, err := n.CreateVI(contextFor(t), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 4, RecvDepth: 4}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var asked []datasheet.Opcode
	d.with(func() {
		d.answer = func(cmd *datasheet.Command) (datasheet.Result, bool) {
			asked = append(asked, cmd.Opcode)
			return datasheet.ResultSuccess, false
		}
	})
	if err := v.Close(contextFor(t)); !errors.Is(err, driver.ErrCommandTimeout) || !errors.Is(err, descriptors.ErrDevice) {
		t.Errorf("Destroy: %v", err)
	}
	d.with(func() {
		if len(asked) != 1 || asked[0] != datasheet.OpDestroyEndpoint {
			t.Errorf("the device was asked for %v", asked)
		}
		d.answer = nil
	})
	_ = n.Close() // the device may still have what it did not answer
}

package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// pingRig is two connected VIs on emulated NICs, with a descriptor for each
// queue that is used.
type pingRig struct {
	a, b       *driver.VI
	cq         *driver.CQ // of b's receives, nil for none
	send, recv *descriptors.Descriptor
	nic, peer  *driver.NIC    // of a and b
	memory     *driver.Memory // of send
	inbox      *driver.Memory // of recv
}

func newPingRig(tb testing.TB, withCQ bool) *pingRig {
	return newPingRigIn(tb, withCQ, driver.EagerAttributes{})
}

// newPingRigIn makes a pingRig whose memory is eager, or not.
func newPingRigIn(tb testing.TB, withCQ bool, eager driver.EagerAttributes) *pingRig {
	tb.Helper()
	_, _, na, nb := newPair(tb, emulator.PairOptions{})
	r := &pingRig{nic: na, peer: nb}
	ctx := contextFor(tb)
	attributes := driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 4096, SendDepth: 8, RecvDepth: 8,
		EagerTokens: eager.Mode != driver.EagerOff}
	lay := func(n *driver.NIC) (*descriptors.Descriptor, *driver.Memory) {
		p := must.Get(n.CreatePtag(ctx))(tb)
		attributes.Ptag = p
		m := must.Get(n.Alloc(ctx, 4096, driver.MemoryAttributes{Ptag: p, Eager: eager}))(tb)
		return descriptor(tb, m, 0, 64), m
	}
	r.send, r.memory = lay(na)
	r.a = must.Get(na.CreateVI(ctx, attributes, nil, nil))(tb)
	r.recv, r.inbox = lay(nb)
	if withCQ {
		r.cq = must.Get(nb.CreateCQ(ctx, 8))(tb)
	}
	r.b = must.Get(nb.CreateVI(ctx, attributes, nil, r.cq))(tb)
	connect(tb, r.a, r.b)
	return r
}

// once sends one message and takes everything back.
func (r *pingRig) once() error {
	r.recv.Rearm()
	r.send.Rearm()
	if err := r.b.PostRecv(r.recv); err != nil {
		return err
	}
	if err := r.a.PostSend(r.send); err != nil {
		return err
	}
	if r.cq != nil {
		for {
			_, err := r.cq.Done()
			if err == nil {
				break
			}
			if err != descriptors.ErrNotDone {
				return err
			}
		}
	}
	if err := take(r.b.RecvDone); err != nil {
		return err
	}
	return take(r.a.SendDone)
}

func take(done func() (*descriptors.Descriptor, error)) error {
	for {
		if _, err := done(); err != descriptors.ErrNotDone {
			return err
		}
	}
}

// TestDataPathAllocatesNothing posts, polls and completes, also where payloads are in memory of the program's own.
func TestDataPathAllocatesNothing(t *testing.T) {
	for name, rig := range map[string]func() *pingRig{
		"queues":                       func() *pingRig { return newPingRig(t, false) },
		"completion queue":             func() *pingRig { return newPingRig(t, true) },
		"own memory":                   func() *pingRig { r, _, _ := newForeignRig(t, false); return r },
		"own memory, completion queue": func() *pingRig { r, _, _ := newForeignRig(t, true); return r },
	} {
		r := rig()
		if err := r.once(); err != nil {
			t.Fatal(name, err)
		}
		var failed error
		allocs := testing.AllocsPerRun(2000, func() {
			if err := r.once(); err != nil && failed == nil {
				failed = err
			}
		})
		if failed != nil {
			t.Fatal(name, failed)
		}
		should.Be(t, allocs, 0, "%s: allocations a message", name)
	}
}

// TestWaitAllocatesNothing: a wait that need not sleep does not either.
func TestWaitAllocatesNothing(t *testing.T) {
	r := newPingRig(t, false)
	ctx := contextFor(t)
	var failed error
	allocs := testing.AllocsPerRun(500, func() {
		r.recv.Rearm()
		r.send.Rearm()
		err := errors.Join(r.b.PostRecv(r.recv), r.a.PostSend(r.send))
		if _, e := r.b.RecvWait(ctx); e != nil {
			err = e
		}
		if _, e := r.a.SendWait(ctx); e != nil {
			err = e
		}
		if err != nil && failed == nil {
			failed = err
		}
	})
	must.OK(t, failed)
	should.Be(t, allocs, 0, "allocations a message")
}

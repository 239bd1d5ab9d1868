package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sharingRig is a rig with a receive queue of depth 4 and a VI that shares it.
func sharingRig(t *testing.T) (r *rig, q, v *driver.VI, cq *driver.CQ) {
	t.Helper()
	r = newRig(t, func(d *fakeDevice) {
		d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, uint32(datasheet.FeatureReceiveQueue))
	}, 0, 0)
	cq, err := r.n.CreateCQ(contextFor(t), 8)
	if err != nil {
		t.Fatal(err)
	}
	a := driver.VIAttributes{Kind: datasheet.KindReceiveQueue, Reliability: datasheet.Unreliable, MaxTransfer: 4096, Ptag: 1, SendDepth: 1, RecvDepth: 4}
	if q, err = r.n.CreateVI(contextFor(t), a, nil, cq); err != nil {
		t.Fatal(err)
	}
	a.Kind, a.ReceiveQueue = datasheet.KindVI, q
	if v, err = r.n.CreateVI(contextFor(t), a, nil, nil); err != nil {
		t.Fatal(err)
	}
	return r, q, v, cq
}

// name is the name of token i of q.
func (r *rig) name(q *driver.VI, i uint32) (name uint32) {
	r.d.with(func() {
		b := r.d.admin.endpoints[q.Number()]
		slot := uint64(i & (1<<b.RecvLog2 - 1))
		name = datasheet.TokensAt(r.d.memory(b.RecvIOVA+slot*datasheet.TokenSize, datasheet.TokenSize))[0].Flags
	})
	return name
}

// end completes token i of q, which the device has taken for v, with its name.
func (r *rig) end(q, v *driver.VI, cq *driver.CQ, i uint32, e datasheet.Completion) {
	r.d.with(func() {
		r.d.complete(q.Number(), true, i, 8, datasheet.Status(e.Status))
		e.Endpoint, e.Flags = v.Number(), e.Flags|datasheet.CompletionReceive
		r.d.completion(cq.Number(), e)
	})
}

// TestSharedOutOfOrder: receives come back in the order in which the device completes them, and
// one that it keeps is in nobody's way.
func TestSharedOutOfOrder(t *testing.T) {
	r, q, v, cq := sharingRig(t)
	ds := r.descriptors(t, 4)
	if n, err := q.PostRecvBatch(ds); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	kept := r.name(q, 0)
	next := []*descriptors.Descriptor{ds[1], ds[2], ds[3]}
	for i := uint32(1); i < 40; i++ { // token 0 stays
		want := next[0]
		r.end(q, v, cq, i, datasheet.Completion{Index: r.name(q, i), Status: uint32(datasheet.StatusDone)})
		c, err := cq.Done()
		if err != nil || c.Err != nil || c.Descriptor != want || c.VI != v || !c.Receive {
			t.Fatalf("%d: %+v, %v", i, c, err)
		}
		want.Rearm()
		if err := q.PostRecv(want); err != nil {
			t.Fatal(i, err)
		}
		if r.name(q, i+3) == kept {
			t.Fatalf("token %d has the name of one that is posted", i+3)
		}
		next = append(next[1:], want)
	}
	if _, n := q.Queued(); n != 4 {
		t.Errorf("%d are posted", n)
	}
	if err := q.PostRecv(ds[0]); !errors.Is(err, descriptors.ErrQueueFull) && !errors.Is(err, driver.ErrPosted) {
		t.Error(err)
	}
	// The VI goes, then its completion is looked at: it still says whose it was.
	r.end(q, v, cq, 40, datasheet.Completion{Index: r.name(q, 40), Status: uint32(datasheet.StatusDone | datasheet.StatusFlushed)})
	if err := v.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	c, err := cq.Done()
	var status *driver.StatusError
	if err != nil || c.VI != v || c.Descriptor != next[0] || !errors.As(c.Err, &status) || status.Status&datasheet.StatusFlushed == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := q.Close(contextFor(t)); err != nil {
		t.Error(err)
	}
	if _, err := cq.Done(); err != descriptors.ErrNotDone {
		t.Error(err)
	}
	if err := cq.Close(contextFor(t)); err != nil {
		t.Error(err)
	}
}

// TestSharedHostile: a device that completes what is not posted ends the CQ.
func TestSharedHostile(t *testing.T) {
	for name, index := range map[string]uint32{"out of range": 16, "2^32-1": 0xffffffff, "not posted": 9, "twice": 0} {
		t.Run(name, func(t *testing.T) {
			r, q, v, cq := sharingRig(t)
			if err := q.PostRecv(r.descriptors(t, 1)[0]); err != nil {
				t.Fatal(err)
			}
			done := datasheet.Completion{Index: r.name(q, 0), Status: uint32(datasheet.StatusDone)}
			if name == "twice" {
				r.end(q, v, cq, 0, done)
				index = done.Index
				defer func() {
					if _, n := q.Queued(); n != 0 {
						t.Errorf("%d are posted", n)
					}
				}()
			}
			bad := done
			bad.Index = index
			r.end(q, v, cq, 0, bad)
			if name == "twice" {
				if c, err := cq.Done(); err != nil || c.Descriptor == nil {
					t.Fatalf("%+v, %v", c, err)
				}
			}
			for range 2 {
				if _, err := cq.Done(); !errors.Is(err, driver.ErrProtocol) {
					t.Error(err)
				}
			}
			if err := errors.Join(v.Close(contextFor(t)), q.Close(contextFor(t))); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSharedOldDevice: a device without shared receive queues is not asked for one.
func TestSharedOldDevice(t *testing.T) {
	r := newRig(t, nil, 0, 8)
	_, err := r.n.CreateVI(contextFor(t), driver.VIAttributes{Kind: datasheet.KindReceiveQueue, Reliability: datasheet.Unreliable,
		MaxTransfer: 4096, Ptag: 1, SendDepth: 1, RecvDepth: 4}, nil, r.recvCQ)
	if !errors.Is(err, descriptors.ErrNotSupported) {
		t.Error(err)
	}
}

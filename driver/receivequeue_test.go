package driver_test

import (
	"testing"

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

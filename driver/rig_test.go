package driver_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// rig is a fake device with one VI and memory.
type rig struct {
	d *fakeDevice
	n *driver.NIC
	v *driver.VI
	m *driver.Memory
	// nil for none
	sendCQ, recvCQ *driver.CQ
}

func newRig(t *testing.T, script func(*fakeDevice), sendEntries, recvEntries int) *rig {
	t.Helper()
	checkLeaks(t)
	r := &rig{d: newFake(t)}
	if script != nil {
		script(r.d)
	}
	r.n = openFake(t, r.d)
	r.m = must.Get(r.n.Alloc(contextFor(t), 16384, driver.MemoryAttributes{}))(t)
	for _, c := range []struct {
		entries int
		cq      **driver.CQ
	}{{sendEntries, &r.sendCQ}, {recvEntries, &r.recvCQ}} {
		if c.entries > 0 {
			*c.cq = must.Get(r.n.CreateCQ(contextFor(t), c.entries))(t)
		}
	}
	a := driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 4096, SendDepth: 3, RecvDepth: 4}
	r.v = must.Get(r.n.CreateVI(contextFor(t), a, r.sendCQ, r.recvCQ))(t)
	return r
}

func (r *rig) descriptors(t *testing.T, n int) []*descriptors.Descriptor {
	var ds []*descriptors.Descriptor
	for i := range n {
		ds = append(ds, descriptor(t, r.m, i*512, 64))
	}
	return ds
}

// completion completes token i of the VI's queue in CQ cq.
func (r *rig) completion(cq *driver.CQ, receive bool, i uint32) {
	flags := uint32(0)
	if receive {
		flags = datasheet.CompletionReceive
	}
	r.d.with(func() {
		r.d.complete(r.v.Number(), receive, i, 0, datasheet.StatusDone)
		r.d.completion(cq.Number(), datasheet.Completion{Endpoint: r.v.Number(), Index: i, Status: uint32(datasheet.StatusDone), Flags: flags})
	})
}

func (r *rig) mappings() int {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return len(r.d.dma)
}

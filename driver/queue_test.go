package driver_test

import (
	"errors"
	"testing"

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
	var err error
	if r.m, err = r.n.AllocMemory(contextFor(t), 16384, driver.MemoryAttributes{Ptag: 1}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		entries int
		cq      **driver.CQ
	}{{sendEntries, &r.sendCQ}, {recvEntries, &r.recvCQ}} {
		if c.entries > 0 {
			if *c.cq, err = r.n.CreateCQ(contextFor(t), c.entries); err != nil {
				t.Fatal(err)
			}
		}
	}
	a := driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 4096, Ptag: 1, SendDepth: 3, RecvDepth: 4}
	if r.v, err = r.n.CreateVI(contextFor(t), a, r.sendCQ, r.recvCQ); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) descriptors(t *testing.T, n int) []*descriptors.Descriptor {
	var ds []*descriptors.Descriptor
	for i := range n {
		ds = append(ds, descriptor(t, r.m, i*512, 64))
	}
	return ds
}

// complete completes token i of a queue, sound.
func (r *rig) complete(receive bool, i, length uint32, status datasheet.Status) {
	r.d.with(func() { r.d.complete(r.v.Number(), receive, i, length, status) })
}

func TestPostRingsOnce(t *testing.T) {
	for name, script := range map[string]func(*fakeDevice){
		"trapped": nil, "mapped": func(d *fakeDevice) { d.mapBAR2 = true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, script, 0, 0)
			page := datasheet.EndpointPage(r.v.Number())
			ds := r.descriptors(t, 7)
			if n, err := r.v.PostSendBatch(ds[:2]); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			if got := r.d.doorbell(page + datasheet.DoorbellSend); got != 2 {
				t.Errorf("send doorbell %d", got)
			}
			// One more fits, the other does not: what fits is posted.
			if n, err := r.v.PostSendBatch(ds[2:4]); n != 1 || err != descriptors.ErrQueueFull {
				t.Error(n, err)
			}
			if got := r.d.doorbell(page + datasheet.DoorbellSend); got != 3 {
				t.Errorf("send doorbell %d", got)
			}
			if err := r.v.PostSend(ds[3]); err != descriptors.ErrQueueFull {
				t.Error(err)
			}
			for i, d := range ds[3:] {
				if err := r.v.PostRecv(d); err != nil {
					t.Error(i, err)
				}
			}
			if err := r.v.PostRecv(ds[0]); err != descriptors.ErrQueueFull {
				t.Error(err)
			}
			if got := r.d.doorbell(page + datasheet.DoorbellRecv); got != 4 {
				t.Errorf("receive doorbell %d", got)
			}
			if send, recv := r.v.Queued(); send != 3 || recv != 4 {
				t.Errorf("queued %d, %d", send, recv)
			}
			if n, err := r.v.PostSendBatch(nil); n != 0 || err != nil {
				t.Error(n, err)
			}
		})
	}
}

func TestDoneInOrder(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	if _, err := r.v.SendDone(); err != descriptors.ErrQueueEmpty {
		t.Error(err)
	}
	ds := r.descriptors(t, 3)
	for round := range uint32(20) { // wraps the ring of 4
		for i, d := range ds {
			d.Rearm()
			if err := r.v.PostSend(d); err != nil {
				t.Fatal(round, i, err)
			}
		}
		base := round * 3
		// The second completes first: the first is still the head.
		r.complete(false, base+1, 64, datasheet.StatusDone)
		if d, err := r.v.SendDone(); d != nil || err != descriptors.ErrNotDone {
			t.Fatal(round, d, err)
		}
		r.complete(false, base, 64, datasheet.StatusDone)
		r.complete(false, base+2, 10, datasheet.StatusDone|datasheet.StatusFlushed)
		for i := range 2 {
			if d, err := r.v.SendDone(); d != ds[i] || err != nil {
				t.Fatal(round, d, err)
			}
		}
		d, err := r.v.SendDone()
		var s *driver.StatusError
		if d != ds[2] || !errors.As(err, &s) || s.Status != datasheet.StatusDone|datasheet.StatusFlushed || d.Length() != 10 {
			t.Fatal(round, d, err)
		}
		if _, err := r.v.SendDone(); err != descriptors.ErrQueueEmpty {
			t.Fatal(round, err)
		}
	}
}

// TestPostRefuses: what is refused changes nothing.
func TestPostRefuses(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	other, err := r.n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{Ptag: 2})
	if err != nil {
		t.Fatal(err)
	}
	readOnly, err := r.n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{Ptag: 1, Access: datasheet.AccessReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	stale, err := r.n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{Ptag: 1})
	if err != nil {
		t.Fatal(err)
	}
	last := descriptor(t, stale, 0, 8)
	if err := r.v.PostRecv(last); err != nil { // so that the queue remembers the region
		t.Fatal(err)
	}
	r.complete(true, 0, 8, datasheet.StatusDone)
	if _, err := r.v.RecvDone(); err != nil {
		t.Fatal(err)
	}
	last.Rearm()
	if err := stale.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	at := func(m *driver.Memory, address uint64, handle uint32) *descriptors.Descriptor {
		d, err := descriptors.NewDescriptor(m.Bytes()[:64], address, handle)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	done := descriptor(t, r.m, 8192, 8)
	done.Control().StoreStatus(datasheet.StatusDone)
	for name, c := range map[string]struct {
		d    *descriptors.Descriptor
		want error
	}{
		"nil":               {nil, descriptors.ErrInvalidParameter},
		"not rearmed":       {done, driver.ErrNotRearmed},
		"stale handle":      {last, driver.ErrBadHandle},
		"foreign handle":    {at(r.m, r.m.Address(), 4711), driver.ErrBadHandle},
		"before the region": {at(r.m, r.m.Address()-64, r.m.Handle()), driver.ErrBadHandle},
		"behind the region": {at(r.m, r.m.Address()+16384, r.m.Handle()), driver.ErrBadHandle},
		"far away":          {at(r.m, ^uint64(63), r.m.Handle()), driver.ErrBadHandle},
		"zero descriptor":   {new(descriptors.Descriptor), driver.ErrBadHandle},
		"lies elsewhere":    {at(other, r.m.Address(), r.m.Handle()), driver.ErrBadHandle},
		"other ptag":        {at(other, other.Address(), other.Handle()), descriptors.ErrInvalidPtag},
		"read-only":         {at(readOnly, readOnly.Address(), readOnly.Handle()), driver.ErrBadHandle},
	} {
		if err := r.v.PostRecv(c.d); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if n, err := r.v.PostSendBatch([]*descriptors.Descriptor{c.d, done}); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s in a batch: %d, %v", name, n, err)
		}
	}
	if send, recv := r.v.Queued(); send != 0 || recv != 0 {
		t.Errorf("queued %d, %d", send, recv)
	}
	if err := r.v.PostRecv(descriptor(t, r.m, 0, 8)); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// TestHostileCompletions: the descriptor comes back, with an error.
func TestHostileCompletions(t *testing.T) {
	for name, c := range map[string]struct {
		length uint32
		status datasheet.Status
		want   error
	}{
		"longer than posted":   {65, datasheet.StatusDone, driver.ErrProtocol},
		"length 2^32-1":        {0xffffffff, datasheet.StatusDone, driver.ErrProtocol},
		"reserved status bits": {64, datasheet.StatusDone | 0x80000000, driver.ErrProtocol},
		"all ones":             {0xffffffff, 0xffffffff, driver.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 0, 0)
			d := r.descriptors(t, 1)[0]
			if err := r.v.PostRecv(d); err != nil {
				t.Fatal(err)
			}
			r.complete(true, 0, c.length, c.status)
			if got, err := r.v.RecvDone(); got != d || !errors.Is(err, c.want) {
				t.Errorf("%v, %v", got, err)
			}
			if _, err := r.v.RecvDone(); err != descriptors.ErrQueueEmpty {
				t.Error(err)
			}
		})
	}
}

// TestDescriptorLost: the device cannot write the status, and says so.
func TestDescriptorLost(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	ds := r.descriptors(t, 2)
	if n, err := r.v.PostSendBatch(ds); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	r.n.OnEvent(func(datasheet.Event) {})
	r.d.with(func() {
		r.d.complete(r.v.Number(), false, 1, 64, datasheet.StatusDone)
		r.d.event(datasheet.Event{Code: datasheet.EventPostDescriptor, Endpoint: r.v.Number(), CQ: datasheet.NoCQ,
			Descriptor: ds[0].Token().Address})
		// Events about nothing that is there do no harm.
		r.d.event(datasheet.Event{Code: datasheet.EventPostDescriptor, Endpoint: 0xffffffff, Descriptor: 1})
		r.d.event(datasheet.Event{Code: datasheet.EventPostDescriptor, Endpoint: r.v.Number(), Descriptor: 1})
		r.d.event(datasheet.Event{Code: datasheet.EventCQOverrun, CQ: 0xfffffff0})
	})
	d, err := r.v.SendWait(contextFor(t))
	var s *driver.StatusError
	if d != ds[0] || !errors.As(err, &s) || s.Status&datasheet.StatusProtectionError == 0 {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := r.v.SendDone(); d != ds[1] || err != nil {
		t.Errorf("%v, %v", d, err)
	}
}

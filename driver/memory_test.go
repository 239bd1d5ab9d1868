package driver_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func (r *rig) mappings() int {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return len(r.d.dma)
}

func TestMemory(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	mapped, open := r.mappings(), leaktest.Files(t)
	a := driver.MemoryAttributes{Ptag: 7, Access: datasheet.AccessRDMAWrite}
	m, err := r.n.AllocMemory(contextFor(t), 5000, a)
	if err != nil {
		t.Fatal(err)
	}
	if m.Size() != 5000 || len(m.Bytes()) != 5000 || cap(m.Bytes()) != 5000 || m.Attributes() != a {
		t.Errorf("%d bytes, %d of them, attributes %+v", m.Size(), len(m.Bytes()), m.Attributes())
	}
	if !bytes.Equal(m.Bytes(), make([]byte, 5000)) {
		t.Error("not zeroed")
	}
	got := r.d.admin.regions[m.Handle()]
	if got.Address != m.Address() || got.Length != 5000 || got.Ptag != 7 || got.Access != a.Access {
		t.Errorf("the device was told %+v", got)
	}
	// A part of it under another handle, at the bus address that belongs to it.
	part, err := r.n.RegisterMemory(contextFor(t), m.Bytes()[100:300], driver.MemoryAttributes{Ptag: 8})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.d.admin.regions[part.Handle()]; p.Address != m.Address()+100 || p.IOVA != got.IOVA+100 || p.Length != 200 || p.Ptag != 8 {
		t.Errorf("the device was told %+v", p)
	}
	if err := m.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if m.Bytes() != nil {
		t.Error("bytes of deregistered memory")
	}
	part.Bytes()[199] = 1 // still there
	if r.mappings() != mapped+1 {
		t.Errorf("%d mappings", r.mappings())
	}
	if err := m.Close(contextFor(t)); err != nil {
		t.Error(err)
	}
	if err := part.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if r.mappings() != mapped || leaktest.Files(t) != open {
		t.Errorf("%d mappings, %d before; %d files, %d before", r.mappings(), mapped, leaktest.Files(t), open)
	}
}

func TestRegisterWrongMemory(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	m, err := r.n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{Access: datasheet.AccessReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"Go heap":          {make([]byte, 4096), driver.ErrNotDMAMemory},
		"nothing":          {nil, descriptors.ErrInvalidParameter},
		"empty":            {m.Bytes()[10:10], descriptors.ErrInvalidParameter},
		"read-only before": {m.Bytes(), descriptors.ErrInvalidParameter},
	} {
		mapped := r.mappings()
		if got, err := r.n.RegisterMemory(contextFor(t), c.b, driver.MemoryAttributes{}); got != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if r.mappings() != mapped {
			t.Errorf("%s: %d mappings, %d before", name, r.mappings(), mapped)
		}
	}
	again, err := r.n.RegisterMemory(contextFor(t), m.Bytes(), driver.MemoryAttributes{Access: datasheet.AccessReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Close(contextFor(t)), m.Close(contextFor(t))); err != nil {
		t.Error(err)
	}
}

// TestMemoryRefused: when the device refuses, everything is as before.
func TestMemoryRefused(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	mapped, open := r.mappings(), leaktest.Files(t)
	r.d.with(func() {
		r.d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return datasheet.ResultResource, true }
	})
	if _, err := r.n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{}); !errors.Is(err, descriptors.ErrResource) {
		t.Error(err)
	}
	if _, err := r.n.RegisterMemory(contextFor(t), r.m.Bytes(), driver.MemoryAttributes{}); !errors.Is(err, descriptors.ErrResource) {
		t.Error(err)
	}
	if _, err := r.n.CreateCQ(contextFor(t), 4); !errors.Is(err, descriptors.ErrResource) {
		t.Error(err)
	}
	if _, err := r.n.CreateVI(contextFor(t), r.v.Attributes(), nil, nil); !errors.Is(err, descriptors.ErrResource) {
		t.Error(err)
	}
	if err := r.m.Close(contextFor(t)); !errors.Is(err, descriptors.ErrResource) {
		t.Error(err)
	}
	if err := r.v.Close(contextFor(t)); !errors.Is(err, descriptors.ErrResource) {
		t.Error(err)
	}
	r.d.with(func() { r.d.answer = nil })
	if r.mappings() != mapped || leaktest.Files(t) != open {
		t.Errorf("%d mappings, %d before; %d files, %d before", r.mappings(), mapped, leaktest.Files(t), open)
	}
	if err := r.v.PostSend(descriptor(t, r.m, 0, 64)); err != nil {
		t.Errorf("memory and VI that could not be given back: %v", err)
	}
}

// TestDeregisterPosted: memory with posted descriptors in it stays.
func TestDeregisterPosted(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	d := descriptor(t, r.m, 0, 64)
	for name, q := range map[string]struct {
		post func(*descriptors.Descriptor) error
		done func() (*descriptors.Descriptor, error)
		recv bool
	}{
		"send": {r.v.PostSend, r.v.SendDone, false}, "receive": {r.v.PostRecv, r.v.RecvDone, true},
	} {
		d.Rearm()
		if err := q.post(d); err != nil {
			t.Fatal(name, err)
		}
		if err := r.m.Close(contextFor(t)); !errors.Is(err, driver.ErrInUse) {
			t.Error(name, err)
		}
		if r.m.Bytes() == nil {
			t.Error(name, "the memory is gone")
		}
		r.complete(q.recv, 0, 64, datasheet.StatusDone)
		if got, err := q.done(); got != d || err != nil {
			t.Error(name, got, err)
		}
	}
	if err := r.m.Close(contextFor(t)); err != nil {
		t.Error(err)
	}
}

func TestSRAM(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	if err := r.n.WriteSRAM(fakeSRAM-4, []byte("tail")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := r.n.ReadSRAM(fakeSRAM-4, got); err != nil || string(got) != "tail" {
		t.Errorf("%q, %v", got, err)
	}
	for _, offset := range []uint64{fakeSRAM - 3, fakeSRAM, fakeSRAM + 1, ^uint64(0), ^uint64(3)} {
		if err := r.n.ReadSRAM(offset, got); err == nil {
			t.Errorf("read at %#x", offset)
		}
		if err := r.n.WriteSRAM(offset, got); err == nil {
			t.Errorf("wrote at %#x", offset)
		}
	}
	if err := r.n.ReadSRAM(fakeSRAM, nil); err != nil {
		t.Error(err)
	}
}

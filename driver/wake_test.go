package driver_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// woken counts how often it is said that there is something to poll for.
type woken struct {
	*emulator.Device
	n atomic.Int32
}

func (s *woken) Wake() {
	s.n.Add(1)
	s.Device.Wake()
}

// TestPostsWake: each post of one descriptor or many wakes those who sleep instead
// of polling; one that is refused does not.
func TestPostsWake(t *testing.T) {
	x, y, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	d := &woken{Device: x}
	ctx := contextFor(t)
	n, err := driver.New(ctx, d, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	v, err := n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 64, SendDepth: 4, RecvDepth: 4}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := n.AllocMemory(ctx, 4096, driver.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	var ds []*descriptors.Descriptor
	for i := range 4 {
		ds = append(ds, descriptor(t, m, 1024*i, 64))
	}
	for _, post := range []struct {
		name string
		f    func() error
	}{
		{"PostSend", func() error { return v.PostSend(ds[0]) }},
		{"PostRecv", func() error { return v.PostRecv(ds[1]) }},
		{"PostRecvBatch", func() error { _, err := v.PostRecvBatch(ds[2:]); return err }},
	} {
		before := d.n.Load()
		if err := post.f(); err != nil {
			t.Fatalf("%s: %v", post.name, err)
		}
		if got := d.n.Load() - before; got != 1 {
			t.Errorf("%s: said %d times", post.name, got)
		}
	}
	before := d.n.Load()
	if err := v.PostRecv(nil); !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Error(err)
	}
	if n, err := v.PostRecvBatch([]*descriptors.Descriptor{nil}); n != 0 || !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Error(n, err)
	}
	if d.n.Load() != before {
		t.Error("a post that was refused woke somebody")
	}
}

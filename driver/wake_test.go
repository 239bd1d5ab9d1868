package driver_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestPostsWake: each post of one descriptor or many wakes those who sleep instead
// of polling; one that is refused does not.
func TestPostsWake(t *testing.T) {
	var now atomic.Int64
	d, _ := devices(t, emulator.PairOptions{Clock: func() time.Duration { return time.Duration(now.Load()) }})
	ctx := contextFor(t)
	n := open(t, d, driver.Options{})
	v := must.Get(n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 64, SendDepth: 4, RecvDepth: 4}, nil, nil))(t)
	m := must.Get(n.Alloc(ctx, 4096, driver.MemoryAttributes{}))(t)
	asleep := func() <-chan struct{} {
		now.Add(int64(time.Second)) // posts wake some hundred times a second at most
		return d.Idle()
	}
	wakes := func(over <-chan struct{}) bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
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
		over := asleep()
		if err := post.f(); err != nil {
			t.Fatalf("%s: %v", post.name, err)
		}
		should.Be(t, wakes(over), true, "%s: the sleeper was not woken", post.name)
	}
	over := asleep()
	should.Fail(t, v.PostRecv(nil), descriptors.ErrInvalidParameter)
	if n, err := v.PostRecvBatch([]*descriptors.Descriptor{nil}); n != 0 || !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Error(n, err)
	}
	should.Be(t, wakes(over), false, "a post that was refused woke somebody")
}

package igb_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/fakeigb"
)

// TestRestartBesideCache restarts a port while its queue's user takes and gives buffers: each
// stays in one hand, and none is lost.
func TestRestartBesideCache(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 1024})
	p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
	q := p.Queue(0)
	ended := make(chan error, 1)
	go func() {
		frames := make([]ethernet.Frame, 16)
		for {
			n := q.Cache().Alloc(frames)
			for i := range n {
				frames[i].Length = 60
			}
			sent, err := q.Send(frames[:n])
			q.Cache().Free(frames[sent:n])
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 200 {
		if err := p.Restart(contextFor(t)); err != nil {
			t.Error(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ethernet.ErrClosed) {
		t.Error(err)
	}
	if n := pool.Free(); n != 1024 {
		t.Errorf("%d of 1024 buffers are back", n)
	}
}

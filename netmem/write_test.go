package netmem

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// TestOtherWriteOfClient: a write whose first attempt was lost does not take another write of the
// same client for that attempt.
func TestOtherWriteOfClient(t *testing.T) {
	d := newDirect(t, "a")
	c := d.client(t, Options{}, "a")
	frame := d.page(t, 0)
	base := must.Get(c.Fetch(t.Context(), 0, frame))(t)
	lost, written := make(chan bool), make(chan error)
	var attempts atomic.Int32
	d.setLoss(func(_ string, q *protocol.Request, _ func()) bool {
		if q.Operation != protocol.Write || attempts.Add(1) > 1 {
			return false
		}
		close(lost)
		<-written
		return true
	})
	one, other := d.page(t, 1), d.page(t, 2)
	done := make(chan error)
	go func() {
		_, err := c.Store(t.Context(), 0, base, one)
		done <- err
	}()
	<-lost
	if _, err := c.Store(t.Context(), 0, base, other); err != nil {
		t.Errorf("the other write: %v", err)
	}
	close(written)
	should.Fail(t, <-done, ErrConflict, "the write that came later")
	if _, err := c.Fetch(t.Context(), 0, frame); err != nil || frame.Bytes()[0] != 2 {
		t.Errorf("the page is %d, %v", frame.Bytes()[0], err)
	}
}

// TestLateWrite: the first attempt at a write of a whole page, which was acknowledged later, does not
// undo another client's write when it arrives after all.
func TestLateWrite(t *testing.T) {
	d := newDirect(t, "a")
	c, other := d.client(t, Options{}, "a"), d.client(t, Options{}, "a")
	var late func()
	d.setLoss(func(_ string, q *protocol.Request, deliver func()) bool {
		if q.Operation != protocol.Write || late != nil {
			return false
		}
		late = deliver
		return true
	})
	write := func(c *Client, b byte) {
		must.Get(c.WriteAt(bytes.Repeat([]byte{b}, MinPage), 0))(t)
		must.OK(t, c.Sync())
	}
	write(c, 1)
	write(other, 2)
	late()
	frame := d.page(t, 0)
	if _, err := other.Fetch(t.Context(), 0, frame); err != nil || frame.Bytes()[0] != 2 {
		t.Errorf("the page is %d, %v", frame.Bytes()[0], err)
	}
}

package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
)

// turns lets several goroutines wait for one queue of a Conn: one at a time waits in
// the NIC, the others for what it finds.
type turns struct {
	mu      driver.Held   // the queue and its lock, never held while waiting
	busy    bool          // a call waits in the NIC
	changed chan struct{} // closed when it has looked; nil if no call waits for that
}

// wait waits in the NIC with done, or for another call that does: then it returns nil twice, and the
// caller looks again. It is called with mu held, which it gives back meanwhile.
func (t *turns) wait(ctx context.Context, n *NIC, done func(context.Context) (*Descriptor, error)) (*Descriptor, error) {
	if t.busy {
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		defer t.mu.Lock()
		select {
		case <-changed:
			return nil, nil
		case <-ctx.Done():
			return nil, n.Fail("wait for connection", ctx.Err())
		}
	}
	t.busy = true
	t.mu.Unlock()
	d, err := done(ctx)
	t.mu.Lock()
	t.busy = false
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	return d, err
}

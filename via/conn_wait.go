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

// take is called with mu held, which it gives back. It reports whether it is the
// caller's turn to wait in the NIC; otherwise it has waited for another call.
func (t *turns) take(ctx context.Context) (bool, error) {
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return true, nil
	}
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	changed := t.changed
	t.mu.Unlock()
	select {
	case <-changed:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// end ends the caller's turn, with mu held: the others look again.
func (t *turns) end() {
	t.busy = false
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// wait waits until a send has completed or another call has looked, and takes note
// of it. It is called with the lock held, which it lets go meanwhile.
func (s *sendSide) wait(ctx context.Context, c *Conn) error {
	mine, err := s.turns.take(ctx)
	if !mine {
		s.mu.Lock()
		return c.vi.nic.fail("wait for connection", err)
	}
	d, err := c.vi.SendWait(ctx)
	s.mu.Lock()
	err = c.sent(d, err)
	s.turns.end()
	return err
}

// wait is the same for receives.
func (s *recvSide) wait(ctx context.Context, c *Conn) error {
	mine, err := s.turns.take(ctx)
	if !mine {
		s.mu.Lock()
		return c.vi.nic.fail("wait for connection", err)
	}
	d, err := c.vi.RecvWait(ctx)
	s.mu.Lock()
	err = c.came(d, err)
	s.turns.end()
	return err
}

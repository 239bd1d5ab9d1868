package driver

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// leaving says how far the closing of a VI or CQ has come.
type leaving struct {
	// ended is nil while no call closes the object, and closed when that is over.
	// Guarded by NIC.mu, as is uses.
	ended chan struct{}
	// uses counts what a Close may have to wait for: calls in progress, and other objects that have this one.
	uses int
}

// use counts one more use of an object whose closing has not begun, and leave undoes it.
func (l *leaving) use(n *NIC) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.ended != nil {
		return descriptors.ErrClosed
	}
	l.uses++
	return nil
}

func (l *leaving) leave(n *NIC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.uses--
}

// begin begins the closing, and reports whether it has: not if another call has closed the
// object, for which it waits. It fails with what inTheWay returns, which is called with
// NIC.mu held; inTheWay may be nil.
func (l *leaving) begin(n *NIC, inTheWay func() error) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := l.ended; other != nil; other = l.ended {
		n.mu.Unlock()
		<-other
		n.mu.Lock()
		if l.ended == other {
			return false, nil
		}
	}
	if inTheWay != nil {
		if err := inTheWay(); err != nil {
			return false, err
		}
	}
	l.ended = make(chan struct{})
	return true, nil
}

func (l *leaving) begun(n *NIC) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.ended != nil
}

// undo is called when the device refuses: the object stays.
func (l *leaving) undo(n *NIC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(l.ended)
	l.ended = nil
}

// end is called when nothing of the object is left.
func (l *leaving) end(n *NIC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(l.ended)
}

// wait waits for undo or end, for as long as the commands of one closing take at most.
// It returns at once if none has begun.
func (l *leaving) wait(n *NIC) {
	n.mu.Lock()
	ended := l.ended
	n.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// do is NIC.do for an object that is not being closed.
func (l *leaving) do(ctx context.Context, n *NIC, op string, f func() error) error {
	return n.do(ctx, op, func() error { return l.unless(n, f) })
}

// unless carries out f, unless the closing has begun.
func (l *leaving) unless(n *NIC, f func() error) error {
	if l.begun(n) {
		return descriptors.ErrClosed
	}
	return f()
}

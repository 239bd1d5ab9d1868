package driver

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// WaitSend waits until SendDone would not say ErrNotDone, until early is set, or until ctx
// ends, with whose error it fails then. early may be nil.
func (r *Ring) WaitSend(ctx context.Context, early *Signal) error {
	return r.wait(ctx, "wait for send ring", early, &r.send, r.send.ready)
}

// WaitRecv is WaitSend for the receive ring.
func (r *Ring) WaitRecv(ctx context.Context, early *Signal) error {
	return r.wait(ctx, "wait for receive ring", early, &r.recv, r.recv.ready)
}

// WaitAny is WaitSend for both rings: until one of them has something to take. It fails
// with ErrQueueEmpty, bare, if nothing is posted.
func (r *Ring) WaitAny(ctx context.Context, early *Signal) error {
	return r.wait(ctx, "wait for ring", early, r, func() (bool, error) {
		there, err := r.recv.ready()
		if there && err != descriptors.ErrQueueEmpty {
			return there, err
		}
		also, sent := r.send.ready()
		if also && sent == descriptors.ErrQueueEmpty {
			return there, err
		}
		return also, sent
	})
}

// wait waits until ready says so.
func (r *Ring) wait(ctx context.Context, op string, early *Signal, a armer, ready func() (bool, error)) error {
	if ctx == nil {
		return r.n.noContext(op)
	}
	w := waiter{n: r.n, ctx: ctx, done: r.n.done}
	defer w.stop()
	for {
		if there, err := ready(); there || early.take() {
			return err
		}
		if err := w.pause(a, r.vec, early.C()); err != nil {
			return r.n.error(op, err)
		}
	}
}

// ready reports whether poll has something else to say than ErrNotDone, and the error that
// it would say.
func (q *ringQueue) ready() (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := q.look()
	return m == 0, err
}

// arm asks for an interrupt when either ring completes more than has been taken.
func (r *Ring) arm(ctx context.Context) error {
	if err := r.send.arm(ctx); err != nil {
		return err
	}
	return r.recv.arm(ctx)
}

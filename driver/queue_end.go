package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// wait waits until the oldest descriptor has completed, with empty also while nothing is posted.
func (q *workQueue) wait(w *waiter, empty bool) (*descriptors.Descriptor, error) {
	d, err := q.done(false)
	for err == descriptors.ErrNotDone || empty && err == descriptors.ErrQueueEmpty {
		if err := w.pause(q, q.vec, nil); err != nil {
			return nil, q.n.error("wait for "+q.side, err)
		}
		d, err = q.done(false)
	}
	return d, err
}

// holds reports whether a posted descriptor lies in the region handle.
func (q *workQueue) holds(handle uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shared {
		return slices.ContainsFunc(q.posted, func(p posting) bool { return p.d != nil && p.d.Token().Handle == handle })
	}
	_, held := q.first(func(place uint32) bool { return q.posted[place].d.Token().Handle == handle })
	return held
}

// lose marks the posted descriptor at address as one that cannot complete.
func (q *workQueue) lose(address uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shared {
		return
	}
	if place, ok := q.first(func(place uint32) bool { return q.posted[place].d.Token().Address == address }); ok {
		q.posted[place].lost = true
	}
}

// close ends all use of the ring and of the doorbells. What is posted is the
// program's again.
func (q *workQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseShared()
	q.first(func(place uint32) bool {
		q.posted[place].d.Post().Posted = false
		return false
	})
	q.closed, q.quick = true, false
	q.posted, q.tokens, q.bytes = nil, nil, nil
	if q.ring != nil {
		q.n.regions.keep(q.ring.stats)
		q.ring = nil
	}
	q.notices.end()
}

func (q *workQueue) notify(f func(*descriptors.Descriptor, error)) error {
	v := q.vi
	return v.look(q.n.background, "notify of "+q.side, func() error {
		switch {
		case f == nil:
			return hinted(fmt.Errorf("%w: the handler is nil", descriptors.ErrInvalidParameter), "")
		case q == &v.recv && v.source() != nil:
			return q.closedAs
		case q.cq != nil:
			return hinted(descriptors.ErrInvalidState, "the queue has a completion queue: ask that for a notice")
		}
		return q.notices.add(q.n, f, func(w *waiter) (*descriptors.Descriptor, error) { return q.wait(w, true) })
	})
}

func (q *workQueue) await(ctx context.Context) (*descriptors.Descriptor, error) {
	if ctx == nil {
		return nil, q.n.noContext("wait for " + q.side)
	}
	if q.cq != nil {
		return nil, q.n.refuse("wait for "+q.side, descriptors.ErrInvalidState, "the queue has a completion queue: wait there")
	}
	return q.wait(&waiter{n: q.n, ctx: ctx, done: q.n.done}, false)
}

package driver

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/vfio"
)

// queue is the part that work queues, those of rings and completion queues have in common: indices,
// doorbells and the end. Indices are free-running: those from taken to next are posted.
type queue struct {
	n        *NIC
	side     string // "send" or "receive", or what is attempted, for errors
	closedAs error  // what a closed queue answers

	mu      hotlock.Mutex
	mask    uint32
	next    uint32 // the number of the next entry to post
	taken   uint32
	misses  uint32    // looks in vain since the device was seen alive
	path    vfio.Path // into a device of this process; nil if it has none
	bell    doorbell
	armBell doorbell
	eagers  eagers
	closed  bool
	refuses bool // closed for posting, while the endpoint is being destroyed
}

// missesPerCheck is the number of looks in vain between two looks at the
// device's health.
const missesPerCheck = 1 << 16

// nothing is the result of a look in vain: nothing has completed. mu is held, but not while the device is
// asked, which it is after many.
func (q *queue) nothing() error {
	if q.misses++; q.misses%missesPerCheck != 0 && q.n.failed() == nil {
		return descriptors.ErrNotDone
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	return q.n.notDone(q.side, q.misses%missesPerCheck == 0)
}

// path returns an endpoint's way into a device of this process, nil if it has none.
func (n *NIC) path(endpoint uint32) vfio.Path {
	if n.local != nil {
		return n.local.Path(endpoint)
	}
	return nil
}

// progress steps the device as NIC.progress does, for something in this queue, one of receives or of sends.
func (q *queue) progress(receives bool) bool {
	if q.path == nil || q.n.regions.has(unusualPump) {
		return q.n.progress()
	}
	return q.path.Poll(receives, 1)
}

// arm asks for an interrupt when more completes than has been taken.
func (q *queue) arm(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.closedAs
	}
	if q.refuses {
		return nil
	}
	return q.armBell.arm(ctx, q.taken)
}

// queued counts what is posted and has not been taken back.
func (q *queue) queued() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0
	}
	return int(q.next - q.taken)
}

// first returns the place of the oldest posted entry that f wants, and false if there is none. A
// place is an index modulo the size. mu is held.
func (q *queue) first(f func(place uint32) bool) (uint32, bool) {
	for i := q.taken; int32(q.next-i) > 0 && !q.closed; i++ {
		if f(i & q.mask) {
			return i & q.mask, true
		}
	}
	return 0, false
}

// refuse ends posting and the use of the doorbells, or allows both again.
func (q *queue) refuse(yes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuses = yes
}

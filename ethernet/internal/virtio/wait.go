package virtio

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

func (q *queue) Ready() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.Live && q.receiving.Pending()
}

// Sleep implements port.Ring. An interrupt may come at any time, or never. Flags of the eventfd do
// not matter, as a back end shares them.
func (q *queue) Sleep(context.Context) (bool, error) {
	if q.receiving.interrupt < 0 {
		return false, nil
	}
	if q.listen(true) {
		return true, nil
	}
	q.waiting.Lock()
	defer q.waiting.Unlock()
	if q.eventfd < 0 {
		return true, nil
	}
	fds := []unix.PollFd{{Fd: int32(q.eventfd), Events: unix.POLLIN}}
	// A signal to the process ends it early, which does no harm.
	if n, _ := unix.Poll(fds, int(ethernet.WaitLimit/time.Millisecond)); n > 0 {
		passedfd.DrainEventfd(q.eventfd)
		q.Counters.Interrupts.Add(1)
	}
	q.listen(false)
	return true, nil
}

// listen asks for interrupts, or for none, and reports whether frames have arrived.
func (q *queue) listen(on bool) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.Live && q.receiving.Interrupts(on)
}

package netmem

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
)

// Mapping is memory whose pages come from elsewhere. Its bytes are read and written like any
// others, by any number of threads.
//
// A mapping can end by itself: the pager dies, or its source does not answer. Done is closed
// then and Err says why. Nothing is read wrongly: from that moment each access, also one that
// waits for its page, is a fault (SIGBUS), which ends a Go program unless it happens in Do. What
// was written since the last Sync may be lost.
type Mapping struct {
	bytes  []byte
	page   int // of the source
	memory pager.Memory
	pager  *mapProcess

	watchers sync.WaitGroup
	done     chan struct{}
	stop     chan struct{} // closed by Close
	closing  sync.Once

	mu       sync.Mutex
	err      error
	last     uint64 // of the requests to the pager
	requests map[uint64]chan pager.Message
}

// Bytes is the memory, until Close. It must not be touched after that. A process that is
// forked does not have it. Where the kernel reports only faults of user mode (see
// UserModeOnly) system calls such as read(2) into missing pages fail with EFAULT.
func (m *Mapping) Bytes() []byte { return m.bytes }

// PageSize returns the unit of fetching and writing back, in bytes.
func (m *Mapping) PageSize() int { return m.page }

// UserModeOnly says that faults of the kernel are not reported, because this process has not
// the right: neither root, nor vm.unprivileged_userfaultfd, nor access to /dev/userfaultfd.
func (m *Mapping) UserModeOnly() bool { return m.memory.Object.UserModeOnly }

// Done is closed when the mapping has ended, by itself or by Close.
func (m *Mapping) Done() <-chan struct{} { return m.done }

// Err is nil before Done, and then an *Error that says why the mapping has ended:
// ErrPagerDied, ErrPagerHung, ErrPagerDeadline, what the source has said, or net.ErrClosed.
func (m *Mapping) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return asError("use mapped memory", m.err)
}

// Do calls f, which touches the memory, and returns Err instead of letting the program end if
// the mapping has ended. What f has done by then, it has done; its deferred calls run.
// Goroutines that f starts are not covered. A fault elsewhere, in memory of other kinds, is
// an error too.
func (m *Mapping) Do(f func()) error {
	select {
	case <-m.done:
		return m.Err()
	default:
	}
	err := buserror.Catch(f)
	var fault *buserror.Error
	if !errors.As(err, &fault) || fault.Address-m.memory.Base >= m.memory.Size {
		return err
	}
	// The guard may have ended the memory, and this process not have heard of it.
	select {
	case <-m.done:
		return m.Err()
	case <-time.After(processTimeout):
		return asError("touch mapped memory", err)
	}
}

// Sync writes back what was written to the memory before, and returns when the source has it.
// It fails with ctx's cause, or with Err.
func (m *Mapping) Sync(ctx context.Context) error {
	_, err := m.request(ctx, pager.Message{Kind: pager.KindSync})
	return asError("sync", err)
}

// Stats are counters of the pager.
func (m *Mapping) Stats(ctx context.Context) (MapStats, error) {
	answer, err := m.request(ctx, pager.Message{Kind: pager.KindStats})
	if err == nil && answer.Stats == nil {
		err = pager.ErrLink
	}
	if err != nil {
		return MapStats{}, asError("count", err)
	}
	return *answer.Stats, nil
}

// request asks the pager for something, and returns its answer. It fails with why the mapping has ended, if it has.
func (m *Mapping) request(ctx context.Context, q pager.Message) (pager.Message, error) {
	answer := make(chan pager.Message, 1)
	m.mu.Lock()
	if m.err != nil {
		defer m.mu.Unlock()
		return pager.Message{}, m.err
	}
	m.last++
	q.ID = m.last
	m.requests[q.ID] = answer
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.requests, q.ID)
	}()
	if err := m.pager.link.Send(q, time.Now().Add(processTimeout)); err != nil {
		m.end(m.pager.lost(err))
	}
	select {
	case a := <-answer:
		if a.Failure != nil {
			return a, a.Failure
		}
		return a, nil
	case <-m.done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return pager.Message{}, m.err
	case <-ctx.Done():
		return pager.Message{}, context.Cause(ctx)
	}
}

// listen takes what the pager says, until it says no more.
func (m *Mapping) listen() {
	for {
		a, err := m.pager.link.Receive(time.Time{})
		switch {
		case err != nil:
			m.end(m.pager.lost(err))
			return
		case a.Kind == pager.KindFailed && a.Failure.Text == ErrPagerDied.Error(): // the guard says so
			m.end(m.pager.lost(io.EOF))
		case a.Kind == pager.KindFailed:
			m.end(a.Failure)
		case a.Kind == pager.KindDone:
			m.mu.Lock()
			if c := m.requests[a.ID]; c != nil {
				c <- a
				delete(m.requests, a.ID)
			}
			m.mu.Unlock()
		}
	}
}

// wakes are the pause between two wake-ups of waiting threads after the end, and their number: see
// pager.Memory.End. The guard does the same for longer.
const (
	wakes     = 10 * time.Millisecond
	wakeCount = 20
)

// end ends the mapping, once.
func (m *Mapping) end(reason error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.err = reason
	if err := m.memory.End(); err != nil {
		m.err = errors.Join(m.err, err)
	}
	close(m.done)
	m.watchers.Go(func() {
		for range wakeCount {
			select {
			case <-m.stop:
				return
			case <-time.After(wakes):
			}
			m.mu.Lock()
			_ = m.memory.End() // what can fail has been told
			m.mu.Unlock()
		}
	})
}

// Close writes back what was written, unmaps the memory and ends the processes. It fails, with
// what is lost, if the mapping has ended before. A second Close returns nil.
func (m *Mapping) Close() (err error) {
	m.closing.Do(func() {
		err = errors.Join(m.Sync(context.Background()), unix.Munmap(m.bytes))
		m.bytes = nil
		m.end(errMapClosed)
		m.release(processTimeout)
	})
	return err
}

// release frees all that the mapping has. The processes have so long to end.
func (m *Mapping) release(timeout time.Duration) {
	close(m.stop)
	if m.pager != nil {
		m.pager.close(timeout)
	}
	m.watchers.Wait()
	if m.bytes != nil {
		_ = unix.Munmap(m.bytes) // of a mapping that never began
	}
	_ = m.memory.Close() // nothing is written to it
}

// MapStats are counters of a pager.
type MapStats = pager.Stats

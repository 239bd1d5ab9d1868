package memif

import (
	"fmt"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// session is a connection from the moment that frames can flow.
type session struct {
	// guarded: the memory may vanish, so it is touched only within
	// buserror.Catch, and frames are copied.
	guarded   bool
	regions   []*region
	senders   []*ring.Sender
	receivers []*ring.Receiver
	// sendEvents and receiveEvents are those of senders and receivers.
	sendEvents, receiveEvents []*event

	// users are the port's goroutine, and those who send and receive from when
	// they first see the session until they see that it is over.
	users atomic.Int32
	// failure is why the rings cannot be used, found by who sends or receives.
	failure atomic.Pointer[error]
}

func newSession() *session {
	s := &session{}
	s.users.Store(1)
	return s
}

// acquire adds a user. It fails if there is none left.
func (s *session) acquire() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave takes a user off. The last one gives back the addresses of the memory.
func (s *session) leave() {
	if s.users.Add(-1) == 0 {
		for _, r := range s.regions {
			r.release()
		}
	}
}

// end closes what the session has open and takes the shared memory away. Who
// still uses it finds private memory in its place. It is called once, by the
// port's goroutine.
func (s *session) end() {
	for _, e := range s.sendEvents {
		e.close()
	}
	for _, e := range s.receiveEvents {
		e.close()
	}
	for _, r := range s.regions {
		r.retire()
	}
	s.leave()
}

// careful runs f, which touches memory that may have vanished.
func (s *session) careful(f func()) error {
	if !s.guarded {
		f()
		return nil
	}
	if err := buserror.Catch(f); err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return nil
}

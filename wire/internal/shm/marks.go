package shm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// MaxMarks is the number of peers that can mark themselves: a cache line has a bit for each.
const MaxMarks = 64 * line.LineSize / 8

// marksSize is the size of the file of marks in bytes, a page.
const marksSize = datasheet.PageSize

// Marks is memory in which the peers of several ports of a process say that they have sent a frame.
// The process need not look at the other ports. All peers can write to it: a mark says nothing for
// sure, and a mark that is missing says nothing either.
type Marks struct {
	fd     int
	memory *mapping
	words  []uint64 // of memory

	mu   sync.Mutex
	used [MaxMarks]bool
}

// NewMarks makes marks. It fails with ErrMemory, or an error of the system.
func NewMarks() (*Marks, error) {
	fd, memory, err := create(marksSize, memfile.Final)
	if err != nil {
		return nil, err
	}
	return &Marks{fd: fd, memory: memory, words: line.WordsAt(memory.mem[:MaxMarks/8])}, nil
}

// Close ends the giving of marks. The memory stays as long as a data path may look at it.
func (m *Marks) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

// Draw returns a number for a port, which is free again after Free. ok is false if none is left.
func (m *Marks) Draw() (number int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number = slices.Index(m.used[:], false); number < 0 {
		return 0, false
	}
	m.used[number] = true
	return number, true
}

// Free gives a number back.
func (m *Marks) Free(number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[number] = false
}

// Take takes the marks of the ports with numbers from 64*i on, a bit each. It is the data path's.
func (m *Marks) Take(i int) uint64 {
	if w := &m.words[i]; atomic.LoadUint64(w) != 0 {
		return atomic.SwapUint64(w, 0)
	}
	return 0
}

// peerMark is the place where this end marks itself at its peer.
type peerMark struct {
	memory *mapping
	word   *uint64
	bit    uint64
}

// offerMarks gives the peer of s the marks.
func (p *Port) offerMarks(s *session) error {
	m := p.options.Marks
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fd < 0 {
		return nil
	}
	s.marked.Store(true)
	return s.conn.send(message{kind: kindMarks, a: marksSize, b: uint64(p.options.Mark)}, m.fd)
}

// takeMarks maps the peer's marks.
func (s *session) takeMarks(m message, fd int) error {
	switch {
	case s.mark.Load() != nil:
		return broken("kind of a message", uint64(m.kind), "one message of marks")
	case m.a != marksSize:
		return broken("size of marks", m.a, fmt.Sprint(marksSize))
	case m.b >= MaxMarks:
		return broken("number of a mark", m.b, fmt.Sprintf("less than %d", MaxMarks))
	}
	memory, err := mapWhole(fd, marksSize, unix.PROT_READ|unix.PROT_WRITE, "marks")
	if memory != nil { // else the peer finds frames without marks, later
		s.mark.Store(&peerMark{memory, &line.WordsAt(memory.mem[:MaxMarks/8])[m.b/64], 1 << (m.b % 64)})
	}
	return err
}

// markSelf says in the peer's marks that there is a frame.
func (s *session) markSelf() {
	if m := s.mark.Load(); m != nil {
		atomic.OrUint64(m.word, m.bit)
	}
}

// unmap gives back the memory of a session that the data path uses no more.
func (s *session) unmap() {
	s.memory.unmap()
	if m := s.mark.Swap(nil); m != nil {
		m.memory.unmap()
	}
}

// Idle asks the peer to mark itself with its next frame, so that no call of Receive is needed before.
// It returns false if the peer cannot, or if a frame is there. Else Taken is up to date. A mark may
// get lost, and Taken moves without one: call it again now and then. It is the data path's.
func (p *Port) Idle() bool {
	s := p.session
	return s != nil && p.state.Load() == 0 && s.marked.Load() && p.Line.Idle()
}

// Left reports whether there are frames to receive of a peer that has gone. It is the data path's.
func (p *Port) Left() bool {
	state := p.state.Load()
	return state&stateLost != 0 && state&(stateFresh|stateClosed) == 0 && p.session != nil && !p.session.broken() && p.Rx.Left()
}

// Retire ends the session of a port that Adopt has made. What the peer has sent can still be received, until Close.
func (p *Port) Retire() { p.cancel() }

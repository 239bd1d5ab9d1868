package netmem

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// fileFrames is the number of parts of a file that can be under way to clients at a time.
const fileFrames = 256

// fileStorage lends a file. It is read for each fetch and not mapped: a file that
// another program makes shorter would end the process.
type fileStorage struct {
	fabric fabric
	memory *via.Memory
	page   int

	mu   sync.RWMutex // held for reading while a page is read, and for writing while one is written
	file *pageFile

	frames sync.Mutex
	free   []uint32
}

func newFileStorage(ctx context.Context, from fabric, file *os.File, page int, pages uint64, readOnly bool) (*fileStorage, error) {
	f, err := openPages(ctx, file, page, pages, readOnly, alone)
	if err != nil {
		return nil, err
	}
	m, err := from.alloc(ctx, fileFrames*page, via.MemoryAttributes{})
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	s := &fileStorage{fabric: from, file: f, memory: m, page: page}
	for f := range uint32(fileFrames) {
		s.free = append(s.free, f)
	}
	return s, nil
}

// alone says whether no other server can have a copy of a page.
func alone(kept []byte) bool {
	m, err := parseMembership(kept)
	return err == nil && (m.Pool == 0 || m.Copies() == 1)
}

func (s *fileStorage) fetch(q *protocol.Request, r *protocol.Reply) *loan {
	s.frames.Lock()
	if len(s.free) == 0 {
		s.frames.Unlock()
		r.Result = protocol.Busy
		return nil
	}
	f := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.frames.Unlock()

	frame := ring.Frame{Memory: s.memory, Offset: int(f) * s.page, Length: int(q.Length)}
	s.mu.RLock()
	err := s.file.read(s.memory.Bytes()[frame.Offset:][:frame.Length], int64(q.Page)*int64(s.page)+int64(q.Offset))
	now := s.file.of(q.Page)
	r.Version, r.Client, r.Flags = now.Version, now.Client, now.Flags
	s.mu.RUnlock()
	if r.Flags&protocol.Damaged != 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		s.returned(f)
		r.Result = protocol.StorageError
		return nil
	}
	return lend(s, f, frame)
}

func (s *fileStorage) returned(f uint32) {
	s.frames.Lock()
	s.free = append(s.free, f)
	s.frames.Unlock()
}

func (s *fileStorage) write(q *protocol.Request, r *protocol.Reply, from []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, result := s.file.next(q)
	if result == protocol.OK && s.file.put(q.Page, next, from) != nil {
		result = protocol.StorageError
	}
	r.Result = result
	now := s.file.of(q.Page)
	r.Version, r.Client, r.Flags = now.Version, now.Client, now.Flags
}

func (s *fileStorage) stampsOf(first uint64, into []protocol.Stamp) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.file.run(first, into)
}

func (s *fileStorage) load() (membership, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := parseMembership(s.file.state.record)
	if err == nil {
		s.file.joining = m.Pool != 0 && m.State(m.self) == protocol.Joining
	}
	return m, err
}

func (s *fileStorage) save(m membership) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := stamps{joins: s.file.joins, joining: s.file.joining}
	after.become(&m)
	to := s.file.state
	to.record, to.base, to.joins = m.append(nil), after.base, after.joins
	if err := s.file.save(to, true); err != nil {
		return err
	}
	s.file.base, s.file.joins, s.file.joining = after.base, after.joins, after.joining
	return nil
}

// window is none: pages are in a file.
func (s *fileStorage) window() *protocol.Window { return nil }
func (s *fileStorage) withhold(bool)            {}

// stored is the size of what is lent.
func (s *fileStorage) stored() uint64 { return s.file.count * uint64(s.page) }

func (s *fileStorage) close() error {
	return errors.Join(s.fabric.free(s.memory), s.file.close())
}

package netmem

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/netmem/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// fileFrames is how many parts of a file can be under way to clients at a time.
const fileFrames = 256

// fileStorage lends a file. It is read for each fetch and not mapped: a file that
// somebody makes shorter would end the process.
type fileStorage struct {
	file   *os.File
	memory *via.Memory
	page   int

	mu sync.RWMutex // held for reading while a page is read, and for writing while one is written
	stamps
	damaged map[uint64]bool // pages of which a part may have been written

	frames sync.Mutex
	free   []uint32
}

func newFileStorage(ctx context.Context, nic *via.NIC, file *os.File, page int, pages uint64) (*fileStorage, error) {
	m, err := nic.Alloc(ctx, fileFrames*page, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	s := &fileStorage{file: file, memory: m, page: page, damaged: map[uint64]bool{}}
	s.pages = make([]stamp, pages)
	for f := range uint32(fileFrames) {
		s.free = append(s.free, f)
	}
	return s, nil
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
	err := s.read(q.Page, int64(q.Offset), s.memory.Bytes()[frame.Offset:][:frame.Length])
	if s.damaged[q.Page] {
		err = io.ErrUnexpectedEOF
	}
	s.of(q.Page, r)
	s.mu.RUnlock()
	if err != nil {
		s.returned(f)
		r.Result = protocol.StorageError
		return nil
	}
	return lend(s, f, frame)
}

// read reads a part of a page. What is behind the file's end is zeros.
func (s *fileStorage) read(page uint64, offset int64, into []byte) error {
	n, err := s.file.ReadAt(into, int64(page)*int64(s.page)+offset)
	if errors.Is(err, io.EOF) {
		clear(into[n:])
		return nil
	}
	return err
}

func (s *fileStorage) returned(f uint32) {
	s.frames.Lock()
	s.free = append(s.free, f)
	s.frames.Unlock()
}

func (s *fileStorage) write(q *protocol.Request, r *protocol.Reply, from []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, result := s.next(q)
	if r.Result = result; result == protocol.OK {
		if _, err := s.file.WriteAt(from, int64(q.Page)*int64(s.page)); err != nil {
			s.damaged[q.Page] = true // until it is written whole
			r.Result = protocol.StorageError
		} else {
			delete(s.damaged, q.Page)
			s.pages[q.Page] = next
		}
	}
	s.of(q.Page, r)
}

func (s *fileStorage) stampsOf(first uint64, into []protocol.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run(first, into)
}

func (s *fileStorage) load() (membership, error) { return membership{}, nil }

func (s *fileStorage) save(m membership) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.become(m.Base, m.state())
	return nil
}

// stored is the size of the file.
func (s *fileStorage) stored() uint64 { return uint64(len(s.pages)) * uint64(s.page) }

func (s *fileStorage) close() error { return s.memory.Deregister(context.Background()) }

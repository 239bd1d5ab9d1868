package shm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/vfio"
)

// maxExports bounds what a side exports at a time: the messages about all of
// them fit the socket's buffer, and the peer's table is quickly searched.
const maxExports = 64

// export is memory of this process that the peer may read. Guarded by Port.mu,
// but for what does not change.
type export struct {
	id     uint32
	fd     int // read-only, ours
	offset int64
	mem    []byte
	seen   bool // the peer of the live session has mapped it
	// writable is the file opened for writing, ours, for peers that may write; -1: none may.
	writable int
}

// lent is an export that the peer has mapped, as the data path sees it.
type lent struct {
	id  uint32
	mem []byte
}

// loan has the data path's state for lending and borrowing.
type loan struct {
	lent   atomic.Pointer[[]lent]     // ours
	theirs atomic.Pointer[[]borrowed] // the peer's
	// inUse is set while the data path may be reading what is theirs. A caller
	// who waits for the end of that sets waiting, and is told through idle.
	inUse   uint32
	waiting atomic.Bool
	idle    chan struct{}
	stuck   []*mapping // that could not be unmapped yet; the run goroutine's
}

// Shares reports whether this side is willing to share memory.
func (p *Port) Shares() bool { return p.options.Share }

// SharesWriting reports whether it is willing to let the peer write, too.
func (p *Port) SharesWriting() bool { return p.options.ShareWrite }

// Export makes memory of this process readable by the peer, and by each peer to
// come, until Unexport. mem is a mapping of the file fd that starts at offset, a
// multiple of the page size (of the file's: huge pages are larger). The file must
// be sealed against shrinking (F_SEAL_SHRINK), and be one that can be sealed
// further. The caller keeps fd and may close it. The peer can read the whole file,
// and no other user can open it any more (mode 0700 at most). From here on the file
// is sealed for good against writing other than through mappings that are there,
// mem above all: no process maps it for writing any more, the caller included.
//
// id is not zero. The peer maps the memory some time later: Lend says when.
// Errors are ErrNotShared, ErrClosed, or wrap ErrMemory. At most 64 regions can
// be exported at a time. Any goroutine may call it.
func (p *Port) Export(fd int, offset int64, mem []byte) (id uint32, err error) {
	return p.export(fd, offset, mem, false)
}

// ExportWritable is Export for memory that the peer may write to, if both have
// Options.ShareWrite: the file is not sealed against it, and must not be already. It fails
// with ErrNotShared without that option.
func (p *Port) ExportWritable(fd int, offset int64, mem []byte) (id uint32, err error) {
	return p.export(fd, offset, mem, true)
}

func (p *Port) export(fd int, offset int64, mem []byte, write bool) (id uint32, err error) {
	if !p.options.Share || write && !p.options.ShareWrite {
		return 0, ErrNotShared
	}
	if len(mem) == 0 || offset < 0 || offset%int64(os.Getpagesize()) != 0 {
		return 0, fmt.Errorf("%w: %d bytes at offset %d of the file", ErrMemory, len(mem), offset)
	}
	if _, err := checkFile(fd, unix.F_SEAL_SHRINK, uint64(offset)+uint64(len(mem))); err != nil {
		return 0, err
	}
	if write {
		err = sealAsIs(fd)
	} else {
		err = sealWrites(fd, offset, len(mem))
	}
	if err != nil {
		return 0, err
	}
	only, err := readOnly(fd)
	if err != nil {
		return 0, err
	}
	e := &export{fd: only, offset: offset, mem: mem, writable: -1}
	if write {
		if e.writable, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			unix.Close(only)
			return 0, fmt.Errorf("%w: %w", ErrMemory, os.NewSyscallError("fcntl", err))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		err = vfio.ErrClosed
	case len(p.offers) >= maxExports:
		err = fmt.Errorf("%w: %d regions are exported, and not more can be", ErrMemory, maxExports)
	}
	if err != nil {
		e.close()
		return 0, err
	}
	for p.lastID++; p.lastID == 0 || p.offers[p.lastID] != nil; {
		p.lastID++
	}
	e.id = p.lastID
	p.offers[e.id] = e
	if s := p.live; s != nil && s.offered && s.shared {
		if err := s.offer(e); err != nil {
			s.end(err)
		}
	}
	return e.id, nil
}

// offer gives the peer of s what is exported.
func (s *session) offer(e *export) error {
	m, fd := message{kind: kindExport, id: e.id, a: uint64(e.offset), b: uint64(len(e.mem))}, e.fd
	if s.writes && e.writable >= 0 {
		m.c, fd = exportWritable, e.writable
	}
	return s.conn.send(m, fd)
}

func (e *export) close() {
	unix.Close(e.fd)
	if e.writable >= 0 {
		unix.Close(e.writable)
	}
}

// sealAsIs keeps other processes from sealing a file, which is not sealed against writing.
func sealAsIs(fd int) error {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil && got&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return fmt.Errorf("%w: it has been sealed against writing", ErrMemory)
	}
	if err := memfile.Seal(fd, unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("%w: it cannot be sealed: %w", ErrMemory, err)
	}
	return nil
}

// sealWrites keeps every process from writing to a file but through mappings that are
// there (F_SEAL_FUTURE_WRITE, Linux 5.1). A descriptor that is open for reading
// only would not: who has it can open the file anew, in /proc/self/fd.
func sealWrites(fd int, offset int64, size int) error {
	if err := memfile.Seal(fd, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("%w: it cannot be sealed against writing: %w", ErrMemory, err)
	}
	// Before Linux 5.13 files of huge pages had the seal, and could be mapped.
	b, err := unix.Mmap(fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		return errors.Join(fmt.Errorf("%w: its seal against writing is of no effect", ErrMemory), unix.Munmap(b))
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: %w", ErrMemory, os.NewSyscallError("mmap", err))
	}
	return nil
}

// readOnly opens a file once more so that what is got through it cannot be
// written, and takes it away from other users, who could open it anew.
func readOnly(fd int) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, fmt.Errorf("%w: %w", ErrMemory, os.NewSyscallError("fstat", err))
	}
	const others = 0o077
	if st.Mode&others != 0 {
		// It may be sealed too, which is no reason to fail: Share is for
		// processes that trust each other.
		_ = unix.Fchmod(fd, st.Mode&^(others|unix.S_IFMT))
	}
	only, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%w: it cannot be opened for reading: %w", ErrMemory, os.NewSyscallError("open", err))
	}
	return only, nil
}

// Unexport ends what Export began. It returns when the peer has confirmed that
// it has unmapped the memory, or is gone. If it does neither for some seconds it
// is disconnected, and the error wraps ErrMemory: it may be reading still. Like
// that of a peer that is gone, what it reads is void. It fails with ErrNotExported
// if id is not exported. Any goroutine may call it.
func (p *Port) Unexport(id uint32) error {
	p.mu.Lock()
	e, s := p.offers[id], p.live
	if e == nil {
		p.mu.Unlock()
		return fmt.Errorf("%w: %d", ErrNotExported, id)
	}
	delete(p.offers, id)
	p.listLent()
	p.mu.Unlock()
	defer e.close()
	if s == nil || !s.shared {
		return nil
	}
	err := s.ask(message{kind: kindUnexport, id: id}, answerTime)
	select {
	case <-s.done:
		s.void()
		return nil // it is gone
	default:
	}
	if err != nil {
		err = fmt.Errorf("%w: the peer has not given memory back: %w", ErrMemory, err)
		s.end(err)
		s.void()
	}
	return err
}

// Lend says in which exported memory the peer finds b. ok is false if b is not all in one, or the peer
// has not mapped that. It takes some nanoseconds; the data path may call it.
func (p *Port) Lend(b []byte) (id uint32, offset uint64, ok bool) {
	if t := *p.loan.lent.Load(); p.LinkUp() {
		for i := range t {
			if at, in := within(b, t[i].mem); in {
				p.counts.lent.Add(1)
				return t[i].id, at, true
			}
		}
	}
	return 0, 0, false
}

// Lent is the data path's.
func (p *Port) Lent(owner uint32) {
	if p.session != nil {
		p.Tx.Lend(owner)
	}
}

// Revoke is the data path's.
func (p *Port) Revoke(owner uint32) {
	switch {
	case p.session == nil:
	case owner == 0:
		p.Tx.Revoke()
	default:
		p.Tx.RevokeOf(owner)
	}
}

// listLent makes the table that Lend looks at. p.mu is held.
func (p *Port) listLent() {
	var t []lent
	for _, e := range p.offers {
		if e.seen {
			t = append(t, lent{e.id, e.mem})
		}
	}
	p.loan.lent.Store(&t)
}

// offerAll offers a new peer what is exported.
func (p *Port) offerAll(s *session) error {
	if !s.shared {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.offered = true
	for _, e := range p.offers {
		if err := s.offer(e); err != nil {
			return err
		}
	}
	return nil
}

// accepted notes that the peer has mapped what was exported, or could not.
func (p *Port) accepted(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.offers[m.id]
	switch {
	case e == nil: // taken back meanwhile
	case m.a != 0:
		p.lastErr = fmt.Errorf("%w: the peer cannot map region %d: %w", ErrMemory, m.id, unix.Errno(m.a))
	default:
		e.seen = true
		p.listLent()
	}
}

// closeOffers gives up what is exported. Nothing else runs any more.
func (p *Port) closeOffers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.offers {
		e.close()
		delete(p.offers, id)
	}
	p.listLent()
	if p.tableFD >= 0 {
		unix.Close(p.tableFD)
		p.tableFD = -1
	}
}

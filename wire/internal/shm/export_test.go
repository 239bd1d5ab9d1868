package shm_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestLentMemoryIsForReading: a peer that opens the file anew, through /proc, gets
// no further, and the lender writes on.
func TestLentMemoryIsForReading(t *testing.T) {
	for name, huge := range map[string]vfio.HugePolicy{"pages": vfio.HugeNever, "huge pages": vfio.HugeRequire} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			p, r := withRaw(t, shm.Options{Share: true}, flagShare)
			m, err := vfio.AllocMemory(page, vfio.MemoryOptions{Huge: huge})
			if err != nil {
				t.Skipf("no such memory: %v", err)
			}
			defer m.Close()
			m.Bytes()[0] = 7
			must.Get(p.Export(m.FD(), 0, m.Bytes()))(t)
			_, _, _, _, got := r.readUntil(msgExport)
			defer unix.Close(got)
			again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", got), unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Skipf("it cannot be opened anew: %v", err) // by others than root, say
			}
			defer unix.Close(again)
			size := int(m.Size())
			view := must.Get(unix.Mmap(again, 0, size, unix.PROT_READ, unix.MAP_SHARED))(t)
			defer unix.Munmap(view)
			for what, err := range map[string]error{
				"map for writing":  mapped(again, size),
				"make it writable": unix.Mprotect(view, unix.PROT_READ|unix.PROT_WRITE),
				"write":            written(again),
				"truncate":         unix.Ftruncate(again, 0),
				"extend":           unix.Ftruncate(again, 2*int64(size)),
				"punch a hole":     unix.Fallocate(again, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(size)),
				"remove pages":     unix.Madvise(view, unix.MADV_REMOVE),
				"add seals":        sealed(again),
			} {
				should.Be(t, err == nil, false, "the peer can %s", what)
			}
			m.Bytes()[1] = 8
			should.Hold(t, view[0] == 7 && view[1] == 8, "the memory reads %v", view[:2])
		})
	}
}

func mapped(fd, size int) error {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		_ = unix.Munmap(b)
	}
	return err
}

func written(fd int) error {
	_, err := unix.Pwrite(fd, []byte{1}, 0)
	return err
}

func sealed(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_EXEC)
	return err
}

// TestBorrowedMemoryCannotBeWritten: what the peer gets is for reading, however
// it maps it.
func TestBorrowedMemoryCannotBeWritten(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{Share: true}, flagShare)
	fd, mem := lendable(t, page)
	must.Get(p.Export(fd, 0, mem))(t)
	id, offset, size, _, got := r.readUntil(msgExport)
	must.Hold(t, id != 0 && offset == 0 && size == page && got >= 0, "region %d, %d bytes at %d", id, size, offset)
	defer unix.Close(got)
	if m, err := unix.Mmap(got, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EACCES) {
		t.Errorf("mapped for writing: %v", err)
		_ = unix.Munmap(m)
	}
	var st unix.Stat_t
	if err := unix.Fstat(got, &st); err != nil || st.Mode&0o077 != 0 {
		t.Errorf("mode %o, %v", st.Mode, err)
	}
	should.Be(t, lends(p, mem), false, "lent before the peer has mapped it")
	r.send(msgExported, id, uint64(unix.ENOMEM), 0, 0)
	waittest.Until(t, "the peer's trouble is known", func() bool { return errors.Is(p.Err(), unix.ENOMEM) })
	should.Be(t, lends(p, mem), false, "lent though the peer cannot map it")
	r.send(msgExported, id, 0, 0, 0)
	lentAt(t, p, mem)
}

func TestCannotExport(t *testing.T) {
	checkLeaks(t)
	a, _ := pair(t, shm.Options{Share: true})
	fd, mem := lendable(t, 2*page)
	loose := sealedFile(t, 2*page, unix.F_SEAL_GROW)
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	for name, try := range map[string]func() (uint32, error){
		"nothing":              func() (uint32, error) { return a.Export(fd, 0, nil) },
		"misaligned":           func() (uint32, error) { return a.Export(fd, 100, mem[100:]) },
		"negative offset":      func() (uint32, error) { return a.Export(fd, -page, mem) },
		"beyond the file":      func() (uint32, error) { return a.Export(fd, page, mem) },
		"a file that shrinks":  func() (uint32, error) { return a.Export(loose, 0, mem) },
		"no descriptor":        func() (uint32, error) { return a.Export(-1, 0, mem) },
		"not a file in memory": func() (uint32, error) { return a.Export(int(null.Fd()), 0, mem) },
	} {
		if id, err := try(); id != 0 || !errors.Is(err, shm.ErrMemory) {
			t.Errorf("%s: region %d, error %v", name, id, err)
		}
	}
	var ids []uint32
	for {
		id, err := a.Export(fd, 0, mem)
		if err != nil {
			should.Hold(t, errors.Is(err, shm.ErrMemory) && len(ids) == 64, "export %d: %v", len(ids), err)
			break
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		should.OK(t, a.Unexport(id))
	}
	closePort(t, a)
	should.Refuse(a.Export(fd, 0, mem))(t, net.ErrClosed, "after Close")
}

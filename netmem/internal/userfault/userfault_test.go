package userfault_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const page = 4096

// object makes an object, or skips the test and says why.
func object(t *testing.T) *userfault.Object {
	t.Helper()
	o, err := userfault.Open()
	if errors.Is(err, userfault.ErrNoKernel) || errors.Is(err, userfault.ErrNoRights) || errors.Is(err, userfault.ErrTooOld) {
		t.Skip(err)
	}
	must.OK(t, err)
	t.Cleanup(func() { o.Close() })
	return o
}

// memory maps a file in memory of so many pages.
func memory(t *testing.T, pages int64) (fd int, mapped []byte) {
	t.Helper()
	fd = must.Get(unix.MemfdCreate("trapeze-test", unix.MFD_CLOEXEC))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.OK(t, unix.Ftruncate(fd, pages*page))
	mapped = must.Get(unix.Mmap(fd, 0, int(pages*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { _ = unix.Munmap(mapped) })
	return fd, mapped
}

// TestCopy: pages that are put in place are there, in the memory and in the file, and only
// where none were. Nobody here touches a missing page: this process could not answer.
func TestCopy(t *testing.T) {
	leaktest.Check(t)
	o := object(t)
	fd, m := memory(t, 4)
	must.OK(t, o.Register(m))
	base := userfault.Address(m)
	want := bytes.Repeat([]byte{0xa5}, 2*page)
	must.OK(t, o.Copy(base+page, want, false))
	got := make([]byte, 2*page)
	must.Give(unix.Pread(fd, got, page))(t, len(got))
	if !bytes.Equal(got, want) || !bytes.Equal(m[page:3*page], want) {
		t.Error("the pages are not what was copied")
	}
	should.Fail(t, o.Copy(base+page, want[:page], false), userfault.ErrPresent, "where a page")
	should.OK(t, o.Protect(base+page, page))
	should.OK(t, o.Unprotect(base+page, page))
	m[page] = 1
	must.OK(t, unix.Ftruncate(fd, 0))
	should.Fail(t, o.Copy(base, want[:page], false), userfault.ErrGone, "into a file that was cut")
}

// TestUnmapped: memory that is unmapped is gone.
func TestUnmapped(t *testing.T) {
	leaktest.Check(t)
	o := object(t)
	_, m := memory(t, 1)
	must.OK(t, o.Register(m))
	base := userfault.Address(m)
	must.OK(t, unix.Munmap(m))
	var e *via.Error
	if err := o.Copy(base, make([]byte, page), true); !errors.Is(err, userfault.ErrGone) || !errors.As(err, &e) || e.Op == "" {
		t.Errorf("%v", err)
	}
	should.Fail(t, o.Protect(base, page), userfault.ErrGone, "protecting")
}

// TestTake: only a userfaultfd is taken for one, and reading it ends with Close.
func TestTake(t *testing.T) {
	leaktest.Check(t)
	o := object(t)
	fd := must.Get(unix.FcntlInt(o.File().Fd(), unix.F_DUPFD_CLOEXEC, 0))(t)
	taken := must.Get(userfault.Take(fd))(t)
	done := make(chan error)
	go func() {
		_, err := taken.Read(make([]userfault.Event, 1))
		done <- err
	}()
	should.OK(t, taken.Close())
	should.Fail(t, <-done, os.ErrClosed, "reading")
	other := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	defer unix.Close(other)
	should.Refuse(userfault.Take(other))(t, userfault.ErrNotObject, "an eventfd")
}

package userfault_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// memory maps a file in memory of so many pages.
func memory(t *testing.T, pages int64) (fd int, mapped []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("trapeze-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, pages*page); err != nil {
		t.Fatal(err)
	}
	mapped, err = unix.Mmap(fd, 0, int(pages*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mapped) })
	return fd, mapped
}

// TestCopy: pages that are put in place are there, in the memory and in the file, and only
// where none were. Nobody here touches a missing page: this process could not answer.
func TestCopy(t *testing.T) {
	leaktest.Check(t)
	o := object(t)
	fd, m := memory(t, 4)
	if err := o.Register(m); err != nil {
		t.Fatal(err)
	}
	base := userfault.Address(m)
	want := bytes.Repeat([]byte{0xa5}, 2*page)
	if err := o.Copy(base+page, want, false); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*page)
	if n, err := unix.Pread(fd, got, page); err != nil || n != len(got) {
		t.Fatal(n, err)
	}
	if !bytes.Equal(got, want) || !bytes.Equal(m[page:3*page], want) {
		t.Error("the pages are not what was copied")
	}
	if err := o.Copy(base+page, want[:page], false); !errors.Is(err, userfault.ErrPresent) {
		t.Errorf("where a page is: %v", err)
	}
	if err := o.Protect(base+page, page); err != nil {
		t.Error(err)
	}
	if err := o.Unprotect(base+page, page); err != nil {
		t.Error(err)
	}
	m[page] = 1
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	if err := o.Copy(base, want[:page], false); !errors.Is(err, userfault.ErrGone) {
		t.Errorf("into a file that was cut: %v", err)
	}
}

// TestUnmapped: memory that is unmapped is gone.
func TestUnmapped(t *testing.T) {
	leaktest.Check(t)
	o := object(t)
	_, m := memory(t, 1)
	if err := o.Register(m); err != nil {
		t.Fatal(err)
	}
	base := userfault.Address(m)
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	var e *via.Error
	if err := o.Copy(base, make([]byte, page), true); !errors.Is(err, userfault.ErrGone) || !errors.As(err, &e) || e.Op == "" {
		t.Errorf("%v", err)
	}
	if err := o.Protect(base, page); !errors.Is(err, userfault.ErrGone) {
		t.Errorf("protecting: %v", err)
	}
}

// TestTake: only a userfaultfd is taken for one, and reading it ends with Close.
func TestTake(t *testing.T) {
	leaktest.Check(t)
	o := object(t)
	fd, err := unix.FcntlInt(uintptr(o.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := userfault.Take(fd)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := taken.Read(make([]userfault.Event, 1))
		done <- err
	}()
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading: %v", err)
	}
	other, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if _, err := userfault.Take(other); !errors.Is(err, userfault.ErrNotObject) {
		t.Errorf("an eventfd: %v", err)
	}
}

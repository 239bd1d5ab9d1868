package vfio_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestAllocMemory(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, size := range []uint64{1, page - 1, page, page + 1, 1<<20 + 1, 5 << 20} {
		for _, huge := range []vfio.HugePolicy{vfio.HugeAuto, vfio.HugeNever} {
			t.Run(fmt.Sprintf("%d/%d", size, huge), func(t *testing.T) {
				checkLeaks(t)
				m := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{Huge: huge}))(t)
				defer m.Close()
				b := m.Bytes()
				if m.Size() != uint64(len(b)) || m.Size() < size || m.Size()-size >= m.PageSize() || m.Size()%m.PageSize() != 0 {
					t.Errorf("asked for %d bytes: Size %d, PageSize %d, %d in Bytes", size, m.Size(), m.PageSize(), len(b))
				}
				should.Hold(t, m.Address() != 0 && m.Address()%m.PageSize() == 0, "Address %#x", m.Address())
				if huge == vfio.HugeNever && m.PageSize() != page {
					t.Errorf("pages of %d bytes", m.PageSize())
				}
				for i, v := range b {
					must.Be(t, v, 0, "byte %d", i)
				}
				b[0], b[len(b)-1] = 1, 2
			})
		}
	}
}

func TestMemoryIsShared(t *testing.T) {
	checkLeaks(t)
	m := must.Get(vfio.AllocMemory(3*4096, vfio.MemoryOptions{}))(t)
	defer m.Close()
	other := must.Get(unix.Mmap(m.FD(), 0, int(m.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(other)
	copy(m.Bytes()[4000:], "written here")
	copy(other[9000:], "written there")
	should.Same(t, m.Bytes(), other, "the two mappings differ")
	// Whoever else holds the file cannot take the pages away.
	for _, size := range []int64{0, 4096, 1 << 20} {
		should.Fail(t, unix.Ftruncate(m.FD(), size), unix.EPERM, "truncating to %d", size)
	}
}

func TestMemoryIsPresent(t *testing.T) {
	m := must.Get(vfio.AllocMemory(1<<20, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	defer m.Close()
	var st unix.Stat_t
	must.OK(t, unix.Fstat(m.FD(), &st))
	got := uint64(st.Blocks) * 512
	should.Hold(t, got >= m.Size(), "%d bytes of %d are allocated", got, m.Size())
}

func TestMemoryLocked(t *testing.T) {
	before := lockedBytes(t)
	m := must.Get(vfio.AllocMemory(64<<10, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	defer m.Close()
	want := before
	if m.Locked() {
		want += m.Size()
	}
	should.Be(t, lockedBytes(t), want, "Locked() is %v, %d bytes before", m.Locked(), before)
}

// lockedBytes reads VmLck (proc_pid_status(5)).
func lockedBytes(t *testing.T) uint64 {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/status"))(t)
	_, rest, _ := bytes.Cut(b, []byte("VmLck:"))
	var kib uint64
	must.Get(fmt.Sscan(string(rest), &kib))(t)
	return kib << 10
}

func TestAllocMemoryRefuses(t *testing.T) {
	checkLeaks(t)
	sizes := []uint64{0, 1 << 50, 1<<56 + 1, 1 << 63, math.MaxUint64 - 4096, math.MaxUint64}
	for _, size := range sizes {
		for _, huge := range []vfio.HugePolicy{vfio.HugeAuto, vfio.HugeNever, vfio.HugeRequire} {
			m, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: huge})
			var e *vfio.Error
			should.Hold(t, m == nil && errors.Is(err, vfio.ErrNoDMAMemory) && errors.As(err, &e) && e.Hint != "",
				"size %d, policy %d: %v, %v", size, huge, m, err)
			should.Be(t, errors.Is(err, vfio.ErrBadSize), size == 0, "size %d: %v", size, err)
		}
	}
}

// TestAllocMemoryHuge depends on what the machine has: huge pages are free and
// some are got, or there are none and the error says so.
func TestAllocMemoryHuge(t *testing.T) {
	checkLeaks(t)
	const size = 5 << 20
	m, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeRequire})
	if err != nil {
		var e *vfio.Error
		should.Hold(t, errors.Is(err, vfio.ErrNoDMAMemory) && errors.As(err, &e) && e.Hint != "", "error %v", err)
		free := freeHugePages(t)
		should.Hold(t, free < 8, "%d huge pages are free and got %v", free, err)
		auto, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeAuto})
		must.OK(t, err)
		defer auto.Close()
		return
	}
	defer m.Close()
	if m.PageSize() <= uint64(os.Getpagesize()) || m.Size()%m.PageSize() != 0 || m.Size() < size || m.Address()%m.PageSize() != 0 {
		t.Errorf("Size %d, PageSize %d, Address %#x", m.Size(), m.PageSize(), m.Address())
	}
	m.Bytes()[m.Size()-1] = 1
	// The same pages again, and zeroed.
	must.OK(t, m.Close())
	auto := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeAuto}))(t)
	defer auto.Close()
	if auto.PageSize() <= uint64(os.Getpagesize()) && freeHugePages(t) >= 8 {
		t.Errorf("pages of %d bytes though huge ones are free", auto.PageSize())
	}
	i := bytes.IndexByte(auto.Bytes(), 1)
	should.Hold(t, i < 0, "byte %d is left from an earlier use", i)
}

func freeHugePages(t *testing.T) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/meminfo"))(t)
	free := 0
	if _, rest, ok := bytes.Cut(b, []byte("HugePages_Free:")); ok {
		must.Get(fmt.Sscan(string(rest), &free))(t)
	}
	return free
}

func TestAllocMemoryWithoutDescriptors(t *testing.T) {
	checkLeaks(t)
	var old unix.Rlimit
	must.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	low := old
	low.Cur = 0
	must.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	m, err := vfio.AllocMemory(4096, vfio.MemoryOptions{})
	_, errEvent := vfio.NewEventfd()
	must.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	should.Hold(t, m == nil && errors.Is(err, vfio.ErrNoDMAMemory) && errors.Is(err, unix.EMFILE), "AllocMemory: %v, %v", m, err)
	should.Fail(t, errEvent, unix.EMFILE, "NewEventfd")
}

func TestMemoryClose(t *testing.T) {
	checkLeaks(t)
	m := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{}))(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			should.OK(t, m.Close())
		})
	}
	all.Wait()
	if m.Bytes() != nil || m.FD() != -1 || m.Address() != 0 || m.Size() != 4096 {
		t.Errorf("after Close: %d bytes, FD %d, Address %#x, Size %d", len(m.Bytes()), m.FD(), m.Address(), m.Size())
	}
	should.OK(t, m.Close())
}

package shm_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

const page = 4096

// borrowedMaps counts what this process has mapped for reading of files called
// "lent": the borrower's mappings.
func borrowedMaps(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.SplitSeq(string(b), "\n") {
		if strings.Contains(line, "/memfd:lent") && strings.Contains(line, " r--s ") {
			n++
		}
	}
	return n
}

// lendable makes memory that can be exported.
func lendable(t testing.TB, size int) (fd int, mem []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("lent", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return fd, mem
}

// lentAt waits until the peer has mapped what b lies in.
func lentAt(t testing.TB, p *shm.Port, b []byte) (id uint32, offset uint64) {
	t.Helper()
	waittest.Until(t, "the peer maps it", func() (ok bool) { id, offset, ok = p.Lend(b); return ok })
	return id, offset
}

// TestLend has one side read what the other has written, and no more than that.
func TestLend(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{Share: true})
	fd, mem := lendable(t, 8*page)
	mark(mem, 5)
	// A part of the file, from its third page on.
	part := mem[2*page : 7*page-100]
	id, err := a.Export(fd, 2*page, part)
	if err != nil || id == 0 {
		t.Fatal(id, err)
	}
	if at, offset := lentAt(t, a, part[300:400]); at != id || offset != 300 {
		t.Errorf("region %d at %d", at, offset)
	}
	for name, p := range map[string][]byte{"before": mem[:10], "over its start": mem[2*page-1 : 2*page+1],
		"over its end": mem[7*page-101 : 7*page], "elsewhere": make([]byte, 10)} {
		if _, _, ok := a.Lend(p); ok {
			t.Errorf("bytes %s can be lent", name)
		}
	}
	if _, _, ok := b.Lend(part[:10]); ok {
		t.Error("the peer lends what is ours")
	}
	size := uint64(len(part))
	for _, tt := range []struct{ offset, n uint64 }{{0, size}, {0, 0}, {size, 0}, {300, 100}, {size - 1, 1}} {
		if got := b.Borrow(id, tt.offset, tt.n); uint64(len(got)) != tt.n || !bytes.Equal(got, part[tt.offset:tt.offset+tt.n]) || got == nil {
			t.Errorf("%d bytes at %d: %d bytes", tt.n, tt.offset, len(got))
		}
	}
	for _, tt := range []struct {
		id        uint32
		offset, n uint64
	}{{id, size, 1}, {id, 0, size + 1}, {id, size + 1, 0}, {id, math.MaxUint64, 1}, {id, 1, math.MaxUint64},
		{id, math.MaxUint64, math.MaxUint64}, {id + 1, 0, 1}, {0, 0, 1}} {
		if got := b.Borrow(tt.id, tt.offset, tt.n); got != nil {
			t.Errorf("region %d, %d bytes at %d: %d bytes", tt.id, tt.n, tt.offset, len(got))
		}
	}
	if got := a.Borrow(id, 0, 1); got != nil {
		t.Error("this side borrows what is its own")
	}
	mem[2*page] = 99
	if b.Borrow(id, 0, 1)[0] != 99 {
		t.Error("what changes is not seen")
	}
	b.Receive() // gives it back
	if err := a.Unexport(id); err != nil {
		t.Fatal(err)
	}
	if n := borrowedMaps(t); n != 0 {
		t.Errorf("%d mappings after Unexport", n)
	}
	if got := b.Borrow(id, 0, 1); got != nil {
		t.Error("borrowed after Unexport")
	}
	if _, _, ok := a.Lend(part[:1]); ok {
		t.Error("lent after Unexport")
	}
	if err := a.Unexport(id); !errors.Is(err, shm.ErrNotExported) {
		t.Errorf("Unexport again: %v", err)
	}
}

// TestNotShared: sharing takes both sides.
func TestNotShared(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	on := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
	off := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
	up(t, on, off)
	fd, mem := lendable(t, page)
	if _, err := off.Export(fd, 0, mem); !errors.Is(err, shm.ErrNotShared) {
		t.Errorf("error %v", err)
	}
	id, err := on.Export(fd, 0, mem)
	if err != nil {
		t.Fatal(err)
	}
	bounce(t, on, off, 100)
	bounce(t, off, on, 100)
	if _, _, ok := on.Lend(mem); ok || off.Borrow(id, 0, 1) != nil || borrowedMaps(t) != 0 {
		t.Error("the peer, which does not share, has mapped it")
	}
	if err := on.Unexport(id); err != nil {
		t.Error(err)
	}
}

// TestLendOverSessions: what is exported is offered to each peer.
func TestLendOverSessions(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	a := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
	// Memory as drivers have it.
	m, err := vfio.AllocMemory(16*page, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mark(m.Bytes(), 3)
	id, err := a.Export(m.FD(), 0, m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, _, ok := a.Lend(m.Bytes()); ok {
			t.Error("lent to nobody")
		}
		b := open(t, shm.Options{Path: path, Role: shm.RoleConnect, Share: true})
		lentAt(t, a, m.Bytes())
		if n, ok := marked(b.Borrow(id, 0, m.Size())); n != 3 || !ok {
			t.Error("other bytes")
		}
		closePort(t, b) // with borrowed bytes
		waittest.Until(t, "link down", func() bool { return !a.LinkUp() })
	}
	waittest.Until(t, "nobody to lend to", func() bool { _, _, ok := a.Lend(m.Bytes()); return !ok })
	if err := a.Unexport(id); err != nil {
		t.Error(err)
	}
}

// TestUnexportWaits: memory that is being read stays until it is given back.
func TestUnexportWaits(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{Share: true})
	fd, mem := lendable(t, 4*page)
	id, err := a.Export(fd, 0, mem)
	if err != nil {
		t.Fatal(err)
	}
	lentAt(t, a, mem)
	for _, giveBack := range []func(){func() { b.Receive() }, b.Release} {
		lent := b.Borrow(id, 0, 4*page)
		done := make(chan error, 1)
		go func() { done <- a.Unexport(id) }()
		waittest.Until(t, "no more of it can be borrowed", func() bool { return b.Borrow(id, 0, 1) == nil })
		select {
		case err := <-done:
			t.Fatalf("Unexport returned %v while the memory was in use", err)
		default:
		}
		_ = append([]byte{}, lent...) // still there
		giveBack()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := borrowedMaps(t); n != 0 {
			t.Errorf("%d mappings", n)
		}
		if id, err = a.Export(fd, 0, mem); err != nil {
			t.Fatal(err)
		}
		lentAt(t, a, mem)
	}
	if err := a.Unexport(id); err != nil {
		t.Error(err)
	}
}

// TestLendWhilePeersDie exports and takes back while sessions come and go, and
// somebody reads.
func TestLendWhilePeersDie(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	a := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
	fd, mem := lendable(t, 64*page)
	var users sync.WaitGroup
	stop := make(chan struct{})
	var current, read atomic.Uint32
	users.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			id, err := a.Export(fd, 0, mem)
			if err == nil {
				current.Store(id)
				// Most of the time until somebody has read it, and not for long.
				for before, i := read.Load(), 0; i < 100 && read.Load() == before; i++ {
					a.Lend(mem)
					time.Sleep(50 * time.Microsecond)
				}
				err = a.Unexport(id)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 10 {
		b := open(t, shm.Options{Path: path, Role: shm.RoleConnect, Share: true})
		up(t, b)
		before := read.Load()
		waittest.Until(t, "something is lent", func() bool {
			if m := b.Borrow(current.Load(), 0, 64*page); m != nil {
				read.Add(uint32(len(m) - bytes.Count(m, []byte{1})))
			}
			b.Receive()
			return read.Load() != before
		})
		closePort(t, b)
	}
	close(stop)
	users.Wait()
	if n := borrowedMaps(t); n != 0 {
		t.Errorf("%d mappings", n)
	}
}

func TestLendAllocatesNothing(t *testing.T) {
	a, b := pair(t, shm.Options{Share: true})
	fd, mem := lendable(t, page)
	id, err := a.Export(fd, 0, mem)
	if err != nil {
		t.Fatal(err)
	}
	lentAt(t, a, mem)
	if n := testing.AllocsPerRun(1000, func() {
		a.Lend(mem[10:20])
		b.Borrow(id, 10, 10)
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

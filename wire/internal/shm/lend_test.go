package shm_test

import (
	"bytes"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

const page = 4096

// borrowedMaps counts what this process has mapped for reading of files called
// "lent": the borrower's mappings.
func borrowedMaps(t testing.TB) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
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
	fd = sealedFile(t, int64(size), unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	mem = must.Get(unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() {
		should.OK(t, unix.Munmap(mem))
	})
	return fd, mem
}

// lends reports whether the peer finds b in what p has exported.
func lends(p *shm.Port, b []byte) bool {
	_, _, ok := p.Lend(b)
	return ok
}

// lentAt waits until the peer has mapped what b lies in.
func lentAt(t testing.TB, p *shm.Port, b []byte) (id uint32, offset uint64) {
	t.Helper()
	waittest.Until(t, "the peer maps it", func() (ok bool) { id, offset, ok = p.Lend(b); return ok })
	return id, offset
}

// lending makes both ends of a wire, and memory that the first lends the second.
func lending(t testing.TB, o shm.Options, size int) (a, b *shm.Port, id uint32, mem []byte) {
	t.Helper()
	a, b = pair(t, o)
	fd, mem := lendable(t, size)
	id = must.Get(a.Export(fd, 0, mem))(t)
	lentAt(t, a, mem)
	return a, b, id, mem
}

// TestLend makes one side read what the other has written, and no more than that.
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
		should.Be(t, lends(a, p), false, "bytes %s can be lent", name)
	}
	should.Be(t, lends(b, part[:10]), false, "the peer lends what is ours")
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
	should.Be(t, a.Borrow(id, 0, 1) != nil, false, "this side borrows what is its own")
	mem[2*page] = 99
	should.Be(t, b.Borrow(id, 0, 1)[0], 99, "what changes is not seen")
	b.Receive() // gives it back
	must.OK(t, a.Unexport(id))
	should.Be(t, borrowedMaps(t), 0, "mappings after Unexport")
	should.Be(t, b.Borrow(id, 0, 1) != nil, false, "borrowed after Unexport")
	should.Be(t, lends(a, part[:1]), false, "lent after Unexport")
	should.Fail(t, a.Unexport(id), shm.ErrNotExported, "Unexport again")
}

// TestNotShared: sharing takes both sides.
func TestNotShared(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	on := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
	off := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
	up(t, on, off)
	fd, mem := lendable(t, page)
	should.Refuse(off.Export(fd, 0, mem))(t, shm.ErrNotShared, "error")
	id := must.Get(on.Export(fd, 0, mem))(t)
	bounce(t, on, off, 100)
	bounce(t, off, on, 100)
	if _, _, ok := on.Lend(mem); ok || off.Borrow(id, 0, 1) != nil || borrowedMaps(t) != 0 {
		t.Error("the peer, which does not share, has mapped it")
	}
	should.OK(t, on.Unexport(id))
}

// TestLendOverSessions: what is exported is offered to each peer.
func TestLendOverSessions(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	a := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
	// Memory as drivers have it.
	m := must.Get(vfio.AllocMemory(16*page, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	defer m.Close()
	mark(m.Bytes(), 3)
	id := must.Get(a.Export(m.FD(), 0, m.Bytes()))(t)
	for range 3 {
		should.Be(t, lends(a, m.Bytes()), false, "lent to nobody")
		b := open(t, shm.Options{Path: path, Role: shm.RoleConnect, Share: true})
		lentAt(t, a, m.Bytes())
		if n, ok := marked(b.Borrow(id, 0, m.Size())); n != 3 || !ok {
			t.Error("other bytes")
		}
		closePort(t, b) // with borrowed bytes
		waittest.Until(t, "link down", func() bool { return !a.LinkUp() })
	}
	waittest.Until(t, "nobody to lend to", func() bool { _, _, ok := a.Lend(m.Bytes()); return !ok })
	should.OK(t, a.Unexport(id))
}

// TestUnexportWaits: memory that is being read stays until it is given back.
func TestUnexportWaits(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{Share: true})
	fd, mem := lendable(t, 4*page)
	id := must.Get(a.Export(fd, 0, mem))(t)
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
		must.OK(t, <-done)
		should.Be(t, borrowedMaps(t), 0, "mappings")
		id = must.Get(a.Export(fd, 0, mem))(t)
		lentAt(t, a, mem)
	}
	should.OK(t, a.Unexport(id))
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
	should.Be(t, borrowedMaps(t), 0, "mappings")
}

func TestLendAllocatesNothing(t *testing.T) {
	a, b, id, mem := lending(t, shm.Options{Share: true}, page)
	should.Be(t, testing.AllocsPerRun(1000, func() {
		a.Lend(mem[10:20])
		b.Borrow(id, 10, 10)
		b.Release()
	}), 0, "allocations")
}

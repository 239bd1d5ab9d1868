package driver_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// anonymous maps memory of the program's own.
func anonymous(t testing.TB, size, protection int) []byte {
	t.Helper()
	b := must.Get(unix.Mmap(-1, 0, size, protection, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE))(t)
	t.Cleanup(func() {
		should.OK(t, unix.Munmap(b))
	})
	return b
}

// reached counts how often the device has each page of b mapped.
func (r *rig) reached(b []byte) []int {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	page := os.Getpagesize()
	counts := make([]int, len(b)/page)
	for _, m := range r.d.dma {
		for i := range counts {
			if offset := within(m.Bytes(), b[i*page:]); offset >= 0 {
				counts[i]++
			}
		}
	}
	return counts
}

// TestForeignMemory: each registration maps the pages that it lies in, and takes them away again.
func TestForeignMemory(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	page, mapped, open := os.Getpagesize(), r.mappings(), leaktest.Files(t)
	b := anonymous(t, 5*page, unix.PROT_READ|unix.PROT_WRITE)
	register := func(first, last int, counts ...int) *driver.Memory {
		t.Helper()
		m := must.Get(r.n.Register(contextFor(t), b[first:last], driver.MemoryAttributes{}))(t)
		r.checkReach(t, m, b[first:last])
		must.Same(t, r.reached(b), counts, "pages are mapped times")
		return m
	}
	inner := register(2*page+100, 3*page+1, 0, 0, 1, 1, 0) // two pages, one byte of the second
	outer := register(page-1, 4*page, 1, 1, 2, 2, 0)
	must.OK(t, errors.Join(inner.Close(contextFor(t)), outer.Close(contextFor(t))))
	if r.mappings() != mapped || leaktest.Files(t) != open {
		t.Errorf("%d mappings, %d before; %d files, %d before", r.mappings(), mapped, leaktest.Files(t), open)
	}
	_ = register(0, page, 1, 0, 0, 0, 0) // for Close; the fake device complains about what is left
}

// checkReach checks that the device has b in one piece at the bus address that it was
// told.
func (r *rig) checkReach(t testing.TB, m *driver.Memory, b []byte) {
	t.Helper()
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	told := r.d.admin.regions[m.Handle()]
	if told.Length != uint64(len(b)) || told.Address != m.Address() || told.IOVA%datasheet.PageSize != told.Address%datasheet.PageSize {
		t.Fatalf("the device was told %+v", told)
	}
	for at := 0; at < len(b); {
		iova := told.IOVA + uint64(at)
		n := 0
		for first, mem := range r.d.dma {
			if iova >= first && iova-first < mem.Size() {
				if offset := within(mem.Bytes(), b[at:]); offset != int(iova-first) {
					t.Fatalf("byte %d is at %#x of its mapping, the bus has it at %#x", at, offset, iova-first)
				}
				n = int(mem.Size() - (iova - first))
			}
		}
		if n == 0 {
			t.Fatalf("byte %d, at bus address %#x, is not mapped", at, iova)
		}
		at += n
	}
}

// TestForeignRanges registers and deregisters ranges of any size in any order.
func TestForeignRanges(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	mapped, page := r.mappings(), os.Getpagesize()
	const size = 80 << 20
	all := anonymous(t, size, unix.PROT_READ|unix.PROT_WRITE)
	rapid.Check(t, func(rt *rapid.T) {
		var live []*driver.Memory
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(rt, "deregister") {
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				must.OK(rt, live[i].Close(contextFor(t)))
				live = slices.Delete(live, i, i+1)
				continue
			}
			unit := rapid.SampledFrom([]int{1, page, 32 << 20}).Draw(rt, "unit")
			first := rapid.IntRange(0, (size-1)/unit).Draw(rt, "first") * unit
			length := min(size-first, max(1, rapid.IntRange(0, 40).Draw(rt, "length")*unit/16))
			m := must.Get(r.n.Register(contextFor(t), all[first:first+length], driver.MemoryAttributes{}))(rt)
			live = append(live, m)
			for _, m := range live {
				r.checkReach(t, m, m.Bytes())
			}
		}
		for _, m := range live {
			must.OK(rt, m.Close(contextFor(t)))
		}
		must.Be(rt, r.mappings(), mapped, "mappings")
	})
}

func TestForeignRefused(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	mapped, page := r.mappings(), os.Getpagesize()
	hidden := anonymous(t, 2*page, unix.PROT_NONE)
	constant := anonymous(t, 2*page, unix.PROT_READ)
	writable := anonymous(t, 4*page, unix.PROT_READ|unix.PROT_WRITE)
	register := func(b []byte, readOnly bool) (*driver.Memory, error) {
		return r.n.Register(contextFor(t), b, driver.MemoryAttributes{ReadOnly: readOnly})
	}
	wants := func(what string, m *driver.Memory, err, want error) {
		t.Helper()
		if m != nil || !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		should.Be(t, r.mappings(), mapped, "%s: mappings", what)
	}
	m, err := register(hidden[10:20], false)
	wants("not readable", m, err, descriptors.ErrInvalidParameter)
	m, err = register(constant[10:20], false)
	wants("not writable", m, err, descriptors.ErrInvalidParameter)

	// Where the device or the back end refuses, what was mapped before stays and no more.
	first, err := register(writable[page:page+1], false)
	must.OK(t, err)
	mapped = r.mappings()
	r.d.with(func() { r.d.mapFail = vfio.ErrNotSupported })
	m, err = register(writable, false)
	wants("no mapping", m, err, descriptors.ErrNotSupported)
	r.d.with(func() {
		r.d.mapFail = nil
		r.d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return datasheet.ResultResource, true }
	})
	m, err = register(writable, false)
	wants("no region", m, err, descriptors.ErrResource)
	r.d.with(func() { r.d.answer = nil })
	should.OK(t, first.Close(contextFor(t)))
	readOnly, err := register(constant[10:20], true)
	must.OK(t, err)
	mapped = r.mappings()
	m, err = register(constant[:20], false)
	wants("not writable, mapped", m, err, descriptors.ErrInvalidParameter)
	must.OK(t, readOnly.Close(contextFor(t)))
}

// TestForeignConcurrently: many goroutines register the same pages.
func TestForeignConcurrently(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	mapped, page := r.mappings(), os.Getpagesize()
	b := anonymous(t, 8*page, unix.PROT_READ|unix.PROT_WRITE)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				first := (g + i) % 4 * page
				m, err := r.n.Register(contextFor(t), b[first:first+3*page+g], driver.MemoryAttributes{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := m.Close(contextFor(t)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	should.Be(t, r.mappings(), mapped, "mappings")
}

// newForeignRig is newPingRig whose payloads are in memory of the program's own: of the send, and of the receive.
func newForeignRig(t testing.TB, withCQ bool) (r *pingRig, out, in []byte) {
	t.Helper()
	r = newPingRig(t, withCQ)
	own := func(n *driver.NIC, d *descriptors.Descriptor, p *driver.Ptag) []byte {
		b := anonymous(t, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE)
		m := must.Get(n.Register(contextFor(t), b, driver.MemoryAttributes{Ptag: p}))(t)
		d.Prepare()
		must.OK(t, m.AddTo(d, 0, 64))
		return b
	}
	return r, own(r.nic, r.send, r.memory.Attributes().Ptag), own(r.peer, r.recv, r.inbox.Attributes().Ptag)
}

// TestOwnMemoryIsGone: a program that takes away memory under a message that it posts, or receives, fails its NIC. No call waits for ever or
// panics, and the other NIC goes on.
func TestOwnMemoryIsGone(t *testing.T) {
	for _, withCQ := range []bool{false, true} {
		for _, sends := range []bool{true, false} {
			t.Run(fmt.Sprint("sends ", sends, ", completion queue ", withCQ), func(t *testing.T) {
				r, out, in := newForeignRig(t, withCQ)
				for range 3 {
					must.OK(t, r.once())
				}
				gone, failed, well := out, r.nic, r.peer
				if !sends {
					gone, failed, well = in, r.peer, r.nic
				}
				must.OK(t, unix.Mprotect(gone, unix.PROT_NONE))
				if err := r.once(); err == nil || errors.Is(err, descriptors.ErrNotDone) {
					t.Errorf("a message from or to memory that is gone: %v", err)
				}
				waittest.Until(t, "the NIC has failed", func() bool {
					h, err := failed.Health(contextFor(t))
					return err == nil && h.Fatal
				})
				if h, err := well.Health(contextFor(t)); err != nil || h.Fatal {
					t.Errorf("the other NIC: %+v, %v", h, err)
				}
			})
		}
	}
}

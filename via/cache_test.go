package via_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// mapped is memory of the program's own.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	b := must.Get(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE))(t)
	t.Cleanup(func() {
		should.OK(t, unix.Munmap(b))
	})
	return b
}

func newCache(t testing.TB, o via.CacheOptions) (*via.NIC, *via.RegistrationCache) {
	t.Helper()
	nic, _ := conform.OnMemory(t, "", via.Options{})
	c := must.Get(nic.NewCache(o))(t)
	return nic, c
}

func TestCacheRefuses(t *testing.T) {
	ctx := conform.Context(t)
	page := os.Getpagesize()
	nic, c := newCache(t, via.CacheOptions{Entries: 2, Bytes: uint64(3 * page)})
	other := must.Get(nic.NewCache(via.CacheOptions{}))(t)
	for _, o := range []via.CacheOptions{{Entries: -1}, {Entries: nic.Query().MaxRegions + 1}, {Entries: 1 << 30}} {
		should.Refuse(nic.NewCache(o))(t, via.ErrInvalidParameter, "%+v", o)
	}
	b := mapped(t, 8*page)
	var none context.Context
	over, cancel := context.WithCancel(ctx)
	cancel()
	for name, f := range map[string]struct {
		ctx  context.Context
		b    []byte
		want error
	}{
		"nothing":    {ctx, nil, via.ErrInvalidParameter},
		"no context": {none, b[:1], via.ErrInvalidParameter},
		"too large":  {ctx, b[:3*page+1], via.ErrResource},
		"Go heap":    {ctx, make([]byte, 100), via.ErrNotSupported},
		"over":       {over, b[:1], via.ErrCanceled},
	} {
		if m, err := c.Acquire(f.ctx, f.b); m != nil || !errors.Is(err, f.want) {
			t.Errorf("%s: %v, want %v", name, err, f.want)
		}
	}
	m := must.Get(c.Acquire(ctx, b[10:20]))(t)
	plain := must.Get(nic.Alloc(ctx, 64, via.MemoryAttributes{}))(t)
	for name, err := range map[string]error{
		"release nothing":          c.Release(nil),
		"release foreign memory":   c.Release(plain),
		"release to another cache": other.Release(m),
		"deregister":               m.Close(ctx),
		"set attributes":           m.SetAttributes(ctx, via.MemoryAttributes{}),
		"invalidate, no context":   c.Invalidate(none, b),
	} {
		should.Fail(t, err, via.ErrInvalidParameter, "%s", name)
	}
	second := must.Get(c.Acquire(ctx, b[page:page+1]))(t)
	should.Refuse(c.Acquire(ctx, b[2*page:2*page+1]))(t, via.ErrResource, "all is in use")
	should.OK(t, errors.Join(c.Release(m), c.Release(second)))
	should.Fail(t, c.Release(m), via.ErrInvalidParameter, "released twice")
	should.OK(t, c.Close(ctx))
	should.Refuse(c.Acquire(ctx, b[:1]))(t, via.ErrClosed, "closed")
	m = must.Get(other.Acquire(ctx, b[:1]))(t)
	must.OK(t, nic.Close())
	should.Refuse(other.Acquire(ctx, b[:1]))(t, via.ErrClosed, "the NIC is closed")
	should.Fail(t, other.Invalidate(ctx, b), via.ErrClosed, "the NIC is closed")
	_ = other.Release(m)
	should.Refuse(nic.NewCache(via.CacheOptions{}))(t, via.ErrClosed, "the NIC is closed")
}

// TestCacheInvalidate: what was invalidated is not found, and ends when it is released.
func TestCacheInvalidate(t *testing.T) {
	ctx := conform.Context(t)
	page := os.Getpagesize()
	_, c := newCache(t, via.CacheOptions{})
	b := mapped(t, 8*page)
	acquire := func(b []byte) *via.Memory {
		t.Helper()
		return must.Get(c.Acquire(ctx, b))(t)
	}
	first := acquire(b[:page])
	should.Be(t, acquire(b[100:200]), first, "a part of what is registered was registered again")
	whole := acquire(b)
	if whole == first || acquire(b[3*page:4*page]) != whole {
		t.Error("what does not fit a registration found one")
	}
	should.OK(t, errors.Join(c.Release(whole), c.Release(whole)))
	should.Fail(t, c.Invalidate(ctx, b[:1]), via.ErrResource, "invalidated in use")
	if first.Bytes() == nil || whole.Bytes() != nil {
		t.Error("what is in use ended, or what is not has not")
	}
	if again := acquire(b[100:200]); again == first || again == whole {
		t.Error("found what was invalidated")
	} else if err := c.Release(again); err != nil {
		t.Error(err)
	}
	if err := c.Release(first); err != nil || first.Bytes() == nil {
		t.Errorf("released, and still in use: %v", err)
	}
	if err := c.Release(first); err != nil || first.Bytes() != nil {
		t.Errorf("released by all: %v", err)
	}
	should.OK(t, c.Invalidate(ctx, b[page:])) // nobody has it any more
	if s := c.Stats(); s.Invalidated != 2 || s.Hits != 2 || s.Misses != 3 || s.Entries != 1 || s.Bytes != uint64(page) {
		t.Errorf("%+v", s)
	}
}

// TestCacheModel compares the cache with a plain list, in which the least recently used
// is first.
func TestCacheModel(t *testing.T) {
	ctx := conform.Context(t)
	page := os.Getpagesize()
	nic, _ := conform.OnMemory(t, "", via.Options{})
	const pages = 24
	b := mapped(t, pages*page)
	rapid.Check(t, func(rt *rapid.T) {
		o := via.CacheOptions{Entries: rapid.IntRange(1, 6).Draw(rt, "entries"), Bytes: uint64(page * rapid.IntRange(1, 16).Draw(rt, "pages"))}
		c := must.Get(nic.NewCache(o))(rt)
		type entry struct {
			m           *via.Memory
			first, last int // pages
			users       int
			used        int // misses before the last use
		}
		var model []*entry
		var inUse []*via.Memory
		misses := 0
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			first := rapid.IntRange(0, pages-1).Draw(rt, "first")
			last := min(pages-1, first+rapid.IntRange(0, 4).Draw(rt, "more"))
			part := b[first*page+rapid.IntRange(0, page-1).Draw(rt, "offset") : (last+1)*page]
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				if len(inUse) > 0 {
					i := rapid.IntRange(0, len(inUse)-1).Draw(rt, "which")
					must.OK(rt, c.Release(inUse[i]))
					for _, e := range model {
						if e.m == inUse[i] {
							e.users--
						}
					}
					inUse = append(inUse[:i], inUse[i+1:]...)
				}
			case 1:
				var left []*entry
				busy := false
				for _, e := range model {
					if e.first > last || e.last < first {
						left = append(left, e)
					} else if e.users > 0 {
						busy = true
					}
				}
				model = left
				if err := c.Invalidate(ctx, part); errors.Is(err, via.ErrResource) != busy || !busy && err != nil {
					rt.Fatalf("invalidate, in use: %v, error %v", busy, err)
				}
			default:
				m, err := c.Acquire(ctx, part)
				var hit *entry
				for _, e := range model {
					if e.m == m && m != nil {
						hit = e
					}
				}
				if hit != nil {
					if hit.first > first || hit.last < last {
						rt.Fatal("found a registration that does not have it all")
					}
					hit.users++
					hit.used = misses
					inUse = append(inUse, m)
					break
				}
				for _, e := range model {
					if e.first <= first && e.last >= last {
						rt.Fatalf("was there, and not found: %v", err)
					}
				}
				// Of those that nobody uses, the ones that were used before go, and of those
				// used between the same two misses any, one after the other until there is room.
				size := uint64((last - first + 1) * page)
				room := func(beside []*entry) bool {
					bytes := size
					for _, e := range beside {
						bytes += uint64((e.last - e.first + 1) * page)
					}
					return bytes <= o.Bytes && len(beside) < o.Entries
				}
				var kept, gone []*entry
				oldest, latest := math.MaxInt, 0 // use of those that might go, and of those that have
				for _, e := range model {
					if e.users == 0 && e.m.Bytes() == nil {
						gone, latest = append(gone, e), max(latest, e.used)
						continue
					}
					if e.users == 0 {
						oldest = min(oldest, e.used)
					}
					kept = append(kept, e)
				}
				fits := room(kept)
				if (err == nil) != fits || err != nil && !errors.Is(err, via.ErrResource) {
					rt.Fatalf("room: %v, error %v", fits, err)
				}
				if latest > oldest {
					rt.Fatal("another registration than the least recently used one has gone")
				}
				if !fits && size <= o.Bytes && oldest < math.MaxInt {
					rt.Fatal("there is a registration that nobody uses, and no room was made")
				}
				if len(gone) > 0 && !slices.ContainsFunc(gone, func(e *entry) bool { return e.used == latest && !room(append(slices.Clip(kept), e)) }) {
					rt.Fatal("more has gone than there had to be room for")
				}
				model = kept
				if err == nil {
					misses++
					model = append(model, &entry{m, first, last, 1, misses})
					inUse = append(inUse, m)
				}
			}
			for _, e := range model {
				if e.m.Bytes() == nil {
					rt.Fatal("a registration has gone that should be there")
				}
			}
			if s := c.Stats(); s.Entries != len(model) || int(s.Misses) != misses || s.Entries > o.Entries || s.Bytes > o.Bytes {
				rt.Fatalf("%+v, want %d entries, %d misses", s, len(model), misses)
			}
		}
		for _, m := range inUse {
			must.OK(rt, c.Release(m))
		}
		must.OK(rt, c.Close(ctx))
		if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 {
			rt.Fatalf("%+v after Close", s)
		}
	})
}

// TestCacheConcurrently uses, evicts and invalidates at the same time. What somebody
// uses is registered.
func TestCacheConcurrently(t *testing.T) {
	ctx := conform.Context(t)
	page := os.Getpagesize()
	_, c := newCache(t, via.CacheOptions{Entries: 16})
	const pages = 64
	b := mapped(t, pages*page)
	var acquired, failed atomic.Uint64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 2000 {
				first := r.IntN(pages)
				part := b[first*page : min(pages, first+1+r.IntN(3))*page]
				if r.IntN(20) == 0 {
					if err := c.Invalidate(ctx, part); err != nil && !errors.Is(err, via.ErrResource) {
						t.Error(err)
					}
					continue
				}
				m, err := c.Acquire(ctx, part)
				if err != nil {
					t.Error(err)
					return
				}
				acquired.Add(1)
				if m.Bytes() == nil {
					failed.Add(1)
				}
				should.OK(t, c.Release(m))
			}
		})
	}
	wg.Wait()
	should.Be(t, failed.Load(), 0, "registrations had gone while they were used")
	s := c.Stats()
	if s.Hits+s.Misses != acquired.Load() || s.Entries > 16 || uint64(s.Entries) != s.Misses-s.Evicted-s.Invalidated {
		t.Errorf("%+v of %d uses", s, acquired.Load())
	}
	must.OK(t, c.Close(ctx))
}

func TestCacheAllocatesNothing(t *testing.T) {
	ctx := conform.Context(t)
	_, c := newCache(t, via.CacheOptions{})
	b := mapped(t, 1<<16)
	use := func() {
		m := must.Get(c.Acquire(ctx, b[100:5000]))(t)
		must.OK(t, c.Release(m))
	}
	use()
	should.Be(t, testing.AllocsPerRun(100, use), 0, "allocations")
}

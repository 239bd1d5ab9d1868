package netmem_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// newSharedRig is newRig over shared memory: share is off, on or write.
func newSharedRig(t testing.TB, share string) *rig { return newSharedRigs(t, share, share) }

// newSharedRigs is newSharedRig whose ends differ.
func newSharedRigs(t testing.TB, near, far string) *rig {
	t.Helper()
	leaktest.Check(t)
	path := filepath.Join(t.TempDir(), "wire")
	open := func(role, share string) *via.NIC {
		nic := must.Get(via.Open(t.Context(), "emu:?wire=shm:"+path+"&share="+share+"&role="+role, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() { _ = nic.Close() })
		return nic
	}
	r := &rig{TB: t, far: open("listen", far)}
	r.near = open("connect", near)
	return r
}

// page is memory of the near NIC for a page.
func (r *rig) page(size int) ring.Frame {
	r.Helper()
	m := must.Get(r.near.Alloc(context.Background(), size, via.MemoryAttributes{}))(r)
	return ring.Frame{Memory: m, Length: size}
}

const sharedPage = netmem.MinPage

// TestDirect: where both ends lend memory, pages are read out of the server's memory, as they were written
// last, and elsewhere they come as ever.
func TestDirect(t *testing.T) {
	for _, c := range []struct {
		near, far string
		direct    bool
	}{{"off", "off", false}, {"on", "on", true}, {"write", "write", true}, {"on", "off", false}, {"off", "on", false}} {
		t.Run(c.near+", "+c.far, func(t *testing.T) {
			direct := c.direct
			r := newSharedRigs(t, c.near, c.far)
			s := r.serve(netmem.ServerOptions{Page: sharedPage, Size: 16 * sharedPage})
			c := r.open(netmem.Options{ReadAhead: -1}, s)
			frame := r.page(sharedPage)
			if v, err := c.Fetch(t.Context(), 3, frame); err != nil || v == 0 || !bytes.Equal(frame.Bytes(), make([]byte, sharedPage)) {
				t.Fatalf("a page that was never written: version %d, %v", v, err)
			}
			for n := range byte(40) {
				want := bytes.Repeat([]byte{n + 1}, sharedPage)
				copy(frame.Bytes(), want)
				page := uint64(n % 16)
				base := must.Get(c.Fetch(t.Context(), page, r.page(sharedPage)))(t)
				stored := must.Get(c.Store(t.Context(), page, base, frame))(t)
				clear(frame.Bytes())
				if v, err := c.Fetch(t.Context(), page, frame); err != nil || v != stored || !bytes.Equal(frame.Bytes(), want) {
					t.Fatalf("page %d: version %d, not %d, %v", page, v, stored, err)
				}
			}
			if direct {
				r.waitDirect(c, frame)
			}
			if n := c.Stats(); !direct && n.Direct > 0 || n.Direct > n.Fetches {
				t.Errorf("%d of %d fetches", n.Direct, n.Fetches)
			}
		})
	}
}

// waitDirect waits until a client reads a server's memory.
func (r *rig) waitDirect(c *netmem.Client, frame ring.Frame) {
	r.Helper()
	before := c.Stats().Direct
	r.until("pages that are read out of the server's memory", func() bool {
		must.Get(c.Fetch(r.Context(), 0, frame))(r)
		return c.Stats().Direct > before
	})
}

// TestDirectTorn: while pages are written as fast as that goes, each read has one page as a whole, with its
// version, and no older one than the read before.
func TestDirectTorn(t *testing.T) {
	r := newSharedRig(t, "on")
	s := r.serve(netmem.ServerOptions{Page: sharedPage, Size: 2 * sharedPage})
	c := r.open(netmem.Options{ReadAhead: -1}, s)
	r.waitDirect(c, r.page(sharedPage))
	done := make(chan struct{})
	var running sync.WaitGroup
	for page := range uint64(2) {
		from := r.page(sharedPage)
		base := mustFetch(t, c, page, from)
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				copy(from.Bytes(), bytes.Repeat([]byte{byte(n)}, sharedPage))
				next, err := c.Store(context.Background(), page, base, from)
				if err != nil {
					t.Error(err)
					return
				}
				base = next
			}
		})
	}
	before, reads, whole := c.Stats().Direct, 0, soak.Count(5_000, 20_000)
	frame := r.page(sharedPage)
	last, values := map[uint64]netmem.Version{}, map[[2]uint64]byte{}
	for end := time.Now().Add(time.Minute); reads < whole && time.Now().Before(end); reads++ {
		page := uint64(reads % 2)
		v := must.Get(c.Fetch(context.Background(), page, frame))(t)
		b := frame.Bytes()
		must.Be(t, bytes.Count(b, b[:1]), len(b), "page %d is torn", page)
		if v < last[page] {
			t.Fatalf("page %d: version %d after %d", page, v, last[page])
		}
		last[page] = v
		if was, known := values[[2]uint64{page, uint64(v)}]; known && was != b[0] {
			t.Fatalf("page %d: version %d is %d and %d", page, v, was, b[0])
		}
		values[[2]uint64{page, uint64(v)}] = b[0]
	}
	close(done)
	running.Wait()
	if n := c.Stats().Direct - before; n == 0 {
		t.Errorf("none of %d reads was of the server's memory", reads)
	}
}

// TestDirectAfterEnd: a server that has ended, and one that has taken its place without its pages, are not
// taken for it.
func TestDirectAfterEnd(t *testing.T) {
	r := newSharedRig(t, "on")
	o := netmem.ServerOptions{Page: sharedPage, Size: 4 * sharedPage}
	s := r.serve(o)
	c := r.open(netmem.Options{ReadAhead: -1, Timeout: cutTimeout}, s)
	frame := r.page(sharedPage)
	copy(frame.Bytes(), "page")
	must.Get(c.Store(t.Context(), 0, mustFetch(t, c, 0, r.page(sharedPage)), frame))(t)
	r.waitDirect(c, frame)
	r.kill(s)
	should.Refuse(c.Fetch(t.Context(), 0, frame))(t, netmem.ErrUnavailable, "a fetch from a server that has ended")
	r.serve(o)
	r.until("the server that has lost its pages", func() bool {
		_, err := c.Fetch(t.Context(), 0, frame)
		return errors.Is(err, netmem.ErrLost)
	})
}

func mustFetch(t *testing.T, c *netmem.Client, page uint64, into ring.Frame) netmem.Version {
	t.Helper()
	return must.Get(c.Fetch(t.Context(), page, into))(t)
}

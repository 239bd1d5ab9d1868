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
		nic, err := via.Open(t.Context(), "emu:?wire=shm:"+path+"&share="+share+"&role="+role, via.Options{OnError: func(via.AsyncError) {}})
		if err != nil {
			t.Fatal(err)
		}
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
	m, err := r.near.Alloc(context.Background(), size, via.MemoryAttributes{})
	if err != nil {
		r.Fatal(err)
	}
	return ring.Frame{Memory: m, Length: size}
}

const sharedPage = netmem.MinPage

// TestDirect: where the wire lends memory, pages are read out of the server's memory, as they were written
// last, and elsewhere they come as ever.
func TestDirect(t *testing.T) {
	for share, direct := range map[string]bool{"off": false, "on": true, "write": true} {
		t.Run(share, func(t *testing.T) {
			r := newSharedRig(t, share)
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
				base, err := c.Fetch(t.Context(), page, r.page(sharedPage))
				if err != nil {
					t.Fatal(err)
				}
				stored, err := c.Store(t.Context(), page, base, frame)
				if err != nil {
					t.Fatal(err)
				}
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
		if _, err := c.Fetch(r.Context(), 0, frame); err != nil {
			r.Fatal(err)
		}
		return c.Stats().Direct > before
	})
}

// TestDirectMixed: where one end alone lends memory pages come as ever.
func TestDirectMixed(t *testing.T) {
	for near, far := range map[string]string{"on": "off", "off": "on"} {
		r := newSharedRigs(t, near, far)
		s := r.serve(netmem.ServerOptions{Page: sharedPage, Size: 4 * sharedPage})
		c := r.open(netmem.Options{ReadAhead: -1}, s)
		frame := r.page(sharedPage)
		for range 50 {
			if _, err := c.Fetch(t.Context(), 1, frame); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.Stats().Direct; n != 0 {
			t.Errorf("near %s, far %s: %d pages were read out of memory that is not lent", near, far, n)
		}
	}
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
		v, err := c.Fetch(context.Background(), page, frame)
		if err != nil {
			t.Fatal(err)
		}
		b := frame.Bytes()
		if bytes.Count(b, b[:1]) != len(b) {
			t.Fatalf("page %d is torn", page)
		}
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
	c := r.open(netmem.Options{ReadAhead: -1, Timeout: 2 * time.Second}, s)
	frame := r.page(sharedPage)
	copy(frame.Bytes(), "page")
	if _, err := c.Store(t.Context(), 0, mustFetch(t, c, 0, r.page(sharedPage)), frame); err != nil {
		t.Fatal(err)
	}
	r.waitDirect(c, frame)
	r.kill(s)
	if _, err := c.Fetch(t.Context(), 0, frame); !errors.Is(err, netmem.ErrUnavailable) {
		t.Errorf("a fetch from a server that has ended: %v", err)
	}
	r.serve(o)
	r.until("the server that has lost its pages", func() bool {
		_, err := c.Fetch(t.Context(), 0, frame)
		return errors.Is(err, netmem.ErrLost)
	})
}

func mustFetch(t *testing.T, c *netmem.Client, page uint64, into ring.Frame) netmem.Version {
	t.Helper()
	v, err := c.Fetch(t.Context(), page, into)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// BenchmarkDirect compares fetches of a page over shared memory, with direct reads and without: of what is direct,
// the share is counted.
func BenchmarkDirect(b *testing.B) {
	for _, share := range []string{"off", "on"} {
		b.Run(share, func(b *testing.B) {
			r := newSharedRig(b, share)
			const pages = 64
			s := r.serve(netmem.ServerOptions{Page: sharedPage, Size: pages * sharedPage})
			c := r.open(netmem.Options{ReadAhead: -1}, s)
			frame := r.page(sharedPage)
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
				if _, err := c.Fetch(b.Context(), 0, frame); err != nil {
					b.Fatal(err)
				}
			}
			before := c.Stats()
			b.ReportAllocs()
			b.SetBytes(sharedPage)
			page := uint64(0)
			for b.Loop() {
				if _, err := c.Fetch(context.Background(), page, frame); err != nil {
					b.Fatal(err)
				}
				page = (page + 1) % pages
			}
			after := c.Stats()
			b.ReportMetric(float64(after.Direct-before.Direct)/float64(after.Fetches-before.Fetches), "direct")
		})
	}
}

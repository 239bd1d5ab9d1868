package netmem_test

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// newSharedRig is newRig over shared memory: share is off, on or write.
func newSharedRig(t *testing.T, share string) *rig {
	t.Helper()
	leaktest.Check(t)
	r := &rig{TB: t}
	at := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire") + "&share=" + share
	for role, nic := range map[string]**via.NIC{"listen": &r.far, "connect": &r.near} {
		opened, err := via.Open(t.Context(), at+"&role="+role, via.Options{OnError: func(via.AsyncError) {}})
		if err != nil {
			t.Fatal(err)
		}
		*nic = opened
		t.Cleanup(func() { _ = opened.Close() })
	}
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
			r.until("pages that are read out of the server's memory", func() bool {
				if _, err := c.Fetch(t.Context(), 0, frame); err != nil {
					t.Fatal(err)
				}
				return !direct || c.Stats().Direct > 0
			})
			if n := c.Stats(); !direct && n.Direct > 0 || n.Direct > n.Fetches {
				t.Errorf("%d of %d fetches", n.Direct, n.Fetches)
			}
		})
	}
}

var _ = sync.Mutex{}
var _ = time.Second

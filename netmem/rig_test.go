package netmem_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// rig is two NICs that are wired to each other: clients are on the near one, and servers
// on the far one.
type rig struct {
	testing.TB
	near, far *via.NIC
	store     netmem.TestStore
}

func newRig(t testing.TB, o emulator.PairOptions) *rig {
	t.Helper()
	leaktest.Check(t)
	return newRigBesides(t, o)
}

// newRigBesides is newRig of a test that runs together with others.
func newRigBesides(t testing.TB, o emulator.PairOptions) *rig {
	t.Helper()
	a, b, err := emulator.Pair(o)
	if err != nil {
		t.Fatal(err)
	}
	quiet := via.Options{OnError: func(via.AsyncError) {}}
	r := &rig{TB: t}
	if r.near, err = via.OpenDevice(t.Context(), a, quiet); err != nil {
		t.Fatal(err)
	}
	if r.far, err = via.OpenDevice(t.Context(), b, quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.near.Close(), r.far.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// together runs tests at the same time that wait for timeouts, and use little of the processor. What
// they leave behind is looked for after all of them.
func together(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	leaktest.Check(t)
	var running sync.WaitGroup
	for name, f := range tests {
		running.Go(func() { t.Run(name, f) })
	}
	running.Wait()
}

// serve starts a server, which ends with the test at the latest.
func (r *rig) serve(o netmem.ServerOptions) *netmem.Server {
	r.Helper()
	s, err := netmem.NewServer(r.Context(), r.far, o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// kill ends a server.
func (r *rig) kill(s *netmem.Server) {
	r.Helper()
	if err := s.Close(); err != nil {
		r.Fatal(err)
	}
}

// open opens a client, which ends with the test at the latest.
func (r *rig) open(o netmem.Options, servers ...*netmem.Server) *netmem.Client {
	r.Helper()
	c, err := r.tryOpen(o, servers...)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

func (r *rig) tryOpen(o netmem.Options, servers ...*netmem.Server) (*netmem.Client, error) {
	var list []string
	for _, s := range servers {
		list = append(list, s.Address().String())
	}
	if o.Timeout == 0 { // else a server is taken for dead that only waits for its turn
		o.Timeout = 30 * time.Second
	}
	if o.Copies > 1 {
		o.Store = &r.store
	}
	if o.Cache == 0 { // the default takes longer to allocate than most tests take
		o.Cache = 4 << 20
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	c, err := netmem.Open(ctx, r.near, list, o)
	if err == nil {
		r.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	}
	return c, err
}

// until waits for what must happen.
func (r *rig) until(what string, f func() bool) {
	r.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("waited for %s", what)
		}
	}
}

// complete says whether a client is connected with all servers, and these have all.
func complete(c *netmem.Client) func() bool {
	return func() bool {
		for _, s := range c.Stats().Servers {
			if !s.Complete {
				return false
			}
		}
		return true
	}
}

func (r *rig) write(c *netmem.Client, b []byte, off int64) {
	r.Helper()
	if n, err := c.WriteAt(b, off); n != len(b) || err != nil {
		r.Fatalf("write %d bytes at %d: %d, %v", len(b), off, n, err)
	}
}

func (r *rig) read(c *netmem.Client, n int, off int64) []byte {
	r.Helper()
	b := make([]byte, n)
	if n, err := c.ReadAt(b, off); n != len(b) || err != nil {
		r.Fatalf("read %d bytes at %d: %d, %v", len(b), off, n, err)
	}
	return b
}

func (r *rig) sync(c *netmem.Client) {
	r.Helper()
	if err := c.Sync(); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) close(c *netmem.Client) {
	r.Helper()
	if err := c.Close(); err != nil {
		r.Fatal(err)
	}
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

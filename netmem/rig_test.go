package netmem_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// patience limits waits of tests for what is meant to come: a server that only waits for its turn is not dead.
const patience = 2 * time.Minute

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
	a, b := must.Two(emulator.Pair(o))(t)
	quiet := via.Options{OnError: func(via.AsyncError) {}}
	r := &rig{TB: t}
	r.near = must.Get(via.OpenDevice(t.Context(), a, quiet))(t)
	r.far = must.Get(via.OpenDevice(t.Context(), b, quiet))(t)
	t.Cleanup(func() {
		should.OK(t, errors.Join(r.near.Close(), r.far.Close()))
	})
	return r
}

// together runs tests at the same time that wait for timeouts, and use little of the processor. What
// they leave behind is looked for after all of them.
func together(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	leaktest.Check(t)
	waittest.Together(t, tests)
}

// serve starts a server, which ends with the test at the latest.
func (r *rig) serve(o netmem.ServerOptions) *netmem.Server {
	r.Helper()
	s := must.Get(netmem.NewServer(r.Context(), r.far, o))(r)
	r.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// kill ends a server.
func (r *rig) kill(s *netmem.Server) {
	r.Helper()
	must.OK(r, s.Close())
}

// open opens a client, which ends with the test at the latest.
func (r *rig) open(o netmem.Options, servers ...*netmem.Server) *netmem.Client {
	r.Helper()
	return must.Get(r.tryOpen(o, servers...))(r)
}

func (r *rig) tryOpen(o netmem.Options, servers ...*netmem.Server) (*netmem.Client, error) {
	var list []string
	for _, s := range servers {
		list = append(list, s.Address().String())
	}
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	if o.Copies > 1 {
		o.Store = &r.store
	}
	if o.Cache == 0 { // the default takes longer to allocate than most tests take
		o.Cache = 4 << 20
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
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
	waittest.Until(r, what, f)
}

func (r *rig) write(c *netmem.Client, b []byte, off int64) {
	r.Helper()
	must.Give(c.WriteAt(b, off))(r, len(b), "write bytes at %d", off)
}

func (r *rig) read(c *netmem.Client, n int, off int64) []byte {
	r.Helper()
	b := make([]byte, n)
	must.Give(c.ReadAt(b, off))(r, len(b), "read bytes at %d", off)
	return b
}

func (r *rig) sync(c *netmem.Client) {
	r.Helper()
	must.OK(r, c.Sync())
}

func (r *rig) close(c *netmem.Client) {
	r.Helper()
	must.OK(r, c.Close())
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestStatsDescribed(t *testing.T) {
	statstest.Check(t, netmem.Stats{}, netmem.ServerStats{}, netmem.MapStats{})
}

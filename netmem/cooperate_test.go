package netmem_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

const coopPage = 8192

// crew is a page server and clients that use each other's memory, on NICs of their own.
type crew struct {
	*rig
	server *netmem.Server
	nics   []*via.NIC
	hosts  []string
}

// newCrew makes a server with content in so many pages, and NICs for n clients.
func newCrew(t testing.TB, n, pages int) *crew {
	t.Helper()
	leaktest.Check(t)
	devices := must.Get(emulator.Fleet(t.Context(), "emu:", make([]string, n+1)))(t)
	c := &crew{rig: &rig{TB: t}}
	for i, d := range devices {
		nic := must.Get(via.OpenDevice(t.Context(), d, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() { _ = nic.Close() })
		if i == 0 {
			c.far = nic
			continue
		}
		c.nics = append(c.nics, nic)
		c.hosts = append(c.hosts, via.Address{MAC: nic.Query().Address, Discriminator: fmt.Sprintf("host-%d", i-1)}.String())
	}
	c.near = c.nics[0]
	c.server = c.serve(netmem.ServerOptions{Page: coopPage, Size: int64(pages) * coopPage})
	w := c.rig.open(netmem.Options{}, c.server)
	for i := range pages {
		c.write(w, content(i), int64(i)*coopPage)
	}
	c.rig.close(w)
	return c
}

// content of a page.
func content(page int) []byte { return randomBytes(uint64(page), coopPage) }

// join opens client i, with so many frames, which lends all of them.
func (c *crew) join(i, frames int) *netmem.Client {
	c.Helper()
	o := netmem.Options{
		Cache: int64(frames) * coopPage, ReadAhead: -1, Timeout: patience,
		Cooperation: &netmem.Cooperation{Hosts: c.hosts, Name: fmt.Sprintf("host-%d", i)},
	}
	x := must.Get(netmem.Open(c.Context(), c.nics[i], []string{c.server.Address().String()}, o))(c)
	c.Cleanup(func() { _ = x.Close() })
	return x
}

// TestCooperate: a working set that fits into no client alone comes from the others' idle memory.
func TestCooperate(t *testing.T) {
	const pages, frames = 80, 32
	c := newCrew(t, 3, pages)
	busy, idle, other := c.join(0, frames), c.join(1, frames), c.join(2, frames)
	c.until("all to be connected", func() bool { return connected(busy) == 2 && connected(idle) == 2 })
	c.until("ages", func() bool { return busy.Stats().Sent > 0 || read(c, busy, pages) })
	before := busy.Stats()
	r := rand.New(rand.NewPCG(1, 2))
	for range 4 * pages {
		c.expect(busy, r.IntN(pages))
	}
	s := busy.Stats()
	if i, o := idle.Stats(), other.Stats(); i.Kept+o.Kept == 0 || i.Given+o.Given < s.FromHosts {
		t.Errorf("%d and %d pages are kept, %d given, and %d came", i.Kept, o.Kept, i.Given+o.Given, s.FromHosts)
	}
	misses, near := s.Misses-before.Misses, s.FromHosts-before.FromHosts
	if 4*near < misses || s.Wrong != 0 {
		t.Errorf("%d of %d misses came from hosts, %d wrong", near, misses, s.Wrong)
	}
}

// expect reads a page and compares it.
func (c *crew) expect(x *netmem.Client, page int) {
	c.Helper()
	c.expectOf(x, page, content(page))
}

func (c *crew) expectOf(x *netmem.Client, page int, want []byte) {
	c.Helper()
	must.Same(c, c.read(x, coopPage, int64(page)*coopPage), want, "page %d is wrong", page)
}

func connected(c *netmem.Client) (n int) {
	for _, h := range c.Stats().Hosts {
		if h.Connected {
			n++
		}
	}
	return n
}

// read reads all pages once. It reports false.
func read(c *crew, x *netmem.Client, pages int) bool {
	for i := range pages {
		c.expect(x, i)
	}
	return false
}

// TestHostDies: a host that dies while its pages are fetched and sent takes copies with it, and nothing
// else; when it is back it is used again.
func TestHostDies(t *testing.T) {
	const pages, frames = 40, 16
	c := newCrew(t, 2, pages)
	busy := c.join(0, frames)
	for range 2 {
		idle := c.join(1, 2*frames)
		from := busy.Stats().FromHosts
		c.until("pages to come from the other", func() bool {
			return busy.Stats().FromHosts > from+10 || read(c, busy, pages)
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.close(idle)
		}()
		for closed := false; !closed; {
			read(c, busy, pages/4)
			select {
			case <-done:
				closed = true
			default:
			}
		}
		c.until("the death to be noticed", func() bool { return connected(busy) == 0 || read(c, busy, pages) })
		read(c, busy, pages)
	}
	s := busy.Stats()
	if h := s.Hosts[0]; h.Broken < 2 || h.Wrong != 0 || h.Err == nil || !strings.Contains(h.Err.Error(), c.hosts[1]) {
		t.Errorf("%+v", h)
	}
}

package memif_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

// exchange sends frames both ways.
func exchange(t *testing.T, a, b *memif.Port) {
	t.Helper()
	for i := range 20 {
		for _, way := range [][2]*memif.Port{{a, b}, {b, a}} {
			f := pattern(i, 10+i*50)
			must.Be(t, send(way[0], f), true, "no room")
			must.Same(t, receive(way[1]), f, "received bytes")
		}
	}
}

// TestReconnect closes and opens one end again and again, while the other
// stays: it is used, or nobody looks at it, or it has frames in its hands.
func TestReconnect(t *testing.T) {
	rounds := soak.Count(4, 16)
	for _, role := range []memif.Role{memif.Client, memif.Server} {
		for name, meanwhile := range map[string]func(stays *memif.Port){
			"used":      use,
			"not used":  func(*memif.Port) {},
			"reserving": func(p *memif.Port) { p.Reserve(50) },
			"holding":   func(p *memif.Port) { p.Receive() },
		} {
			t.Run(role.String()+" stays, "+name, func(t *testing.T) {
				leaktest.Check(t)
				socket := socketPath(t)
				stays := newPort(t, memif.Options{Socket: socket, Role: role, Queues: 2})
				files := 0
				for i := range rounds {
					comes := newPort(t, memif.Options{Socket: socket, Role: memif.Client + memif.Server - role, Queues: 2})
					waittest.Until(t, "link up", func() bool { return stays.LinkUp() && comes.LinkUp() })
					for stays.Receive() != nil {
						stays.Release()
					}
					exchange(t, stays, comes)
					send(comes, pattern(i, 99))
					meanwhile(stays)
					should.OK(t, comes.Close())
					waittest.Until(t, "link down", func() bool { return !stays.LinkUp() })
					waittest.Until(t, "the end of the connection", func() bool {
						s := stays.Stats()
						return s.Disconnects >= uint64(i+1)
					})
					if i == 0 {
						files = leaktest.Files(t)
					} else if n := leaktest.Files(t); n > files {
						t.Errorf("round %d: %d file descriptors, after the first round there were %d", i, n, files)
					}
					if n := leaktest.Mappings(t); n > 0 {
						t.Errorf("round %d: %d mappings of shared memory without a peer", i, n)
					}
					stays.Release()
				}
				should.Be(t, stays.Stats().Connections, uint64(rounds), "connections")
			})
		}
	}
}

// TestMappingsAreGivenBack: addresses, too, once they are known to be out of
// use.
func TestMappingsAreGivenBack(t *testing.T) {
	a, b := connected(t, memif.Options{}, memif.Options{})
	exchange(t, a, b)
	before := mappings(t)
	for range 20 {
		a.SetLink(false)
		waittest.Until(t, "link down", func() bool { return !b.LinkUp() })
		a.SetLink(true)
		waittest.Until(t, "link up", func() bool { return a.LinkUp() && b.LinkUp() })
		exchange(t, a, b)
	}
	// The runtime makes mappings of its own now and then.
	if after := mappings(t); after > before+15 {
		t.Errorf("%d mappings, before there were %d", after, before)
	}
}

// TestUnplugWhileBusy pulls plugs while frames go through.
func TestUnplugWhileBusy(t *testing.T) {
	for _, k := range kinds[:3] {
		leaktest.Check(t)
		a, b := connected(t, k.a, k.b)
		stop := make(chan struct{})
		var busy sync.WaitGroup
		for _, p := range []*memif.Port{a, b} {
			for _, f := range []func(){
				func() { send(p, pattern(1, min(p.MTU(), 1000))) },
				func() { p.Receive(); p.Release() },
			} {
				busy.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							f()
							runtime.Gosched()
						}
					}
				})
			}
		}
		for i := range soak.Count(4, 20) {
			p := []*memif.Port{a, b}[i%2]
			p.SetLink(false)
			should.Be(t, p.LinkUp(), false, "link is up with the plug out")
			p.SetLink(true)
			waittest.Until(t, "link up", func() bool { return a.LinkUp() && b.LinkUp() })
		}
		close(stop)
		busy.Wait()
	}
}

// TestCloseWhileBusy closes ports under the hands of those who use them.
func TestCloseWhileBusy(t *testing.T) {
	for range 10 {
		leaktest.Check(t)
		a, b := connected(t, memif.Options{}, memif.Options{Queues: 2})
		stop := make(chan struct{})
		var busy sync.WaitGroup
		for _, p := range []*memif.Port{a, b} {
			p.SetWake(func() {})
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						use(p)
					}
				}
			})
		}
		for _, p := range []*memif.Port{a, b} {
			should.OK(t, p.Close())
		}
		close(stop)
		busy.Wait()
	}
}

// TestClientFirst: it does not matter who comes first.
func TestClientFirst(t *testing.T) {
	leaktest.Check(t)
	socket := socketPath(t)
	client := newPort(t, memif.Options{Socket: socket, Role: memif.Client})
	waittest.Until(t, "it has tried", func() bool { return errors.Is(client.Stats().Err, wire.ErrNotListening) })
	server := newPort(t, memif.Options{Socket: socket, Role: memif.Server})
	waittest.Until(t, "link up", func() bool { return client.LinkUp() && server.LinkUp() })
	exchange(t, client, server)
}

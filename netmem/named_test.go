package netmem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// nameService is a service of names in memory, whose leases end when a test says so.
type nameService struct {
	mu   sync.Mutex
	list []via.Address
	away bool
}

var errAway = errors.New("the service is away")

// publish enters a server, and returns a channel that is closed when its lease ends, and a function that ends it.
func (s *nameService) publish(a via.Address) (lost chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, a)
	lost = make(chan struct{})
	return lost, func() {
		close(lost) // the server knows before others do
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = slices.DeleteFunc(s.list, func(b via.Address) bool { return a.String() == b.String() })
	}
}

func (s *nameService) Resolve(context.Context, string) ([]via.Address, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errAway
	}
	return slices.Clone(s.list), nil
}

func (s *nameService) Publish(context.Context, string, via.Address, time.Duration) (*via.Publication, error) {
	return nil, errors.ErrUnsupported
}

func (s *nameService) Watch(context.Context, string, func([]via.Address)) error {
	return errors.ErrUnsupported
}

const namedPage = 4096

// namedRig is a pool with a name.
type namedRig struct {
	*rig
	names   *nameService
	servers map[string]*netmem.Server
	end     map[string]func() // of the lease
	o       netmem.Options
}

func newNamedRig(t *testing.T, names ...string) *namedRig {
	r := &namedRig{rig: newRig(t, emulator.PairOptions{}), names: &nameService{}, servers: map[string]*netmem.Server{}, end: map[string]func(){}}
	r.near.UseNames(r.names)
	r.o = netmem.Options{Copies: 2, Cache: 16 * namedPage, Timeout: 2 * time.Second, Witness: netmem.WitnessFile(filepath.Join(t.TempDir(), "witness"))}
	for _, name := range names {
		r.join(name)
	}
	return r
}

// join starts a server, and publishes it.
func (r *namedRig) join(name string) {
	r.Helper()
	r.servers[name] = r.serve(netmem.ServerOptions{Name: name, Page: namedPage, Size: 64 * namedPage})
	r.publish(name)
}

func (r *namedRig) publish(name string) {
	lost, end := r.names.publish(r.servers[name].Address())
	r.servers[name].Fence(lost)
	r.end[name] = end
}

func (r *namedRig) openNamed() *netmem.Client {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	c, err := netmem.Open(ctx, r.near, []string{"memory"}, r.o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// has waits until the members of a client's pool are these servers, and complete.
func (r *namedRig) has(c *netmem.Client, names ...string) {
	r.Helper()
	r.until(fmt.Sprint("members ", names), func() bool {
		all := c.Stats().Servers
		return len(all) == len(names) && complete(c)() && !slices.ContainsFunc(all, func(s netmem.ServerState) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return r.servers[name].Address().String() == s.Address })
		})
	})
}

// TestNamedOrNot: servers of a pool with a name are refused to a client that names them one by one.
// It is told that this is the reason.
func TestNamedOrNot(t *testing.T) {
	r := newNamedRig(t, "a", "b")
	r.close(r.openNamed())
	_, err := r.tryOpen(netmem.Options{Copies: 2}, r.servers["a"], r.servers["b"])
	if !errors.Is(err, netmem.ErrOtherPool) || !strings.Contains(err.Error(), "name the same servers or pool") {
		t.Error(err)
	}
}

// TestMembersByName: a server that publishes the name later gets its part of the pages, and one that
// withdraws it is not needed any more. A client that opens the pool then finds all that was written.
func TestMembersByName(t *testing.T) {
	r := newNamedRig(t, "a", "b", "c")
	c := r.openNamed()
	r.has(c, "a", "b", "c")
	want := randomBytes(1, 64*namedPage)
	r.write(c, want, 0)
	r.sync(c)
	r.join("d")
	r.has(c, "a", "b", "c", "d")
	if r.servers["d"].Stats().Stored == 0 {
		t.Error("no page has moved to the server that has come")
	}
	r.names.mu.Lock()
	r.names.away = true // no server has left because of that
	r.names.mu.Unlock()
	copy(want[8*namedPage:], randomBytes(2, 8*namedPage))
	r.write(c, want[8*namedPage:16*namedPage], 8*namedPage)
	r.sync(c)
	time.Sleep(3 * r.o.Timeout / 2)
	r.has(c, "a", "b", "c", "d")
	r.names.mu.Lock()
	r.names.away = false
	r.names.mu.Unlock()
	for i, name := range []string{"a", "b"} {
		r.end[name]()
		r.has(c, []string{"b", "c", "d"}[i:]...)
		r.kill(r.servers[name])
	}
	other := r.openNamed()
	for _, c := range []*netmem.Client{c, other} {
		if got := r.read(c, len(want), 0); !bytes.Equal(got, want) {
			t.Error("other bytes were read than written")
		}
	}
}

// TestLeaseEndsDuringWrites: the lease of a server ends while pages are written all the time. It
// answers no more, the others go on, and nothing acknowledged is lost. Once it has the name again it
// comes back, and its old pages with it, of which none is read.
func TestLeaseEndsDuringWrites(t *testing.T) {
	r := newNamedRig(t, "a", "b")
	folder := t.TempDir()
	lent, err := os.Create(filepath.Join(folder, "c"))
	if err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	r.join("c")
	c := r.openNamed()
	r.has(c, "a", "b", "c")
	var acknowledged [64]atomic.Uint32 // by page
	stop, done := make(chan struct{}), make(chan error, 1)
	rounds := make(chan struct{}, 1)
	go func() {
		for round := uint32(1); ; round++ {
			for page := range acknowledged {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				_, err := c.WriteAt(bytes.Repeat([]byte{byte(round)}, namedPage), int64(page)*namedPage)
				if err == nil {
					err = c.Sync()
				}
				if err != nil {
					done <- err
					return
				}
				acknowledged[page].Store(round)
			}
			select {
			case rounds <- struct{}{}:
			default:
			}
		}
	}()
	written := func() {
		t.Helper()
		for range 2 {
			select {
			case <-rounds:
			case err := <-done:
				t.Fatal(err)
			case <-time.After(time.Minute):
				t.Fatal("no page is written any more")
			}
		}
	}
	written()
	r.end["c"]()
	before := r.servers["c"].Stats()
	r.has(c, "a", "b")
	written()
	if now := r.servers["c"].Stats(); now.Fetches != before.Fetches || now.Writes > before.Writes+1 {
		t.Errorf("a server without a lease has answered: %+v, then %+v", before, now)
	}
	r.kill(r.servers["c"])
	if lent, err = os.OpenFile(lent.Name(), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	r.join("c")
	r.has(c, "a", "b", "c")
	written()
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.close(c)
	other := r.openNamed()
	r.has(other, "a", "b", "c")
	for page := range acknowledged {
		got := r.read(other, namedPage, int64(page)*namedPage)
		if want := acknowledged[page].Load(); got[0] != byte(want) && got[0] != byte(want+1) {
			t.Errorf("page %d is of round %d, and round %d was acknowledged", page, got[0], want)
		}
	}
}

// TestNamedOptions: what cannot be a pool with a name is refused.
func TestNamedOptions(t *testing.T) {
	r := newNamedRig(t, "a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c, err := netmem.Open(ctx, r.near, []string{"memory"}, r.o); !errors.Is(err, netmem.ErrOption) {
		t.Errorf("one server for two copies: %v, %v", c, err)
	}
	r.names.away = true
	if c, err := netmem.Open(ctx, r.near, []string{"memory"}, r.o); !errors.Is(err, netmem.ErrUnavailable) || !errors.Is(err, errAway) {
		t.Errorf("a service that is away: %v, %v", c, err)
	}
}

package netmem_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestLoss: over a wire that loses a fifth of its frames, and doubles and reorders others,
// pages arrive as they are.
func TestLoss(t *testing.T) {
	const page, pages = 8192, 48
	r := newRig(t, emulator.PairOptions{Faults: wire.FaultOptions{Loss: 0.2, Duplicate: 0.05, Reorder: 0.05, Seed: 7}})
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 8 * page, Timeout: 40 * time.Second, ReadAhead: 2 * page}, s)
	model := randomBytes(3, page*pages)
	r.write(c, model, 0)
	for i := range 8 {
		b := randomBytes(uint64(i), 3000)
		r.write(c, b, int64(i*40_000))
		copy(model[i*40_000:], b)
	}
	r.sync(c)
	c.Drop()
	should.Same(t, r.read(c, len(model), 0), model, "other bytes than were written")
	should.Be(t, c.Stats().Failures, 0, "connections that broke")
}

// onSwitch makes NICs that are plugged into a switch, each with its plug. The first one has a filter, unless that is nil.
func onSwitch(t *testing.T, n int, filter wire.FilterFunc) ([]*via.NIC, []wire.Port) {
	t.Helper()
	ports := must.Get(wire.NewSwitch(n, wire.SwitchOptions{}))(t)
	if filter != nil {
		ports[0] = wire.NewFilter(ports[0], filter)
	}
	var nics []*via.NIC
	for i, p := range ports {
		d := must.Get(emulator.New(emulator.Options{Name: fmt.Sprintf("emu:%d", i), Wire: p, Thread: true}))(t)
		nic := must.Get(via.OpenDevice(t.Context(), d, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() {
			should.OK(t, nic.Close())
		})
		nics = append(nics, nic)
	}
	return nics, ports
}

// cutTimeout is how long calls to a server last that is cut off. It is no shorter, as servers
// that are not take their time too where other programs want the processors.
const cutTimeout = 5 * time.Second

// reconnectCached: calls of the cache, which have no context, wait for the server, which is restarted
// meanwhile, as long as the timeout says, together: once it has been away for so long it is taken for dead.
func reconnectCached(t *testing.T) {
	const page = 4096
	r := newRigBesides(t, emulator.PairOptions{})
	o := netmem.ServerOptions{Page: page, Size: 64 * page}
	s := r.serve(o)
	c := r.open(netmem.Options{Cache: 16 * page, Timeout: 30 * time.Second, ReadAhead: -1}, s)
	content := randomBytes(1, 8*page)
	r.write(c, content, 0)
	r.kill(s)
	back := make(chan *netmem.Server)
	time.AfterFunc(300*time.Millisecond, func() { back <- r.serve(o) })
	r.sync(c)
	s = <-back
	c.Drop()
	should.Same(t, r.read(c, len(content), 0), content)
	r.close(c)
	dead := r.open(netmem.Options{Cache: 16 * page, Timeout: cutTimeout, ReadAhead: -1}, s)
	r.write(dead, content, 0)
	r.kill(s)
	should.Fail(t, dead.Sync(), netmem.ErrUnavailable, "sync without a server")
	start := time.Now()
	for range 200 {
		should.Refuse(dead.ReadAt(content[:1], 60*page))(t, netmem.ErrUnavailable, "read without a server")
	}
	if took := time.Since(start); took > time.Minute { // 1,000 s if each of them had waited
		t.Errorf("200 reads from a server that is dead took %v", took)
	}
}

// TestDeadline: while a server says nothing, calls end at the deadline and not at the timeout;
// what was written stays in the cache, and is on the server once that answers and there is no
// deadline any more.
func TestDeadline(t *testing.T) {
	const page, pages = 4096, 64
	nics, plugs := onSwitch(t, 2, nil)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 16 * page, ReadAhead: -1, Timeout: time.Hour}, s)
	want := randomBytes(1, page*16)
	r.write(c, want[:8*page], 0)
	r.sync(c)
	r.read(c, page, 40*page)
	r.write(c, want, 0) // all frames are dirty
	plugs[1].SetLink(false)
	for name, call := range map[string]func() error{
		"read of a page that is missed":     func() error { _, err := c.ReadAt(make([]byte, page), 50*page); return err },
		"write of a part of one":            func() error { _, err := c.WriteAt([]byte("part"), 51*page); return err },
		"write of one, which needs a frame": func() error { _, err := c.WriteAt(make([]byte, page), 52*page); return err },
		"sync":                              c.Sync,
	} {
		must.OK(t, c.SetDeadline(time.Now().Add(100*time.Millisecond)))
		should.Fail(t, call(), os.ErrDeadlineExceeded, "%s", name)
	}
	should.Refuse(c.ReadAt(make([]byte, 1), 0))(t, os.ErrDeadlineExceeded, "a read of what is in the cache, after the deadline")
	must.OK(t, c.SetDeadline(time.Time{}))
	should.Same(t, r.read(c, 4*page, 0), want[:4*page], "the cache has other bytes than were written")
	plugs[1].SetLink(true)
	r.sync(c)
	other := r.open(netmem.Options{}, s)
	should.Same(t, r.read(other, len(want), 0), want, "the server has other bytes than were written")
	r.close(c)
	should.Fail(t, c.SetDeadline(time.Now()), net.ErrClosed, "a closed client")
}

// TestAway: what clients do while servers are away, in part until a timeout.
func TestAway(t *testing.T) {
	together(t, map[string]func(*testing.T){
		"hostile answers":     hostileAnswers,
		"reconnect, cached":   reconnectCached,
		"open beside silence": openBesideSilence,
		"source":              sourceOfTwo,
		"stuck client":        stuckClient,
	})
}

// sourceOfTwo: pages move between servers and memory, by their places there, with versions,
// and survive the death of one server.
func sourceOfTwo(t *testing.T) {
	const page = 8192
	r := newRigBesides(t, emulator.PairOptions{})
	a := r.serve(netmem.ServerOptions{Name: "a", Page: page, Size: 16 * page})
	b := r.serve(netmem.ServerOptions{Name: "b", Page: page, Size: 16 * page})
	servers := []string{a.Address().String(), b.Address().String()}
	var s netmem.PageSource
	r.until("the source opens in time", func() bool { // not at once where the machine is busy
		var err error
		s, err = netmem.OpenSource(t.Context(), r.near, servers, netmem.Options{Copies: 2, Store: &r.store, Timeout: cutTimeout})
		return err == nil
	})
	defer func() {
		should.OK(t, s.(io.Closer).Close())
	}()
	if s.Size() != 16*page || s.PageSize() != page {
		t.Errorf("%d bytes by pages of %d", s.Size(), s.PageSize())
	}
	should.Refuse(s.ReadPage(t.Context(), 0, 0))(t, netmem.ErrOutside, "read without memory")
	m := must.Get(s.Alloc(4 * page))(t)
	must.Be(t, len(m), 4*page)
	if _, err := s.Alloc(page); err == nil {
		t.Error("memory was made twice")
	}
	first := must.Get(s.ReadPage(t.Context(), 5, page))(t)
	should.Same(t, m[page:2*page], make([]byte, page), "a page that nobody has written")
	content := randomBytes(1, page)
	copy(m[2*page:], content)
	second, err := s.WritePage(t.Context(), 5, 2*page, first)
	if err != nil || second <= first {
		t.Fatalf("version %d after %d: %v", second, first, err)
	}
	other := r.open(netmem.Options{Copies: 2}, a, b)
	r.write(other, []byte("other"), 5*page)
	r.sync(other)
	should.Refuse(s.WritePage(t.Context(), 5, 2*page, second))(t, netmem.ErrConflict, "a page that another client has written")
	r.kill(a)
	must.Get(s.ReadPage(t.Context(), 5, 0))(t)
	should.Same(t, m[:page], append([]byte("other"), content[5:]...), "from the other server")
	for _, c := range []struct {
		page uint64
		at   int
	}{{math.MaxUint64, 0}, {16, 0}, {0, -1}, {0, 3*page + 1}} {
		should.Refuse(s.ReadPage(t.Context(), c.page, c.at))(t, netmem.ErrOutside, "read page %d to %d", c.page, c.at)
		should.Refuse(s.WritePage(t.Context(), c.page, c.at, 0))(t, netmem.ErrOutside, "write page %d from %d", c.page, c.at)
	}
}

// openBesideSilence: a client of servers that hold copies for each other does not wait for
// one that says nothing as long as a server may take for an answer.
func openBesideSilence(t *testing.T) {
	const page = 4096
	nics, plugs := onSwitch(t, 3, nil)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Name: "a", Page: page, Size: 16 * page})
	r.far = nics[2]
	gone := r.serve(netmem.ServerOptions{Name: "b", Page: page, Size: 16 * page})
	options := netmem.Options{Copies: 2, Store: &r.store, Cache: 16 * page}
	first := r.open(options, s, gone)
	want := randomBytes(1, 16*page)
	r.write(first, want, 0)
	r.close(first)
	plugs[2].SetLink(false)
	options.Timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := must.Get(netmem.Open(ctx, r.near, []string{s.Address().String(), gone.Address().String()}, options))(t)
	defer r.close(c)
	if ctx.Err() != nil {
		t.Error("it has waited for a server that says nothing")
	}
	for _, s := range c.Stats().Servers {
		if s.Complete && s.Address == gone.Address().String() {
			t.Errorf("%+v", s)
		}
	}
}

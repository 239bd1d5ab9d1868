package netmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire"
)

// pairOfServers is a client's NIC and two servers, each on a NIC that can be cut off.
type pairOfServers struct {
	*rig
	list  []*netmem.Server
	plugs []*wire.Switch
	o     netmem.Options
}

const (
	pairPage  = 4096
	pairPages = 24
)

func newPairOfServers(t *testing.T, witness bool) *pairOfServers {
	t.Helper()
	nics, plugs := onSwitch(t, 3)
	p := &pairOfServers{rig: &rig{TB: t, near: nics[0]}, plugs: plugs[1:]}
	for i, nic := range nics[1:] {
		p.far = nic
		p.list = append(p.list, p.serve(netmem.ServerOptions{Name: fmt.Sprint(i), Page: pairPage, Size: pairPage * pairPages}))
	}
	p.o = netmem.Options{Copies: 2, Cache: 32 * pairPage, Timeout: cutTimeout, ReadAhead: -1}
	if witness {
		p.o.Witness = netmem.WitnessFile(t.TempDir() + "/witness")
	}
	return p
}

// use opens a client, has it do something, and closes it.
func (p *pairOfServers) use(f func(c *netmem.Client) error) error {
	p.Helper()
	c, err := p.tryOpen(p.o, p.list...)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

func (p *pairOfServers) fill(b byte) error {
	p.Helper()
	return p.use(func(c *netmem.Client) error {
		_, err := c.WriteAt(bytes.Repeat([]byte{b}, pairPage*pairPages), 0)
		return errors.Join(err, c.Sync())
	})
}

// wantAll checks that a new client reads nothing but b.
func (p *pairOfServers) wantAll(what string, b byte) {
	p.Helper()
	got := make([]byte, pairPage*pairPages)
	err := p.use(func(c *netmem.Client) error { _, err := c.ReadAt(got, 0); return err })
	if other := bytes.IndexFunc(got, func(r rune) bool { return byte(r) != b }); err != nil || other >= 0 {
		p.Errorf("%s: %v, and byte %d is %d, not %d", what, err, other, got[max(0, other)], b)
	}
}

// wantComplete waits until a client sees both servers complete.
func (p *pairOfServers) wantComplete() {
	p.Helper()
	if err := p.use(func(c *netmem.Client) error { p.until("both servers to be complete", complete(c)); return nil }); err != nil {
		p.Error(err)
	}
}

// acknowledgedWhileAway: what was acknowledged while a server was away is read after it is back
// and the writer is gone, from either server alone.
func acknowledgedWhileAway(t *testing.T, away int) {
	p := newPairOfServers(t, true)
	if err := p.fill(1); err != nil {
		t.Fatal(err)
	}
	p.plugs[away].SetLink(false)
	if err := p.fill(2); err != nil {
		t.Fatalf("with a witness and one of two servers: %v", err)
	}
	p.plugs[away].SetLink(true)
	p.wantAll("at once", 2)
	p.wantComplete()
	p.kill(p.list[1-away])
	p.wantAll("from the server that was away", 2)
}

// noWitness: without a witness a write is not acknowledged while a server is away, what was
// acknowledged before can be read, and all goes on when the server is back.
func noWitness(t *testing.T) {
	p := newPairOfServers(t, false)
	if err := p.fill(1); err != nil {
		t.Fatal(err)
	}
	p.plugs[1].SetLink(false)
	p.wantAll("from one server", 1)
	if err := p.fill(2); !errors.Is(err, netmem.ErrUnavailable) {
		t.Errorf("a write with one of two servers: %v", err)
	}
	p.plugs[1].SetLink(true)
	p.wantComplete()
	if err := p.fill(3); err != nil {
		t.Fatal(err)
	}
	p.wantAll("with both again", 3)
}

// twoWriters: after one client has gone on without the second server, another cannot go on
// without the first, and no write of either is lost.
func twoWriters(t *testing.T) {
	p := newPairOfServers(t, true)
	if err := p.fill(1); err != nil {
		t.Fatal(err)
	}
	p.plugs[1].SetLink(false)
	if err := p.fill(2); err != nil {
		t.Fatal(err)
	}
	p.plugs[0].SetLink(false)
	p.plugs[1].SetLink(true)
	healthy := p.o.Timeout
	p.o.Timeout /= 4 // what a shorter one makes fail is to fail
	var both sync.WaitGroup
	both.Go(func() {
		if err := p.use(func(c *netmem.Client) error {
			_, err := c.WriteAt(bytes.Repeat([]byte{3}, pairPage), 0)
			return errors.Join(err, c.Sync())
		}); err == nil {
			t.Error("a write that only the server took which had missed some")
		}
	})
	both.Go(func() {
		got := make([]byte, 1)
		if err := p.use(func(c *netmem.Client) error { _, err := c.ReadAt(got, 0); return err }); err == nil {
			t.Errorf("a read from the server that had missed some: %d", got[0])
		}
	})
	both.Wait()
	p.o.Timeout = healthy
	p.plugs[0].SetLink(true)
	p.wantComplete()
	p.wantAll("after all", 2)
}

// eitherAlone: each of two servers alone has all, whichever was away before.
func eitherAlone(t *testing.T) {
	p := newPairOfServers(t, true)
	if err := p.fill(4); err != nil {
		t.Fatal(err)
	}
	for i := range p.plugs {
		p.plugs[i].SetLink(false)
		p.wantAll(fmt.Sprintf("without server %d", i), 4)
		p.plugs[i].SetLink(true)
		p.wantComplete()
	}
}

// TestWriterDies: a writer that was killed between two copies leaves no copies that differ.
func TestWriterDies(t *testing.T) {
	p := newPairOfServers(t, true)
	if err := p.fill(1); err != nil {
		t.Fatal(err)
	}
	const victim = 7
	k, other := p.caller(p.list[0]), p.caller(p.list[1])
	has, _ := k.stamp(victim)
	copy(k.memory.Bytes(), bytes.Repeat([]byte{9}, pairPage))
	q := protocol.Request{Operation: protocol.Write, Length: pairPage, Page: victim, Expected: has.Version, Next: has.Version + 1, Client: 99, Epoch: k.epoch(), Incarnation: k.incarnation}
	if r := k.ask(q, pairPage); r.Result != protocol.OK {
		t.Fatal(r.Result)
	}
	same := func() bool {
		a, ok := k.stamp(victim)
		b, okToo := other.stamp(victim)
		return ok && okToo && a.Same(b)
	}
	if same() {
		t.Fatal("the copies do not differ: the test shows nothing")
	}
	if err := p.use(func(*netmem.Client) error { p.until("the copies to be the same", same); return nil }); err != nil {
		t.Error(err)
	}
}

// epoch asks for the epoch of the server's pool.
func (k *caller) epoch() uint64 {
	k.Helper()
	b := make([]byte, protocol.RequestSize)
	(&protocol.Request{Operation: protocol.Describe}).Encode(b)
	d, err := protocol.ParseDescription(k.say(b, 0))
	if err != nil {
		k.Fatal(err)
	}
	return d.Epoch
}

// stamp asks for the stamp of a page. A server whose record changes meanwhile has none.
func (k *caller) stamp(page uint64) (protocol.Stamp, bool) {
	k.Helper()
	q := protocol.Request{Operation: protocol.Stamps, Page: page, Length: protocol.StampSize, Epoch: k.epoch(), Incarnation: k.incarnation}
	if r := k.ask(q, 0); r.Result != protocol.OK {
		return protocol.Stamp{}, false
	}
	return protocol.StampAt(k.memory.Bytes()[netmem.MaxPage:]), true
}

// TestLastVersion: a page whose version is the largest is not written again, and none wraps.
func TestLastVersion(t *testing.T) {
	const page = 4096
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: 4 * page})
	good := r.open(netmem.Options{Cache: 8 * page, Timeout: 30 * time.Second}, s)
	r.write(good, []byte("good"), 0)
	r.sync(good)
	k := r.caller(s)
	ask := func(c protocol.Condition, expected, next uint64) protocol.Reply {
		return k.ask(protocol.Request{Operation: protocol.Write, Condition: c, Length: page, Page: 0, Expected: expected, Next: next, Client: 5, Epoch: 1, Incarnation: k.incarnation}, page)
	}
	const last = 1<<64 - 2
	if r := ask(protocol.IfOlder, 0, last); r.Result != protocol.OK || r.Version != last {
		t.Fatalf("%v, version %d", r.Result, r.Version)
	}
	for what, r := range map[string]protocol.Reply{
		"always":        ask(protocol.Always, 0, 0),
		"if expected":   ask(protocol.IfExpected, last, last+1),
		"if older":      ask(protocol.IfOlder, 0, last+1),
		"exactly":       ask(protocol.Exactly, 0, last+1),
		"always, again": ask(protocol.Always, 0, last+1),
	} {
		if r.Result != protocol.VersionLimit || r.Version == 0 && what == "always" {
			t.Errorf("%s: %v, version %d", what, r.Result, r.Version)
		}
	}
	if st, _ := k.stamp(0); st.Version != last || st.Flags&protocol.Unwritten != 0 {
		t.Errorf("after all: %+v", st)
	}
	good.Drop()
	r.write(good, []byte("x"), 1)
	if err := good.Sync(); !errors.Is(err, netmem.ErrVersionLimit) {
		t.Errorf("a write of a page with the last version: %v", err)
	}
}

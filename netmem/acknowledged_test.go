package netmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
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

// TestAcknowledgedWhileAway: what was acknowledged while a server was away is read after it is back
// and the writer is gone, from either server alone.
func TestAcknowledgedWhileAway(t *testing.T) {
	for away := range 2 {
		t.Run(fmt.Sprintf("server %d", away), func(t *testing.T) {
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
		})
	}
}

// TestNoWitness: without a witness a write is not acknowledged while a server is away, what was
// acknowledged before can be read, and all goes on when the server is back.
func TestNoWitness(t *testing.T) {
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

// TestTwoWriters: after one client has gone on without the second server, another cannot go on
// without the first, and no write of either is lost.
func TestTwoWriters(t *testing.T) {
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
	if err := p.use(func(c *netmem.Client) error {
		_, err := c.WriteAt(bytes.Repeat([]byte{3}, pairPage), 0)
		return errors.Join(err, c.Sync())
	}); err == nil {
		t.Error("a write that only the server took which had missed some")
	}
	got := make([]byte, 1)
	if err := p.use(func(c *netmem.Client) error { _, err := c.ReadAt(got, 0); return err }); err == nil {
		t.Errorf("a read from the server that had missed some: %d", got[0])
	}
	p.plugs[0].SetLink(true)
	p.wantComplete()
	p.wantAll("after all", 2)
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
	k := p.caller(p.list[0])
	has := k.stamp(victim)
	copy(k.memory.Bytes(), bytes.Repeat([]byte{9}, pairPage))
	q := protocol.Request{Operation: protocol.Write, Length: pairPage, Page: victim, Expected: has.Version, Next: has.Version + 1, Client: 99, Epoch: 1, Incarnation: k.incarnation}
	if r := k.ask(q, pairPage); r.Result != protocol.OK {
		t.Fatal(r.Result)
	}
	if a, b := p.caller(p.list[0]).stamp(victim), p.caller(p.list[1]).stamp(victim); a.Same(b) {
		t.Fatal("the copies do not differ: the test shows nothing")
	}
	p.until("the copies to be the same", func() bool {
		p.wantComplete()
		return p.caller(p.list[0]).stamp(victim).Same(p.caller(p.list[1]).stamp(victim))
	})
}

// stamp asks for the stamp of a page.
func (k *caller) stamp(page uint64) protocol.Stamp {
	k.Helper()
	var b [protocol.RequestSize]byte
	(&protocol.Request{Operation: protocol.Stamps, Page: page, Length: protocol.StampSize, Epoch: 1, Incarnation: k.incarnation}).Encode(b[:])
	into := ring.Frame{Memory: k.memory, Offset: netmem.MaxPage, Length: netmem.MaxPage}
	r, err := k.Call(k.Context(), b[:], ring.Frame{}, into)
	if err != nil || r.Length != protocol.StampSize {
		k.Fatalf("%d bytes of stamps, %v", r.Length, err)
	}
	return protocol.StampAt(into.Bytes())
}

// TestLastVersion: a page whose version is the largest is not written again, and none wraps.
func TestLastVersion(t *testing.T) {
	const page = 4096
	r := newRig(t)
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
	if st := k.stamp(0); st.Version != last || st.Flags&protocol.Unwritten != 0 {
		t.Errorf("after all: %+v", st)
	}
	good.Drop()
	r.write(good, []byte("x"), 1)
	if err := good.Sync(); !errors.Is(err, netmem.ErrVersionLimit) {
		t.Errorf("a write of a page with the last version: %v", err)
	}
}

package netmem

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// TestBlankServer: a server that has restarted without its pages is not read from, and takes no write, before it
// knows that it joins.
func TestBlankServer(t *testing.T) {
	d := newDirect(t, "a", "b")
	c := d.client(t, Options{Copies: 2}, "a", "b")
	frame := d.page(t, 7)
	base := must.Get(c.Fetch(t.Context(), 0, d.page(t, 0)))(t)
	must.Get(c.Store(t.Context(), 0, base, frame))(t)
	var room [maxCopies]*link
	list, members := c.pool.places(c.pool.view.Load(), 0, room[:0])
	last := list[members-1].address.Discriminator
	over := make(chan bool)
	t.Cleanup(func() { close(over) })
	d.setLoss(func(_ string, q *protocol.Request, _ func()) bool {
		if q.Operation == protocol.Adopt {
			<-over
		}
		return q.Operation == protocol.Adopt
	})
	d.restart(t, string(last))
	blank := func(k *link) bool { l := k.now.Load(); return l != nil && l.blank() }
	waittest.Until(t, "the server that has restarted", func() bool { return slices.ContainsFunc(c.pool.links, blank) })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	clear(frame.Bytes())
	if _, err := c.Fetch(ctx, 0, frame); err == nil && frame.Bytes()[0] != 7 {
		t.Errorf("the page is %d", frame.Bytes()[0])
	}
	if _, err := c.Store(ctx, 0, base+1, frame); err == nil {
		t.Error("a write was acknowledged")
	}
}

// TestPoolAfterFirstClient: servers whose first client has died before it has told all their pool can be used.
func TestPoolAfterFirstClient(t *testing.T) {
	names := []string{"a", "b", "c"}
	d := newDirect(t, names...)
	d.setLoss(func(server string, q *protocol.Request, _ func()) bool {
		return q.Operation == protocol.Adopt && server != "a"
	})
	first := d.client(t, Options{Copies: 2}, names...)
	waittest.Until(t, "a pool", func() bool { return d.server("a").membership.Load().Pool != 0 })
	must.OK(t, first.Close())
	d.setLoss(nil)
	c := d.client(t, Options{Copies: 2}, names...)
	wantComplete(t, c)
	d.use(t, c)
}

// use writes all pages, and reads them.
func (d *direct) use(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for page := range uint64(directPages) {
		base := must.Get(c.Fetch(ctx, page, d.page(t, 0)))(t)
		must.Get(c.Store(ctx, page, base, d.page(t, 5)))(t)
		d.want(t, c, page, 5)
	}
}

// TestTwoFirstClients: of two clients that open new servers at a time, both are open.
func TestTwoFirstClients(t *testing.T) {
	names := []string{"a", "b"}
	d := newDirect(t, names...)
	first, second := make(chan bool), make(chan bool)
	var swaps atomic.Int32
	d.store.onSwap = func() {
		if swaps.Add(1) == 1 {
			close(first)
			<-second
		}
	}
	done := make(chan error)
	go func() {
		c, err := d.open(t.Context(), Options{Copies: 2}, names...)
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	<-first
	d.use(t, d.client(t, Options{Copies: 2}, names...))
	close(second)
	should.OK(t, <-done) // of the slower one
}

// wantComplete waits until a client sees all servers complete.
func wantComplete(t *testing.T, c *Client) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if !slices.ContainsFunc(c.Stats().Servers, func(s ServerState) bool { return !s.Complete }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", c.Stats().Servers)
		}
	}
}

// TestReadWhileJoining: what a client reads while a server joins, that server has too. Else it would
// be read there, once it is a member, as it was before.
func TestReadWhileJoining(t *testing.T) {
	d := newDirect(t, "a", "b")
	c := d.client(t, Options{Copies: 2}, "a", "b")
	d.use(t, c)
	var joins, writes atomic.Bool
	d.setLoss(func(server string, q *protocol.Request, _ func()) bool {
		// Nothing is copied by who compares all pages, nor by the writer.
		return joins.Load() && (q.Operation == protocol.Stamps && q.Length > protocol.StampSize || server == "b" && q.Operation == protocol.Write && writes.Load())
	})
	joins.Store(true)
	d.restart(t, "b")
	waittest.Until(t, "the server to join", func() bool { return d.server("b").membership.Load().joining })
	base := must.Get(c.Fetch(t.Context(), 0, d.page(t, 0)))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	writes.Store(true)
	if _, err := c.Store(ctx, 0, base, d.page(t, 6)); err == nil {
		t.Error("a write was acknowledged that one server has not")
	}
	writes.Store(false)
	d.want(t, c, 0, 6)
	var has [2][1]protocol.Stamp
	for i, name := range []string{"a", "b"} {
		d.server(name).storage.stampsOf(0, has[i][:])
	}
	if !has[0][0].Same(has[1][0]) {
		t.Errorf("the member has %+v, and the other server %+v", has[0], has[1])
	}
}

// TestServerThatIsGone: calls that wait for a server which is not there ask for it now and then.
func TestServerThatIsGone(t *testing.T) {
	d := newDirect(t, "a", "b")
	c := d.client(t, Options{Copies: 2}, "a", "b")
	d.use(t, c)
	d.mu.Lock()
	d.servers["a"], d.servers["b"], d.dials = nil, nil, 0
	d.mu.Unlock()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Fetch(ctx, 0, d.page(t, 0)); err == nil {
		t.Error("a page was read")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// Two servers are dialled at once, and after firstRetry again.
	if most := 2 + 4*int(time.Since(start)/firstRetry); d.dials > 2*most {
		t.Errorf("%d dials, at most %d", d.dials, most)
	}
}

// TestOtherWriteOfClient: a write whose first attempt was lost does not take another write of the
// same client for that attempt.
func TestOtherWriteOfClient(t *testing.T) {
	d := newDirect(t, "a")
	c := d.client(t, Options{}, "a")
	base := must.Get(c.Fetch(t.Context(), 0, d.page(t, 0)))(t)
	lost, written := make(chan bool), make(chan error)
	var attempts atomic.Int32
	d.setLoss(func(_ string, q *protocol.Request, _ func()) bool {
		if q.Operation != protocol.Write || attempts.Add(1) > 1 {
			return false
		}
		close(lost)
		<-written
		return true
	})
	one, other := d.page(t, 1), d.page(t, 2)
	done := make(chan error)
	go func() {
		_, err := c.Store(t.Context(), 0, base, one)
		done <- err
	}()
	<-lost
	must.Get(c.Store(t.Context(), 0, base, other))(t)
	close(written)
	should.Fail(t, <-done, ErrConflict, "the write that came later")
	d.want(t, c, 0, 2)
}

// TestLateWrite: the first attempt at a write of a whole page, which was acknowledged later, does not
// undo another client's write when it arrives after all.
func TestLateWrite(t *testing.T) {
	d := newDirect(t, "a")
	c, other := d.client(t, Options{}, "a"), d.client(t, Options{}, "a")
	var late func()
	d.setLoss(func(_ string, q *protocol.Request, deliver func()) bool {
		if q.Operation != protocol.Write || late != nil {
			return false
		}
		late = deliver
		return true
	})
	write := func(c *Client, b byte) {
		must.Get(c.WriteAt(bytes.Repeat([]byte{b}, MinPage), 0))(t)
		must.OK(t, c.Sync())
	}
	write(c, 1)
	write(other, 2)
	late()
	d.want(t, other, 0, 2)
}

// TestNext: a client takes out a server that it does not reach, but leaves each page a member that it reaches, and lets in
// a server that has restarted or is back.
func TestNext(t *testing.T) {
	const nothing, first, last = -1, 0, 2
	names := []string{"a", "b", "c"}
	for what, c := range map[string]struct {
		// servers has a letter for each: a member that answers (m), is away (a) or has restarted (r), and one that
		// the pool goes on without and that answers (o).
		servers       string
		goes, closing bool // the second server goes while the first is asked, and the client is being closed
		changes       int  // the server that is another process in the next configuration
		in            bool // it is let in
	}{
		"all are here":             {servers: "mmm", changes: nothing},
		"one is away":              {servers: "amm", changes: first},
		"two are away":             {servers: "aam", changes: nothing},
		"one is away, one is out":  {servers: "oam", changes: first, in: true},
		"one is away, one is new":  {servers: "amr", changes: last, in: true},
		"one goes while one is in": {servers: "omm", goes: true, changes: nothing},
		"the client is closed":     {servers: "amm", closing: true, changes: nothing},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDirect(t, names...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := &pool{options: Options{Copies: 2, Timeout: time.Millisecond}}
			v := &view{Configuration: placement.Configuration{Pool: 1, Epoch: 1, Copies: 2}}
			for i, state := range c.servers {
				k := &link{keeper: newKeeper(), pool: p, address: addressOf(names[i]), number: i}
				p.links = append(p.links, k)
				l, _ := must.Two(dialLine(ctx, d, k.address, time.Minute))(t)
				s := placement.Server{Incarnation: l.incarnation, Since: 1}
				k.now.Store(l)
				switch state {
				case 'a':
					k.now.Store(nil)
				case 'r':
					s.Incarnation++
				case 'o':
					s.Incarnation = 0
				}
				v.Servers = append(v.Servers, s)
			}
			d.setLoss(func(string, *protocol.Request, func()) bool {
				if c.goes {
					k := p.links[1]
					_ = k.down(k.now.Load(), ring.ErrPeerGone)
					time.Sleep(2 * p.options.Timeout)
				}
				return c.goes
			})
			if c.closing {
				cancel()
			}
			next, needed := p.next(ctx, v)
			changed := nothing
			for i, s := range next.Servers {
				if s.Incarnation != v.Servers[i].Incarnation {
					changed = i
				}
			}
			if needed != (c.changes != nothing) || changed != c.changes || needed && next.Servers[changed].Present() != c.in {
				t.Errorf("the next configuration is %s, %v", next.Encode(), needed)
			}
		})
	}
}

// TestAdopt: a server takes newer epochs of its pool, and has nothing once it is let in anew.
func TestAdopt(t *testing.T) {
	d := newDirect(t, "a")
	s := d.server("a")
	adopt := func(r protocol.Record, since uint64, joining bool) protocol.Result {
		q := protocol.Request{Operation: protocol.Adopt}
		q.SetRecord(r, since, joining)
		return s.adopt(&q, &protocol.Reply{})
	}
	pool := func(epoch uint64) protocol.Record {
		return protocol.Record{Pool: 1, Epoch: epoch, Base: 5, Members: 9}
	}
	put := func() {
		var r protocol.Reply
		s.storage.write(&protocol.Request{Operation: protocol.Write, Condition: protocol.IfOlder, Length: MinPage, Next: 100}, &r, make([]byte, MinPage))
	}
	for _, step := range []struct {
		what    string
		record  protocol.Record
		since   uint64
		joining bool
		want    protocol.Result
		stored  uint64
	}{
		{"no pool", protocol.Record{}, 1, false, protocol.BadRequest, 0},
		{"no epoch", protocol.Record{Pool: 1}, 1, false, protocol.BadRequest, 0},
		{"the first", pool(2), 1, false, protocol.OK, 0},
		{"once more", pool(2), 1, false, protocol.OK, MinPage},
		{"an older one", pool(1), 1, false, protocol.OtherEpoch, MinPage},
		{"another pool", protocol.Record{Pool: 2, Epoch: 7, Members: 9}, 1, false, protocol.OtherPool, MinPage},
		{"other servers", protocol.Record{Pool: 1, Epoch: 7, Members: 8}, 1, false, protocol.OtherPool, MinPage},
		{"a newer one", pool(3), 1, false, protocol.OK, MinPage},
		{"let in anew", pool(5), 4, true, protocol.OK, 0},
		{"and still", pool(6), 4, true, protocol.OK, MinPage},
		{"a member again", pool(7), 4, false, protocol.OK, MinPage},
	} {
		if got := adopt(step.record, step.since, step.joining); got != step.want || s.storage.stored() != step.stored {
			t.Errorf("%s: %v, not %v, and %d bytes are stored, not %d", step.what, got, step.want, s.storage.stored(), step.stored)
		}
		if step.want == protocol.OK {
			put()
		}
	}
	should.Be(t, len(s.storage.free), len(s.storage.lent)-2, "frames are free of %d", len(s.storage.lent)) // that of zeros, and of the page
}

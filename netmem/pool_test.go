package netmem

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
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
	for !slices.ContainsFunc(c.pool.links, blank) {
		time.Sleep(time.Millisecond)
	}
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
	for d.server("a").membership.Load().Pool == 0 {
		time.Sleep(time.Millisecond)
	}
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
	frame := d.page(t, 0)
	for page := range uint64(directPages) {
		base, err := c.Fetch(ctx, page, frame)
		if err == nil {
			_, err = c.Store(ctx, page, base, d.page(t, 5))
		}
		if err == nil {
			_, err = c.Fetch(ctx, page, frame)
		}
		if err != nil || frame.Bytes()[0] != 5 {
			t.Fatalf("page %d is %d, %v", page, frame.Bytes()[0], err)
		}
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
	if err := <-done; err != nil {
		t.Errorf("the slower one: %v", err)
	}
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
	for !d.server("b").membership.Load().joining {
		time.Sleep(time.Millisecond)
	}
	frame := d.page(t, 0)
	base := must.Get(c.Fetch(t.Context(), 0, frame))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	writes.Store(true)
	if _, err := c.Store(ctx, 0, base, d.page(t, 6)); err == nil {
		t.Error("a write was acknowledged that one server has not")
	}
	writes.Store(false)
	if _, err := c.Fetch(t.Context(), 0, frame); err != nil || frame.Bytes()[0] != 6 {
		t.Fatalf("the page is %d, %v", frame.Bytes()[0], err)
	}
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

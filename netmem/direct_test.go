package netmem

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// direct calls servers without a network, so that a test says what becomes of each request.
type direct struct {
	onNIC

	mu      sync.Mutex
	lose    loss
	servers map[string]*Server // nil: nothing answers
	dials   int
	store   TestStore
}

// loss, which may be nil, says of a request whether it is lost: the call fails then. deliver delivers
// it later.
type loss func(server string, q *protocol.Request, deliver func()) bool

func (d *direct) setLoss(lose loss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lose = lose
}

// emulatedNIC ends with the test.
func emulatedNIC(t *testing.T) *via.NIC {
	t.Helper()
	leaktest.Check(t)
	var nics [2]*via.NIC
	one, other := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
	for i, d := range []*emulator.Device{one, other} {
		nics[i] = must.Get(via.OpenDevice(t.Context(), d, via.Options{}))(t)
		t.Cleanup(func() { _ = nics[i].Close() })
	}
	return nics[0]
}

// newDirect makes servers with directPages pages, by name.
func newDirect(t *testing.T, names ...string) *direct {
	t.Helper()
	d := &direct{onNIC: onNIC{emulatedNIC(t)}, servers: map[string]*Server{}}
	for _, name := range names {
		d.restart(t, name)
	}
	return d
}

const directPages = 2

// restart puts a server that has nothing in the place of another.
func (d *direct) restart(t *testing.T, name string) {
	t.Helper()
	s := must.Get(newServer(t.Context(), d, ServerOptions{Page: MinPage, Size: directPages * MinPage}, nil))(t)
	t.Cleanup(s.cancel)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers[name] = s
}

func (d *direct) server(name string) *Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.servers[name]
}

// open opens a client of servers.
func (d *direct) open(ctx context.Context, o Options, names ...string) (*Client, error) {
	var list []via.Address
	for _, name := range names {
		list = append(list, addressOf(name))
	}
	o.Store, o.Cache, o.ReadAhead, o.Timeout = &d.store, leastFrames*MinPage, -1, time.Minute
	return open(ctx, d.NIC, d, list, o)
}

// open opens a client of servers that a fabric reaches.
func open(ctx context.Context, nic *via.NIC, f fabric, servers []via.Address, o Options) (*Client, error) {
	p, err := openPool(ctx, nic, f, servers, &o)
	return begin(ctx, p, o, err)
}

// client is open for a test.
func (d *direct) client(t *testing.T, o Options, names ...string) *Client {
	t.Helper()
	c := must.Get(d.open(t.Context(), o, names...))(t)
	t.Cleanup(func() { _ = c.Close() }) // it may be unable to write back
	return c
}

// page is memory for a page that is full of b.
func (d *direct) page(t *testing.T, b byte) ring.Frame {
	t.Helper()
	m := must.Get(d.alloc(t.Context(), MinPage, via.MemoryAttributes{}))(t)
	for i := range m.Bytes() {
		m.Bytes()[i] = b
	}
	return ring.Frame{Memory: m, Length: MinPage}
}

// want checks what a page begins with.
func (d *direct) want(t *testing.T, c *Client, page uint64, b byte) {
	t.Helper()
	frame := d.page(t, 0)
	if _, err := c.Fetch(t.Context(), page, frame); err != nil || frame.Bytes()[0] != b {
		t.Errorf("page %d is %d, %v", page, frame.Bytes()[0], err)
	}
}

func (d *direct) dial(_ context.Context, to via.Address, _ time.Duration) (conn, error) {
	name := string(to.Discriminator)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	if d.servers[name] == nil {
		return nil, via.ErrNoMatch
	}
	return &directConn{direct: d, name: name, session: d.servers[name].enter(func() {})}, nil
}

type directConn struct {
	*direct
	name    string
	one     sync.Mutex // a session answers one request at a time
	session *session
}

func (c *directConn) call(_ context.Context, q protocol.Request, send, into ring.Frame) (ring.Reply, error) {
	request := make([]byte, protocol.RequestSize)
	q.Encode(request)
	deliver := func(request, payload []byte, into ring.Frame) ring.Reply {
		c.one.Lock()
		defer c.one.Unlock()
		b, frame, done := c.session.handle(request, payload, into.Length)
		r := ring.MakeReply(b, copy(into.Bytes(), frame.Bytes()))
		if done != nil {
			done()
		}
		return r
	}
	c.mu.Lock()
	lose := c.lose
	c.mu.Unlock()
	if lose != nil {
		request, payload := slices.Clone(request), slices.Clone(send.Bytes())
		if lose(c.name, &q, func() { deliver(request, payload, ring.Frame{}) }) {
			return ring.Reply{}, ring.ErrPeerGone
		}
	}
	if c.server(c.name) != c.session.server {
		return ring.Reply{}, ring.ErrPeerGone
	}
	return deliver(request, send.Bytes(), into), nil
}

func (c *directConn) reader(context.Context, time.Duration) (reader, error) {
	return nil, via.ErrNoMatch
}
func (c *directConn) close() {}

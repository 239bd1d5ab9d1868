package netmem

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
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
	one, other, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var nics [2]*via.NIC
	for i, d := range []*emulator.Device{one, other} {
		if nics[i], err = via.OpenDevice(t.Context(), d, via.Options{}); err != nil {
			t.Fatal(err)
		}
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
	o := ServerOptions{Page: MinPage, Size: directPages * MinPage}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	lent, err := newStorage(t.Context(), d, MinPage, directPages, directPages)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(t.Context(), d, lent, o)
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := d.open(t.Context(), o, names...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it may be unable to write back
	return c
}

// page is memory for a page that is full of b.
func (d *direct) page(t *testing.T, b byte) ring.Frame {
	t.Helper()
	m, err := d.alloc(t.Context(), MinPage, via.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Bytes() {
		m.Bytes()[i] = b
	}
	return ring.Frame{Memory: m, Length: MinPage}
}

func (d *direct) dial(_ context.Context, to via.Address, _ int) (conn, error) {
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

func (c *directConn) call(_ context.Context, request []byte, send, into ring.Frame) (answer, error) {
	q, err := protocol.ParseRequest(request)
	if err != nil {
		return answer{}, err
	}
	deliver := func(r *directReply, request, payload []byte) {
		c.one.Lock()
		defer c.one.Unlock()
		c.session.handle(request, payload, r)
	}
	c.mu.Lock()
	lose := c.lose
	c.mu.Unlock()
	if lose != nil {
		request, payload := slices.Clone(request), slices.Clone(send.Bytes())
		if lose(c.name, &q, func() { deliver(&directReply{}, request, payload) }) {
			return answer{}, ring.ErrPeerGone
		}
	}
	if c.server(c.name) != c.session.server {
		return answer{}, ring.ErrPeerGone
	}
	r := &directReply{into: into}
	deliver(r, request, send.Bytes())
	return r.answer, nil
}

func (c *directConn) reader(context.Context, time.Duration) (reader, error) {
	return nil, via.ErrNoMatch
}
func (c *directConn) close() {}

type directReply struct {
	into ring.Frame
	answer
}

func (r *directReply) Room() int { return r.into.Length }

func (r *directReply) Reply(b []byte, payload ring.Frame, done func()) error {
	r.size, r.length = copy(r.bytes[:], b), copy(r.into.Bytes(), payload.Bytes())
	if done != nil {
		done()
	}
	return nil
}

package netmem

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// lender lends memory of an emulated NIC. The NIC is used by a goroutine outside of the bubbles in
// which time is virtual, as it has timers of its own.
type lender struct {
	asks  chan int
	given chan *via.Memory

	mu   sync.Mutex
	free map[int][]*via.Memory // by size
}

func newLender(t *testing.T) *lender {
	t.Helper()
	nic := emulatedNIC(t)
	l := &lender{asks: make(chan int), given: make(chan *via.Memory), free: map[int][]*via.Memory{}}
	go func() {
		defer close(l.given)
		for bytes := range l.asks {
			m, err := nic.Alloc(context.Background(), bytes, via.MemoryAttributes{})
			should.OK(t, err)
			l.given <- m
		}
	}()
	t.Cleanup(func() {
		close(l.asks)
		<-l.given
	})
	return l
}

func (l *lender) take(bytes int) *via.Memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.free[bytes]; len(list) > 0 {
		m := list[len(list)-1]
		l.free[bytes] = list[:len(list)-1]
		clear(m.Bytes())
		return m
	}
	l.asks <- bytes
	return <-l.given
}

func (l *lender) giveBack(m *via.Memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free[m.Size()] = append(l.free[m.Size()], m)
}

// Errors that a process of the model meets.
var (
	errKilled = errors.New("this process was killed")
	errOver   = errors.New("the schedule is over")
)

// network carries messages between the processes of a schedule, in virtual time.
type network struct {
	*lender
	seed    uint64
	over    chan struct{} // the schedule is
	changes changes       // a cut, or how a process is
	running sync.WaitGroup
	slow    int  // of a thousand messages, so many take long
	reads   bool // clients read the memory of servers
	trace   func(format string, a ...any)

	mu     sync.Mutex
	cut    map[[2]string]int // from one node to another: how often
	serves map[string]*process
}

func newNetwork(l *lender, seed uint64) *network {
	n := &network{lender: l, seed: seed, cut: map[[2]string]int{}, serves: map[string]*process{}, trace: func(string, ...any) {}}
	n.reads = n.random("reads").IntN(3) > 0
	return n
}

// process is one run of a client or server of the model.
type process struct {
	*network
	node    string
	run     int
	server  *Server
	dials   map[string]int // by node
	stopped int            // how often; it is less than 0 once all is well
	dead    bool
	died    time.Time
	alive   context.Context // ends when it is killed
	die     func()
	// doomed, if it is not nil, says of a request whether the process is killed when it is about to send it.
	doomed func(q *protocol.Request) bool
	// wrote is the server that it has written to last; parting, if it is not nil, is called with that
	// when the process is doomed.
	wrote   string
	parting func(server string)
	// tamper, if it is not nil, changes the replies of a server that lies.
	tamper func(k *modelCall, b, payload []byte) ([]byte, []byte)
}

func (n *network) process(node string, run int) *process {
	p := &process{network: n, node: node, run: run, dials: map[string]int{}}
	p.alive, p.die = context.WithCancel(context.Background())
	return p
}

// random numbers that depend on the seed and on what they are for.
func (n *network) random(what string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what)) // it never fails
	return rand.New(rand.NewPCG(n.seed, h.Sum64()))
}

// set changes the network or a process.
func (n *network) set(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	n.changes.tell()
}

// await waits until f, which is called with the lock held, is true. It reports false if the schedule
// is over or done ends before.
func (n *network) await(done <-chan struct{}, f func() bool) bool {
	for {
		changed := n.changes.watch()
		n.mu.Lock()
		ok := f()
		n.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		case <-n.over:
			return false
		}
	}
}

// gate holds a process that is stopped, and fails if it was killed.
func (p *process) gate() error {
	if !p.await(nil, func() bool { return p.dead || p.stopped <= 0 }) {
		return errOver
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errKilled
	}
	return nil
}

func (p *process) kill() {
	p.set(func() { p.dead, p.died = true, time.Now() })
	p.die()
}

// latency of a message. Some take long, so that others that were sent later come first.
func (n *network) latency(r *rand.Rand) time.Duration {
	switch at := r.IntN(1000); {
	case 8*at < n.slow:
		return time.Duration(r.Int64N(int64(2 * time.Second)))
	case at < n.slow:
		return time.Duration(r.Int64N(int64(50 * time.Millisecond)))
	}
	return 20*time.Microsecond + time.Duration(r.Int64N(int64(200*time.Microsecond)))
}

func addressOf(node string) via.Address { return via.Address{Discriminator: node} }

// fabric of a process.
func (p *process) alloc(_ context.Context, bytes int, _ via.MemoryAttributes) (*via.Memory, error) {
	return p.take(bytes), nil
}
func (p *process) free(m *via.Memory) error { p.giveBack(m); return nil }

// dial tries until ctx ends, as ring.Dial does.
func (p *process) dial(ctx context.Context, to via.Address, timeout time.Duration) (conn, error) {
	if err := p.gate(); err != nil {
		return nil, err
	}
	node := string(to.Discriminator)
	p.mu.Lock()
	p.dials[node]++
	name := fmt.Sprintf("%s/%d>%s/%d", p.node, p.run, node, p.dials[node])
	p.mu.Unlock()
	r := p.random(name)
	if !p.sleep(ctx.Done(), 2*p.latency(r)) {
		return nil, fmt.Errorf("%w: %w", via.ErrTimeout, context.Cause(ctx))
	}
	var server *process
	if !p.await(ctx.Done(), func() bool {
		server = p.serves[node]
		return p.dead || server != nil && !server.dead && server.stopped <= 0 && p.stopped <= 0 && p.cut[[2]string{p.node, node}] <= 0 && p.cut[[2]string{node, p.node}] <= 0
	}) {
		return nil, fmt.Errorf("%w: %w", via.ErrTimeout, ctx.Err())
	}
	if err := p.gate(); err != nil {
		return nil, err
	}
	c := &modelConn{name: name, timeout: timeout, client: p, server: server, broken: make(chan struct{}), up: make(chan *modelCall, 1<<12), down: make(chan *modelCall, 1<<12)}
	c.session = server.server.enter(c.end)
	p.running.Go(func() {
		defer server.server.leave(c.session)
		c.carry(p.random(name+" up"), c.up, p, server, (*modelCall).ask)
	})
	p.running.Go(func() { c.carry(p.random(name+" down"), c.down, server, p, (*modelCall).land) })
	return c, nil
}

// sleep reports false if the schedule is over, or done ends, before.
func (n *network) sleep(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
	case <-n.over:
	}
	return false
}

// modelConn is a connection of a client with a server. Messages arrive in the order in which
// they were sent, or the connection breaks.
type modelConn struct {
	name           string
	timeout        time.Duration
	client, server *process
	session        *session
	once           sync.Once
	broken         chan struct{}
	up, down       chan *modelCall
}

// modelCall is a request, and its reply.
type modelCall struct {
	conn          *modelConn
	sent          time.Time // or when it was answered
	request, data []byte
	room          int
	bye           bool // the client closes the connection

	reply, landed []byte

	mu     sync.Mutex
	into   []byte
	gone   bool // nobody waits for it any more
	answer ring.Reply
	done   chan struct{}
}

func (c *modelConn) end() { c.once.Do(func() { close(c.broken) }) }

func (c *modelConn) call(ctx context.Context, q protocol.Request, send, into ring.Frame) (ring.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request := make([]byte, protocol.RequestSize)
	q.Encode(request)
	p := c.client
	if !p.sleep(ctx.Done(), c.turn(ctx.Value(callerKey{}), q, send.Bytes())) {
		return ring.Reply{}, fmt.Errorf("%w: %w", ring.ErrDeadline, context.Cause(ctx))
	}
	if err := p.doom(&q, c.server.node); err != nil {
		return ring.Reply{}, err
	}
	k := &modelCall{conn: c, sent: time.Now(), request: slices.Clone(request), data: slices.Clone(send.Bytes()), room: into.Length, into: into.Bytes(), done: make(chan struct{})}
	select {
	case <-c.broken:
		return ring.Reply{}, ring.ErrPeerGone
	default:
	}
	c.up <- k
	err := error(ring.ErrPeerGone)
	select {
	case <-k.done:
	case <-c.broken:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", ring.ErrDeadline, ctx.Err())
	}
	if gate := p.gate(); gate != nil {
		err = gate
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = true
	select {
	case <-k.done:
		return k.answer, nil
	default:
		return ring.Reply{}, err
	}
}

// callerKey is the key of the worker that makes a call.
type callerKey struct{}

// turn is a moment by which calls of several goroutines at one time are told apart: whichever the
// scheduler runs first, they are sent in one order.
func (c *modelConn) turn(caller any, q protocol.Request, data []byte) time.Duration {
	q.Client, q.Incarnation = 0, 0 // they are drawn
	return time.Duration(c.client.random(fmt.Sprint(c.name, caller, q, data[:min(8, len(data))])).IntN(1000))
}

// doom kills the process if it is about to do what it is to be killed at, and else is gate.
func (p *process) doom(q *protocol.Request, server string) error {
	if err := p.gate(); err != nil {
		return err
	}
	p.mu.Lock()
	doomed, wrote, parting := p.doomed != nil && p.doomed(q), p.wrote, p.parting
	if q.Operation == protocol.Write {
		p.wrote = server
	}
	p.mu.Unlock()
	if !doomed {
		return nil
	}
	p.trace("%s dies before a %v, condition %d", p.node, q.Operation, q.Condition)
	p.kill()
	if parting != nil && wrote != "" {
		parting(wrote)
	}
	return errKilled
}

// reader reads the memory of the server, in the schedules that do. The wire knows late that the server has
// died. What cuts it off does not keep its memory from being read, nor does a server that is stopped.
func (c *modelConn) reader(ctx context.Context, _ time.Duration) (reader, error) {
	if !c.client.reads {
		return nil, via.ErrNoMatch
	}
	r := c.client.random(c.name + " reader")
	if !c.client.sleep(ctx.Done(), 2*c.client.latency(r)) {
		return nil, fmt.Errorf("%w: %w", via.ErrTimeout, context.Cause(ctx))
	}
	return &modelReader{c, r}, c.client.gate()
}

type modelReader struct {
	*modelConn
	r *rand.Rand
}

// noticed bounds how late a client may learn that a server has died whose memory it reads.
const noticed = 5 * time.Millisecond

func (m *modelReader) read(ctx context.Context, _ uint32, address uint64, into ring.Frame, table uint64, place *[protocol.PlaceSize]byte) (bool, error) {
	if address != 0 {
		for i := range 2 { // another write may come between
			half := into.Length / 2
			if err := m.copy(ctx, into.Bytes()[i*half:][:half], address+uint64(i*half)); err != nil {
				return false, err
			}
		}
	}
	return true, m.copy(ctx, place[:], table)
}

// copy copies at some moment.
func (m *modelReader) copy(ctx context.Context, to []byte, from uint64) error {
	p := m.client
	if !p.sleep(ctx.Done(), time.Duration(m.r.Int64N([]int64{1e3, 3e5}[m.r.IntN(2)]))) {
		return errOver
	}
	if err := p.gate(); err != nil {
		return err
	}
	lent := m.server.server.storage
	w, memory := lent.window(), lent.memory
	p.mu.Lock()
	gone := m.server.dead && time.Since(m.server.died) > noticed
	p.mu.Unlock()
	if gone {
		return ring.ErrPeerGone
	}
	copy(to, memory.Bytes()[from-w.Frames:])
	return nil
}

func (m *modelReader) close() {}

func (c *modelConn) close() {
	if c.client.gate() == nil {
		c.up <- &modelCall{conn: c, sent: time.Now(), bye: true}
	}
	c.end() // what is under way may still arrive
}

// pass waits until a message, that was sent at some time, arrives at a process. It reports false
// if it never does.
func (c *modelConn) pass(r *rand.Rand, sent time.Time, from, to *process) bool {
	n := c.client.network
	if d := time.Until(sent.Add(n.latency(r))); d > 0 && !n.sleep(nil, d) {
		return false
	}
	waited := false
	way := [2]string{from.node, to.node}
	if !n.await(nil, func() bool {
		if n.cut[way] > 0 {
			waited = true
		}
		return to.dead || n.cut[way] <= 0 && to.stopped <= 0
	}) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return !to.dead && !(waited && r.IntN(2) == 0) && !(from.dead && r.IntN(2) == 0)
}

// carry carries messages one way, until one is lost or arrive says that it was the last.
func (c *modelConn) carry(r *rand.Rand, messages <-chan *modelCall, from, to *process, arrive func(*modelCall) (last bool)) {
	for {
		var k *modelCall
		select {
		case k = <-messages:
		case <-c.server.over:
			return
		}
		if !c.pass(r, k.sent, from, to) {
			if r.IntN(3) == 0 { // the client does not hear that the connection is broken
				<-c.server.over
			}
			c.end()
			return
		}
		if arrive(k) {
			return
		}
	}
}

// ask asks the server, unless the client has closed the connection.
func (k *modelCall) ask() (last bool) {
	if !k.bye {
		k.answerWith(k.conn.session.handle(k.request, k.data, k.room))
	}
	return k.bye
}

// answerWith sends a reply.
func (k *modelCall) answerWith(b []byte, payload ring.Frame, done func()) {
	k.reply, k.landed, k.sent = slices.Clone(b), slices.Clone(payload.Bytes()), time.Now()
	if t := k.conn.server.tamper; t != nil {
		k.reply, k.landed = t(k, k.reply, k.landed)
	}
	if done != nil {
		done()
	}
	k.conn.down <- k
	if *traced {
		k.traceReply()
	}
}

// traceReply traces what changes a server, and fetches.
func (k *modelCall) traceReply() {
	q, err := protocol.ParseRequest(k.request)
	if err != nil || q.Operation == protocol.Describe || q.Operation == protocol.Stamps {
		return
	}
	r, err := protocol.ParseReply(q.Operation, k.reply)
	k.conn.client.trace("    %s: %v of %s, page %d, condition %d, next %d, epoch %d: %v, version %d, %v", k.conn.server.node, q.Operation, k.conn.name, q.Page, q.Condition, q.Next, q.Epoch, r.Result, r.Version, err)
}

// land gives the reply to the client, if that still waits.
func (k *modelCall) land() (last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.gone {
		copy(k.into, k.landed)
		k.answer = ring.MakeReply(k.reply, len(k.landed))
		close(k.done)
	}
	return false
}

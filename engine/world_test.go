package engine_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// world is two NICs on one wire, with memory and time of their own. Nothing in
// it depends on the real clock, so every run with one seed is the same.
type world struct {
	t    testing.TB
	now  time.Duration
	idle time.Duration // that passes when neither NIC has anything to do
	a, b *node
	// relay, if there is one, carries frames on.
	relay func()
}

// Where a node's memory is on the bus and for its application.
const (
	busBase  = 0x100000
	hostBase = 0x7f00_0000_0000
	memSize  = 1 << 19
	// roomy is the memory of a node that many buffers are taken of.
	roomy = 3 << 19
)

// node is one NIC and its host.
type node struct {
	w       *world
	e       *engine.Engine
	mem     []byte
	sram    []byte // device memory, of a NIC that has some
	gen     uint64
	refuse  func(iova uint64, write bool) bool
	pieces  uint64 // windows are not larger; zero: no limit
	port    *port
	parts   *parts   // around port, if frames are handed over in pieces
	lender  *lender  // of a wire that lends
	slots   *slotted // of a wire that has some
	calls   bool     // VIs are posted to and polled by their paths
	paths   []path   // of those that were posted to
	brk     uint64
	nextID  uint16
	replies map[uint16]datasheet.AdminEntry
	events  []datasheet.Event
	irqs    map[uint16]int
}

// path is a VI's way into the engine.
type path interface {
	Post(producer uint32)
	PostReceives(producer uint32)
	Poll(receive bool, most int) bool
}

// step steps the NIC, of which paths have taken what they can.
func (n *node) step() bool {
	busy := false
	for _, p := range n.paths {
		for _, receive := range []bool{true, false} {
			busy = p.Poll(receive, 1) || busy
		}
	}
	return n.e.Step() || busy
}

// port is an end of the wire: a queue of frames each way.
type port struct {
	mtu      int
	checksum bool
	in       *[][]byte
	out      *[][]byte
	space    []byte
	// spoil decides what becomes of a frame: the frames that arrive in its place.
	spoil   func(frame []byte) [][]byte
	flushed int
	room    int // frames that the wire holds; zero: any number; negative: none
}

func (p *port) MTU() int       { return p.mtu }
func (p *port) Checksum() bool { return p.checksum }
func (p *port) LinkUp() bool   { return true }
func (p *port) Flush()         { p.flushed++ }
func (p *port) Reserve(n int) []byte {
	if p.room < 0 || p.room > 0 && len(*p.out) >= p.room {
		return nil
	}
	p.space = alignedBytes(n)
	return p.space
}

func (p *port) Commit() {
	frames := [][]byte{p.space}
	if p.spoil != nil {
		frames = p.spoil(p.space)
	}
	*p.out = append(*p.out, frames...)
	p.space = nil
}

func (p *port) Receive() []byte {
	if len(*p.in) == 0 {
		return nil
	}
	return (*p.in)[0]
}
func (p *port) Release() { *p.in = (*p.in)[1:] }

func (n *node) Window(iova, size uint64, write bool) ([]byte, error) {
	if iova < busBase || iova >= busBase+uint64(len(n.mem)) || n.refuse != nil && n.refuse(iova, write) {
		return nil, errFault
	}
	off := iova - busBase
	size = min(size, uint64(len(n.mem))-off)
	if n.pieces > 0 {
		size = min(size, n.pieces-off%n.pieces)
	}
	return n.mem[off : off+size], nil
}
func (n *node) Generation() uint64      { return n.gen }
func (n *node) Interrupt(vector uint16) { n.irqs[vector]++ }
func (n *node) AdminEntry(e *datasheet.AdminEntry) {
	if e.Kind == datasheet.EntryEvent {
		n.events = append(n.events, *datasheet.Reply[datasheet.Event](e))
		return
	}
	n.replies[e.ID] = *e
}

type faultError string

func (f faultError) Error() string { return string(f) }

const errFault = faultError("bus fault")

type option func(*engine.Config, *port)

// memory gives each node n bytes instead of memSize.
func memory(n int) option {
	return func(c *engine.Config, _ *port) { c.Memory.(*node).mem = alignedBytes(n) }
}

func newWorld(t testing.TB, options ...option) *world {
	t.Helper()
	w := &world{t: t, idle: time.Millisecond}
	var ab, ba [][]byte
	w.a = w.newNode(1, &port{mtu: 2048, in: &ba, out: &ab}, options)
	w.b = w.newNode(2, &port{mtu: 2048, in: &ab, out: &ba}, options)
	return w
}

func (w *world) newNode(number byte, p *port, options []option) *node {
	n := &node{w: w, port: p, replies: map[uint16]datasheet.AdminEntry{}, irqs: map[uint16]int{}}
	c := engine.Config{Port: p, Memory: n, Host: n, MAC: datasheet.MAC{2, 0, 0, 0, 0, number},
		Clock: func() time.Duration { return w.now }, Rand: rand.NewChaCha8([32]byte{number})}
	// An eighth of what a device has by default, as each of the many worlds clears its tables.
	c.Limits = engine.DefaultLimits()
	c.Limits.Endpoints, c.Limits.CQs = 512, 512
	for _, o := range options {
		o(&c, p)
	}
	if n.mem == nil {
		n.mem = alignedBytes(memSize)
	}
	e := must.Get(engine.New(c))(w.t)
	n.e = e
	return n
}

// run steps both NICs, and lets time pass when neither has anything to do,
// until done says so.
func (w *world) run(what string, done func() bool) {
	for range 2_000_000 {
		if done() {
			return
		}
		if busy := w.a.step(); !w.b.step() && !busy {
			w.now += w.idle
		}
		if w.relay != nil {
			w.relay()
		}
	}
	w.t.Helper()
	w.t.Fatalf("%s did not happen", what)
}

// settle steps until there is nothing to do but wait.
func (w *world) settle() {
	for quiet := 0; quiet < 8; quiet++ {
		for range 100_000 {
			busy := w.a.step()
			if !w.b.step() && !busy {
				break
			}
			quiet = 0
		}
	}
}

// settleOnly steps one NIC until it has nothing to do.
func (w *world) settleOnly(n *node) {
	for quiet := 0; quiet < 8; quiet++ {
		for range 100_000 {
			if !n.step() {
				break
			}
			quiet = 0
		}
	}
}

// vi is an endpoint and its queues.
type vi struct {
	n          *node
	id         uint32
	handle     uint32
	send, recv queue
	path       path // see way
}

type queue struct {
	tokens   []datasheet.Token
	producer uint32
	posted   []*descriptors.Descriptor
}

const queueLog2 = 6

func (n *node) newVI(handle uint32, change func(*datasheet.CreateEndpointBody)) *vi {
	n.w.t.Helper()
	v := &vi{n: n, handle: handle}
	sendMem, _, sendIOVA := n.alloc(datasheet.TokenSize << queueLog2)
	recvMem, _, recvIOVA := n.alloc(datasheet.TokenSize << queueLog2)
	v.send.tokens, v.recv.tokens = datasheet.TokensAt(sendMem), datasheet.TokensAt(recvMem)
	body := datasheet.CreateEndpointBody{SendIOVA: sendIOVA, RecvIOVA: recvIOVA, MaxTransfer: datasheet.MaxTransfer,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Kind: datasheet.KindVI, Reliability: datasheet.ReliableDelivery, SendLog2: queueLog2, RecvLog2: queueLog2}
	if change != nil {
		change(&body)
	}
	v.id = datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, body)).Endpoint
	return v
}

// descriptor makes a descriptor over fresh buffers of the given sizes and
// returns it with the buffers.
func (v *vi) descriptor(sizes ...int) (*descriptors.Descriptor, [][]byte) {
	v.n.w.t.Helper()
	mem, address, _ := v.n.alloc(descriptors.DescriptorBytes(len(sizes)))
	d := must.Get(descriptors.NewDescriptor(mem, address, v.handle))(v.n.w.t)
	var bufs [][]byte
	for _, s := range sizes {
		buf, at, _ := v.n.alloc(s)
		bufs = append(bufs, buf)
		must.OK(v.n.w.t, d.AddData(at, v.handle, uint32(s)))
	}
	return d, bufs
}

func (v *vi) post(q *queue, kind uint64, ds ...*descriptors.Descriptor) {
	for _, d := range ds {
		q.tokens[q.producer%uint32(len(q.tokens))] = d.Token()
		q.posted = append(q.posted, d)
		q.producer++
	}
	v.ring(kind, q.producer)
}

// ring tells the NIC of what is posted.
func (v *vi) ring(kind uint64, producer uint32) {
	switch {
	case !v.n.calls:
		v.n.e.Doorbell(datasheet.EndpointPage(v.id)+kind, producer)
	case kind == datasheet.DoorbellSend:
		v.way().Post(producer)
	default:
		v.way().PostReceives(producer)
	}
}

// way is the VI's path, whose gate is zero: it asks for a step of the engine each 64th time, and when it
// has to.
func (v *vi) way() path {
	if v.path == nil {
		v.path = v.n.e.Path(v.id, engine.PathHost{Gate: new(atomic.Uint32), Wake: func() {}, Step: func(endpoint uint32, receive bool) bool {
			worked, _ := v.n.e.StepFor(endpoint, receive)
			return worked
		}})
		v.n.paths = append(v.n.paths, v.path)
	}
	return v.path
}

func (v *vi) postSend(ds ...*descriptors.Descriptor) {
	v.post(&v.send, datasheet.DoorbellSend, ds...)
}
func (v *vi) postRecv(ds ...*descriptors.Descriptor) {
	v.post(&v.recv, datasheet.DoorbellRecv, ds...)
}

// message sends data from v to the peer w in one segment and returns both
// statuses.
func message(v, w *vi, data []byte) (sent, received datasheet.Status, got []byte) {
	v.n.w.t.Helper()
	s, out := v.descriptor(len(data))
	r, in := w.descriptor(len(data))
	copy(out[0], data)
	w.postRecv(r)
	v.postSend(s)
	v.n.w.run("the end of a message", func() bool { return s.Status().Done() && r.Status().Done() })
	return s.Status(), r.Status(), in[0][:min(int(r.Length()), len(in[0]))]
}

// batch is messages from one VI to another.
type batch struct {
	from, to        *vi
	sends, receives []*descriptors.Descriptor
	out, in         [][]byte
}

// newBatch makes messages of these sizes, each with a pattern of its own, and posts receives for them.
func newBatch(from, to *vi, sizes ...int) *batch {
	b := &batch{from: from, to: to}
	for i, size := range sizes {
		s, out := from.descriptor(size)
		r, in := to.descriptor(size)
		copy(out[0], pattern(size, uint64(i)))
		b.sends, b.receives, b.out, b.in = append(b.sends, s), append(b.receives, r), append(b.out, out[0]), append(b.in, in[0])
	}
	to.postRecv(b.receives...)
	return b
}

func (b *batch) post() { b.from.postSend(b.sends...) }

func (b *batch) done() bool {
	last := len(b.sends) - 1
	return b.sends[last].Status().Done() && b.receives[last].Status().Done()
}

// mustArrive waits for the end of all messages, and checks what has arrived.
func (b *batch) mustArrive() {
	t := b.from.n.w.t
	t.Helper()
	b.from.n.w.run("the end of the messages", b.done)
	for i, s := range b.sends {
		if s.Status().Failed() || b.receives[i].Status().Failed() {
			t.Fatalf("message %d: sent %v, received %v", i, s.Status(), b.receives[i].Status())
		}
		mustEqual(t, b.in[i], b.out[i])
	}
}

// mustServe checks that a new connection between the NICs carries a message of so many bytes.
func (w *world) mustServe(size int) {
	w.t.Helper()
	v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
	connect(v, p)
	m := newBatch(v, p, size)
	m.post()
	m.mustArrive()
}

// connect connects v as the client to w as the server.
func connect(v, w *vi) {
	v.n.w.t.Helper()
	wait := start(w.n, datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: 10_000, Local: disc("test")})
	req := start(v.n, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: v.id, TimeoutMS: 10_000,
		RemoteMAC: w.n.e.MAC, Remote: disc("test"), Local: disc("client")})
	r := w.n.wait(wait)
	c := datasheet.Reply[datasheet.ConnectionReply](&r)
	do(w.n, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c.Connection, Endpoint: w.id, TimeoutMS: 10_000})
	must.Be(v.n.w.t, v.n.wait(req).Result, datasheet.ResultSuccess, "connect")
}

// pair is a world with one connected VI at each end.
func pair(t testing.TB, change func(*datasheet.CreateEndpointBody), options ...option) (w *world, v, p *vi) {
	t.Helper()
	w = newWorld(t, options...)
	v = w.a.newVI(w.a.memory(0, 0), change)
	p = w.b.newVI(w.b.memory(0, 0), change)
	connect(v, p)
	return w, v, p
}

// pattern is size bytes that differ at every place and for every seed.
func pattern(size int, seed uint64) []byte {
	b := make([]byte, size+8)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:size]
}

func mustEqual(t testing.TB, got, want []byte) {
	t.Helper()
	must.Same(t, got, want, "bytes arrived, were sent, and they differ")
}

// pass lets d pass on a world, of whose NICs those run that are given.
func (w *world) pass(d time.Duration, running ...*node) {
	for end := w.now + d; w.now < end; w.now += time.Millisecond {
		for _, n := range running {
			n.step()
		}
	}
}

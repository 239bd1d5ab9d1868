package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// safePort is a port for engines on threads: channels instead of slices.
type safePort struct {
	in, out chan []byte
	space   []byte
	now     []byte
	peer    func()
}

func (p *safePort) MTU() int       { return 2048 }
func (p *safePort) Checksum() bool { return false }
func (p *safePort) LinkUp() bool   { return true }
func (p *safePort) Reserve(n int) []byte {
	if len(p.out) == cap(p.out) {
		return nil
	}
	p.space = alignedBytes(n)
	return p.space
}
func (p *safePort) Commit() { p.out <- p.space }
func (p *safePort) Flush()  { p.peer() }
func (p *safePort) Receive() []byte {
	if p.now == nil {
		select {
		case p.now = <-p.in:
		default:
		}
	}
	return p.now
}
func (p *safePort) Release() { p.now = nil }

// safeHost takes replies from an engine on a thread.
type safeHost struct {
	*node
	mu sync.Mutex
}

func (h *safeHost) AdminEntry(e *datasheet.AdminEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.node.AdminEntry(e)
}

func (h *safeHost) reply(id uint16) (datasheet.AdminEntry, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.replies[id]
	return r, ok
}

// TestRunOnThreads has each engine on a thread of its own, asleep in between.
func TestRunOnThreads(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := &world{t: t}
	ab, ba := make(chan []byte, 16), make(chan []byte, 16)
	ports := []*safePort{{in: ba, out: ab}, {in: ab, out: ba}}
	var hosts []*safeHost
	for i, p := range ports {
		// Memory that a device writes is not the Go heap's, and the race detector
		// does not know the order in which descriptors change hands.
		mem, err := unix.Mmap(-1, 0, roomy, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		n := &node{w: w, mem: mem, replies: map[uint16]datasheet.AdminEntry{}, irqs: map[uint16]int{}}
		h := &safeHost{node: n}
		e, err := engine.New(engine.Config{Port: p, Memory: n, Host: h, MAC: datasheet.MAC{2, 0, 0, 0, 0, byte(i + 1)}})
		if err != nil {
			t.Fatal(err)
		}
		n.e = e
		hosts = append(hosts, h)
	}
	ports[0].peer, ports[1].peer = hosts[1].e.Wake, hosts[0].e.Wake

	ctx, cancel := context.WithCancel(context.Background())
	var threads sync.WaitGroup
	for _, h := range hosts {
		threads.Go(func() { h.e.Run(ctx) })
	}
	defer threads.Wait()
	defer cancel()

	await := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(50 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("%s did not happen", what)
			}
		}
	}
	wait := func(h *safeHost, id uint16) *datasheet.AdminEntry {
		t.Helper()
		await("a reply", func() bool { _, ok := h.reply(id); return ok })
		r, _ := h.reply(id)
		if r.Result != datasheet.ResultSuccess {
			t.Fatal(r.Result)
		}
		return &r
	}
	a, b := hosts[0], hosts[1]
	// Objects are made by commands that answer at once, so the plain helpers do.
	v, p := a.newVI(a.memory(0, 0), nil), b.newVI(b.memory(0, 0), nil)
	asked := waitFor(b.node, "x", 10_000)
	req := request(v, b.e.MAC, "x", 10_000)
	c := datasheet.Reply[datasheet.ConnectionReply](wait(b, asked)).Connection
	wait(b, start(b.node, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c, Endpoint: p.id, TimeoutMS: 10_000}))
	wait(a, req)
	for i := range 20 {
		s, out := v.descriptor(9000)
		r, in := p.descriptor(9000)
		copy(out[0], pattern(9000, uint64(i)))
		p.postRecv(r)
		v.postSend(s)
		await("a message", func() bool { return s.Status().Done() && r.Status().Done() })
		if s.Status().Failed() || r.Status().Failed() {
			t.Fatalf("%v, %v", s.Status(), r.Status())
		}
		mustEqual(t, in[0], pattern(9000, uint64(i)))
		time.Sleep(3 * time.Millisecond) // long enough to fall asleep
	}
	if a.e.Counter(datasheet.CounterMessagesSent) != 20 || a.e.Counter(datasheet.CounterCount) != 0 {
		t.Fatal("counters")
	}
}

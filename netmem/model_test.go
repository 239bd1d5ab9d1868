package netmem

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

var (
	schedules = flag.Uint64("schedules", 0, "how many schedules TestModel runs; zero: at most 15, as many as it begins in a second, and 10 at least")
	firstSeed = flag.Uint64("seed", 0, "seed of the first of them")
	traced    = flag.Bool("events", false, "print what happens in the schedules of TestModel")
)

// TestModel runs random schedules of reads and writes, by several clients and servers that are
// stopped, killed, restarted and cut off from each other, in virtual time. What PROTOCOL.md says
// of copies holds in all, and once all is well again the copies are equal.
//
// A seed stands for the same schedule each time, but for what goroutines do at one instant: some 1
// of 20 go another way the next time. One that has failed is to be run a few times.
func TestModel(t *testing.T) {
	runModel(t, func(l *lender, seed uint64) (*schedule, func(*testing.T)) {
		s := newSchedule(t, l, seed)
		return s, s.run
	}, "direct")
}

// runModel runs schedules, and checks what clients have read, and that some things have happened.
func runModel(t *testing.T, draw func(l *lender, seed uint64) (s *schedule, run func(*testing.T)), happen ...string) {
	n, end := uint64(15), time.Now().Add(time.Second)
	if soak.Wanted() {
		n, end = 1000, end.Add(time.Hour)
	}
	if *schedules > 0 {
		n, end = *schedules, end.Add(24*time.Hour)
	}
	// The fewer goroutines run at an instant, the more often a seed means the same schedule.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l, sum := newLender(t), map[string]uint64{}
	for seed := *firstSeed; seed < *firstSeed+n && (time.Now().Before(end) || seed < *firstSeed+10); seed++ {
		s, run := draw(l, seed)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, run)
			s.history.check(t)
		})
		for what, n := range s.counts {
			sum[what] += n
		}
		if !ok {
			t.Fatalf("schedule %d of %d: -run %s -schedules 1 -seed %d -events", seed-*firstSeed+1, n, t.Name(), seed)
		}
	}
	t.Log(sum)
	for _, what := range happen {
		if *schedules == 0 && sum[what] == 0 {
			t.Errorf("%q has not happened", what)
		}
	}
}

// count counts what happens.
func (s *schedule) count(what string, n uint64) {
	s.counting.Lock()
	defer s.counting.Unlock()
	s.counts[what] += n
}

// fillPage makes a page full of a value.
func fillPage(b []byte, value uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], value)
	}
}

// value is the value that fills a page.
func (s *schedule) value(page uint64, b []byte) uint64 {
	value := binary.LittleEndian.Uint64(b)
	for i := 8; i < len(b); i += 8 {
		if other := binary.LittleEndian.Uint64(b[i:]); other != value {
			s.Errorf("page %d is torn: %x at its beginning, %x at byte %d", page, value, other, i)
			break
		}
	}
	return value
}

// modelPage is the size of a page.
const modelPage = MinPage

// schedule is one run of the model.
type schedule struct {
	*network
	*testing.T
	r       *rand.Rand
	servers []*modelServer
	store   TestStore
	clients []*modelClient
	pages   int
	loses   bool // servers lose their memory, and then nothing else happens to servers
	history history
	ending  atomic.Bool
	closers []func() // guarded by the network

	starting sync.Mutex // held while a server starts or is killed

	counting sync.Mutex
	counts   map[string]uint64
}

// modelServer is a server.
type modelServer struct {
	node string
	run  int
	now  *process // nil while it is dead; guarded by starting
}

// modelClient is a client.
type modelClient struct {
	node    string
	number  int
	timeout time.Duration
	workers int
	now     *process // guarded by the network
}

func newSchedule(t *testing.T, l *lender, seed uint64) *schedule {
	s := &schedule{T: t, network: newNetwork(l, seed), counts: map[string]uint64{}}
	s.r = s.random("schedule")
	s.pages = 1 + s.r.IntN(4)
	s.slow = []int{5, 50, 200}[s.r.IntN(3)]
	for i := range 2 + s.r.IntN(2) {
		n := &modelServer{node: fmt.Sprintf("s%d", i)}
		s.servers = append(s.servers, n)
	}
	if s.loses = s.r.IntN(3) == 0; s.loses {
		s.slow = 0 // else a client takes another server for dead, and the last copy is lost with reason
	}
	for i := range 1 + s.r.IntN(3) {
		s.clients = append(s.clients, &modelClient{node: fmt.Sprintf("c%d", i), number: i, timeout: time.Duration(300+s.r.IntN(2000)) * time.Millisecond, workers: 1 + s.r.IntN(2)})
	}
	return s
}

// run is the schedule, in a bubble.
func (s *schedule) run(t *testing.T) {
	s.begin(t)
	var busy sync.WaitGroup
	for _, c := range s.clients {
		busy.Go(func() { s.live(c) })
	}
	s.trouble()
	s.ending.Store(true)
	busy.Wait()
	s.finish()
	s.end()
}

// begin starts all servers.
func (s *schedule) begin(t *testing.T) {
	s.T, s.over = t, make(chan struct{})
	if start := time.Now(); *traced {
		s.trace = func(format string, a ...any) {
			fmt.Printf("%12.6f %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, a...))
		}
	}
	for _, n := range s.servers {
		s.start(n)
	}
}

// end ends all, and gives back memory.
func (s *schedule) end() {
	close(s.over)
	s.running.Wait()
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// atEnd has f called when the schedule is over.
func (s *schedule) atEnd(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

// start starts a server, unless it runs.
func (s *schedule) start(n *modelServer) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if n.now != nil {
		return
	}
	n.run++
	p := s.process(n.node, n.run)
	o := ServerOptions{Page: modelPage, Size: int64(s.pages) * modelPage}
	server, err := newServer(s.Context(), p, o, nil)
	should.OK(s, err)
	s.atEnd(func() { _ = server.Close() })
	p.server = server
	s.trace("%s starts, epoch %d", n.node, server.membership.Load().Epoch)
	s.set(func() { n.now, s.serves[n.node] = p, p })
}

// kill kills a server, unless it is dead.
func (s *schedule) kill(n *modelServer) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if n.now == nil {
		return
	}
	s.trace("%s is killed", n.node)
	s.count("kills", 1)
	n.now.kill()
	s.set(func() { n.now = nil; delete(s.serves, n.node) })
}

// open opens a client of the model.
func (s *schedule) open(p *process, timeout time.Duration) (*Client, error) {
	o := Options{Copies: min(2, len(s.servers)), Cache: leastFrames * modelPage, Timeout: timeout, ReadAhead: -1, workers: 1, Store: modelStore{s, p}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return open(ctx, nil, p, s.addresses(), o)
}

// addresses are those of the servers.
func (s *schedule) addresses() (list []via.Address) {
	for _, n := range s.servers {
		list = append(list, addressOf(n.node))
	}
	return list
}

// live runs a client, again and again as it dies or is closed, until the end.
func (s *schedule) live(n *modelClient) {
	r := s.random(n.node)
	for run := 0; !s.ending.Load(); run++ {
		p := s.process(n.node, run)
		s.set(func() { n.now = p })
		c, err := s.open(p, n.timeout)
		if err != nil {
			s.trace("%s cannot open: %v", n.node, err)
		} else {
			s.trace("%s is open, epoch %d", n.node, c.pool.view.Load().Epoch)
			left := 1 << 30
			if r.IntN(3) == 0 {
				left = 1 + r.IntN(20)
			}
			var workers sync.WaitGroup
			for i := range n.workers {
				w := &modelWorker{s: s, c: c, p: p, ctx: context.WithValue(p.alive, callerKey{}, i), r: s.random(fmt.Sprint(n.node, run, i)), known: map[uint64]modelKnown{}, unsure: map[uint64]bool{}, who: n.node, alone: n.workers == 1, first: uint64((n.number*1000+run)*2+i) * 1e6}
				workers.Go(func() { w.work(left) })
			}
			workers.Wait()
			s.count("direct", c.pool.counters.direct.Load())
			s.running.Go(func() { _ = c.Close() }) // a client that was killed does nothing more
		}
		if p.gone() {
			s.count("deaths", 1)
		}
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	}
}

// modelKnown is a version of a page that a client has read or written, and what it was.
type modelKnown struct {
	version Version
	value   uint64
}

// modelWorker makes calls of a client.
type modelWorker struct {
	s     *schedule
	c     *Client
	p     *process
	ctx   context.Context
	r     *rand.Rand
	known map[uint64]modelKnown
	// unsure are pages of which a write has failed, so that it may be carried out at any time.
	unsure map[uint64]bool
	who    string
	alone  bool // no other worker writes for this client
	// What it writes is first+1, and so on.
	first, written uint64
}

// work makes calls until the client is dead, the schedule ends or none is left.
func (w *modelWorker) work(left int) {
	m := w.p.take(modelPage)
	w.s.atEnd(func() { w.p.giveBack(m) })
	frame := ring.Frame{Memory: m, Length: modelPage}
	pace := []time.Duration{5 * time.Millisecond, 200 * time.Millisecond, time.Second}[w.r.IntN(3)]
	for ; left > 0 && !w.s.ending.Load() && w.p.gate() == nil; left-- {
		page := uint64(w.r.IntN(w.s.pages))
		ctx, cancel := w.ctx, func() {}
		if w.r.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(w.r.Int64N(int64(8*time.Second))))
		}
		k, knows := w.known[page]
		switch {
		case w.r.IntN(8) == 0:
			w.write(ctx, op{page: page, kind: opOverwrite}, change{page: page, blind: true}, frame)
		case knows && w.r.IntN(2) == 0:
			w.write(ctx, op{page: page, kind: opReplace, expected: k.value}, change{page: page, base: k.version}, frame)
		default:
			w.read(ctx, page, frame)
		}
		cancel()
		w.s.sleep(nil, time.Duration(w.r.Int64N(int64(pace))))
	}
}

func (w *modelWorker) read(ctx context.Context, page uint64, frame ring.Frame) {
	o := w.s.history.begin(op{page: page, kind: opRead, client: w.who})
	v, err := w.c.Fetch(ctx, page, frame)
	if w.p.gate() != nil || err != nil {
		w.s.history.drop(o)
		w.s.trace("%s reads page %d: %v", w.who, page, err)
		return
	}
	o.value, o.version = w.s.value(page, frame.Bytes()), v
	w.s.history.end(o)
	w.known[page] = modelKnown{v, o.value}
	w.s.trace("%s reads page %d: %d, version %d", w.who, page, o.value, v)
	w.s.count("reads", 1)
}

func (w *modelWorker) write(ctx context.Context, o op, c change, frame ring.Frame) {
	w.written++
	o.client, o.value = w.who, w.first+w.written
	fillPage(frame.Bytes(), o.value)
	k := w.s.history.begin(o)
	c.from = frame
	w.s.trace("%s writes page %d: %d, kind %d over %d, version %d", w.who, o.page, o.value, o.kind, o.expected, c.base)
	err := w.c.pool.write(ctx, &c)
	// As a pager does. It has no other write of the page, which would be taken for an attempt at this one.
	for n := 0; err != nil && w.alone && !w.unsure[o.page] && o.kind == opReplace && !errors.Is(err, ErrConflict) && w.r.IntN(2) == 0 && n < 3; n++ {
		c.own = true
		err = w.c.pool.write(w.ctx, &c)
	}
	if w.p.gate() != nil {
		err = errKilled
	}
	switch {
	case err == nil:
		k.version = c.base
		w.s.history.end(k)
		w.known[o.page] = modelKnown{c.base, o.value}
		w.s.count("writes", 1)
	case errors.Is(err, ErrConflict):
		delete(w.known, o.page)
		w.s.count("conflicts", 1)
	default:
		w.unsure[o.page] = true
		w.s.count("failed", 1)
	}
	w.s.trace("%s has written page %d: %d, version %d, %v", w.who, o.page, o.value, c.base, err)
}

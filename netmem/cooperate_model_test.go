package netmem

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// TestCooperateModel runs random schedules, in virtual time, of clients that use each other's memory: they
// read and write more pages than they have frames, are killed, stopped and cut off, come back with another
// incarnation or with pages of before, and some of them lie. No read has a wrong byte: each page is whole,
// and is not older than what was acknowledged when a client that had dropped its cache began to read.
func TestCooperateModel(t *testing.T) {
	runModel(t, func(l *lender, seed uint64) (*schedule, func(*testing.T)) {
		s := newCoopSchedule(t, l, seed)
		return s.schedule, s.run
	}, "from hosts", "sent", "lies", "wrong", "missing", "kills", "duplicates")
}

// coopSchedule is one run, with one server.
type coopSchedule struct {
	*schedule
	hosts []*coopClient

	state sync.Mutex
	// begun and done are the highest value whose write to a page was begun, and that was acknowledged.
	begun, done []uint64
}

// coopClient is a client, with the number that it has among the hosts. It writes the pages of which the
// remainder by the number of clients is its number: of each page there is one writer.
type coopClient struct {
	modelClient
	liar string            // how it lies; empty if it does not
	old  map[uint64][]byte // pages that it was given once; guarded by the schedule
}

func newCoopSchedule(t *testing.T, l *lender, seed uint64) *coopSchedule {
	s := &coopSchedule{schedule: &schedule{T: t, network: newNetwork(l, seed), servers: []*modelServer{{node: "server"}}, counts: map[string]uint64{}}}
	s.r = s.random("schedule")
	s.pages = 40 + s.r.IntN(80)
	s.begun, s.done = make([]uint64, s.pages), make([]uint64, s.pages)
	s.slow = []int{0, 5, 50}[s.r.IntN(3)]
	for i := range 2 + s.r.IntN(3) {
		c := &coopClient{modelClient: modelClient{node: fmt.Sprintf("c%d", i), number: i}, old: map[uint64][]byte{}}
		if i > 0 && s.r.IntN(2) == 0 {
			c.liar = []string{"bytes", "old pages", "ages", "has all", "short"}[s.r.IntN(5)]
		}
		s.hosts, s.clients = append(s.hosts, c), append(s.clients, &c.modelClient)
	}
	return s
}

func (s *coopSchedule) run(t *testing.T) {
	s.begin(t)
	var busy sync.WaitGroup
	for _, c := range s.hosts {
		busy.Go(func() { s.live(c) })
	}
	s.trouble()
	s.ending.Store(true)
	busy.Wait()
	s.end()
}

// live runs a client, again and again as it dies or is closed, until the end.
func (s *coopSchedule) live(n *coopClient) {
	r := s.random(n.node)
	for run := 0; !s.ending.Load(); run++ {
		p := s.process(n.node, run)
		s.set(func() { n.now = p })
		o := Options{Cache: int64(leastFrames+r.IntN(50)) * modelPage, Timeout: time.Second, ReadAhead: -1, workers: 1 + r.IntN(3)}
		o.Cooperation = &Cooperation{Name: n.node}
		for _, other := range s.hosts {
			o.Cooperation.Hosts = append(o.Cooperation.Hosts, other.node)
			o.Cooperation.addresses = append(o.Cooperation.addresses, addressOf(other.node))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		c, err := open(ctx, nil, p, []via.Address{addressOf("server")}, o)
		cancel()
		if err != nil {
			s.trace("%s cannot open: %v", n.node, err)
			time.Sleep(time.Second)
			continue
		}
		p.server = c.lodging.server
		if n.liar != "" {
			p.tamper = func(k *modelCall, b, payload []byte) ([]byte, []byte) { return s.tamper(n, k, b, payload) }
		}
		s.set(func() { s.serves[n.node] = p })
		s.use(n, c, p, r)
		s.note(c)
		s.set(func() {
			if s.serves[n.node] == p {
				delete(s.serves, n.node)
			}
		})
		if p.gate() == nil && r.IntN(2) == 0 {
			_ = c.Close() // what it has written and not acknowledged may be lost
		}
		p.kill()
		s.running.Go(func() { _ = c.Close() })
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	}
}

// note counts what a client has counted, and checks whom it blames.
func (s *coopSchedule) note(c *Client) {
	st := c.Stats()
	for what, n := range map[string]uint64{
		"from hosts": st.FromHosts, "sent": st.Sent, "duplicates": st.Duplicates, "missing": st.Missing, "wrong": st.Wrong, "given": st.Given,
	} {
		s.count(what, n)
	}
	for _, h := range st.Hosts {
		if h.Wrong > 0 && (h.Err == nil || h.Connected) {
			s.Errorf("%s has sent %d wrong pages; connected %v, %v", h.Address, h.Wrong, h.Connected, h.Err)
		}
		for _, n := range s.hosts {
			if h.Wrong > 0 && n.node == h.Address && n.liar == "" {
				s.Errorf("%s is honest, and was found to send wrong pages: %v", h.Address, h.Err)
			}
		}
	}
}

// use makes calls of a client until it is dead, the schedule ends or it has made enough.
func (s *coopSchedule) use(n *coopClient, c *Client, p *process, r *rand.Rand) {
	pace := []time.Duration{time.Millisecond, 5 * time.Millisecond, 2 * time.Second, 2 * time.Second}[r.IntN(4)]
	b := make([]byte, modelPage)
	for left := 100 + r.IntN(1500); left > 0 && !s.ending.Load() && p.gate() == nil; left-- {
		page := r.IntN(s.pages)
		switch {
		case r.IntN(6) == 0 && page%len(s.hosts) == n.number:
			s.write(n, c, p, page, b)
		default:
			s.read(n, c, p, page, b, r.IntN(12) == 0)
		}
		s.sleep(nil, time.Duration(r.Int64N(int64(pace))))
	}
}

// read reads a page and checks it.
func (s *coopSchedule) read(n *coopClient, c *Client, p *process, page int, b []byte, fresh bool) {
	if fresh {
		c.Drop()
	}
	s.state.Lock()
	least := s.done[page]
	s.state.Unlock()
	_, err := c.ReadAt(b, int64(page)*modelPage)
	if err != nil || p.gate() != nil {
		s.count("failed", 1)
		return
	}
	value := s.value(uint64(page), b)
	s.count("reads", 1)
	s.state.Lock()
	defer s.state.Unlock()
	s.trace("%s reads page %d: %d", n.node, page, value&(1<<32-1))
	number, of := value&(1<<32-1), int(value>>32)-1
	switch {
	case value != 0 && of != page:
		s.Errorf("%s reads page %d, and gets page %d", n.node, page, of)
	case number > s.begun[page]:
		s.Errorf("%s reads %d of page %d, which was not written yet", n.node, number, page)
	case fresh && number < least:
		s.Errorf("%s reads %d of page %d, where %d was acknowledged", n.node, number, page, least)
	}
}

// write writes a page, and has it acknowledged.
func (s *coopSchedule) write(n *coopClient, c *Client, p *process, page int, b []byte) {
	s.state.Lock()
	s.begun[page]++
	value := s.begun[page]
	s.state.Unlock()
	fillPage(b, uint64(page+1)<<32|value)
	_, err := c.WriteAt(b, int64(page)*modelPage)
	if err == nil {
		err = c.Sync()
	}
	s.state.Lock()
	defer s.state.Unlock()
	if err != nil || p.gate() != nil {
		s.count("failed", 1)
		return
	}
	s.count("writes", 1)
	s.done[page] = max(s.done[page], value)
	s.trace("%s has written page %d: %d", n.node, page, value)
}

// trouble makes trouble for a while.
func (s *coopSchedule) trouble() {
	for end := time.Now().Add(time.Duration(5+s.r.IntN(25)) * time.Second); time.Now().Before(end); {
		time.Sleep(time.Duration(s.r.Int64N(int64(3 * time.Second))))
		c := s.hosts[s.r.IntN(len(s.hosts))]
		other := s.hosts[s.r.IntN(len(s.hosts))].node
		if s.r.IntN(3) == 0 {
			other = "server"
		}
		s.mu.Lock()
		p := c.now
		s.mu.Unlock()
		if p == nil {
			continue
		}
		later := func(f func()) { s.later(s.upTo(3*time.Second), func() { s.set(f) }) }
		switch s.r.IntN(4) {
		case 0:
			s.trace("%s is killed", c.node)
			s.count("kills", 1)
			p.kill()
		case 1: // in the middle of a get or a put
			s.trace("%s is doomed", c.node)
			o := []protocol.Operation{protocol.Get, protocol.Put, protocol.Move}[s.r.IntN(3)]
			s.set(func() { p.doomed = func(q *protocol.Request) bool { return q.Operation == o } })
		case 2:
			way := [2]string{c.node, other}
			s.trace("cut %v", way)
			s.set(func() { s.cut[way]++ })
			later(func() { s.cut[way]-- })
		case 3:
			s.trace("%s is stopped", c.node)
			s.set(func() { p.stopped++ })
			later(func() { p.stopped-- })
		}
	}
	s.heal()
}

// tamper is what a liar makes of its replies.
func (s *coopSchedule) tamper(n *coopClient, k *modelCall, b, payload []byte) ([]byte, []byte) {
	q, err := protocol.ParseRequest(k.request)
	if err != nil {
		return b, payload
	}
	r, err := protocol.ParseReply(q.Operation, b)
	if err != nil {
		return b, payload
	}
	lie := func(with []byte) ([]byte, []byte) {
		s.count("lies", 1)
		r.Result, r.Version, r.Client, r.Length = protocol.OK, q.Expected, q.Client, uint32(len(with))
		r.Encode(b[:protocol.ReplySize])
		return b, with
	}
	switch {
	case q.Operation == protocol.Put:
		s.state.Lock()
		if n.old[q.Page] == nil {
			n.old[q.Page] = append([]byte(nil), k.data...)
		}
		s.state.Unlock()
	case q.Operation == protocol.Ages && n.liar == "ages":
		sum := protocol.Summary{}
		sum.Frames[protocol.AgeBuckets-1] = 1 << 20
		protocol.PutBody(b, &sum)
	case q.Operation == protocol.Get && r.Result == protocol.OK && n.liar == "bytes":
		with := append([]byte(nil), payload...)
		with[len(with)/2] ^= 1
		return lie(with)
	case q.Operation == protocol.Get && r.Result == protocol.OK && n.liar == "short":
		return lie(payload[:len(payload)/2])
	case q.Operation == protocol.Get && n.liar == "old pages":
		s.state.Lock()
		old := n.old[q.Page]
		s.state.Unlock()
		if old != nil && r.Result != protocol.OK {
			return lie(old)
		}
	case q.Operation == protocol.Get && n.liar == "has all" && r.Result != protocol.OK:
		return lie(make([]byte, modelPage))
	}
	return b, payload
}

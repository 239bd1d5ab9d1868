package netmem

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// trouble makes trouble for a while.
func (s *schedule) trouble() {
	length := time.Duration(5+s.r.IntN(30)) * time.Second
	pace := []time.Duration{300 * time.Millisecond, 2 * time.Second, 6 * time.Second}[s.r.IntN(3)]
	for r := s.settledRecord(); r == nil; r = s.settledRecord() { // the first client needs all servers
		time.Sleep(time.Duration(s.r.Int64N(int64(100 * time.Millisecond))))
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Duration(s.r.Int64N(int64(pace))))
		if s.loses && s.r.IntN(2) == 0 {
			s.loseOne()
			continue
		}
		switch s.r.IntN(8) {
		case 0:
			s.killClient()
		case 1: // between two copies of a write, or while it repairs
			c := s.clients[s.r.IntN(len(s.clients))]
			away, parts := s.upTo(8*time.Second), !s.loses && s.r.IntN(2) == 0
			s.set(func() {
				if c.now == nil {
					return
				}
				c.now.doomed = func(q *protocol.Request) bool {
					return q.Operation == protocol.Write && q.Condition == protocol.IfOlder
				}
				if parts {
					c.now.parting = func(server string) { s.cutFor(away, s.everyClient(), server, true, true) }
				}
			})
		case 2, 3:
			s.cutSome()
		case 4, 5:
			s.stopSome()
		case 6:
			s.cutFor(s.upTo(5*time.Second), s.everyClient(), storeNode, true, true)
		case 7:
			s.divide()
		}
	}
}

func (s *schedule) upTo(most time.Duration) time.Duration {
	return time.Duration(s.r.Int64N(int64(most)))
}

// later does something later, unless the schedule is over.
func (s *schedule) later(d time.Duration, f func()) {
	s.running.Go(func() {
		if s.sleep(nil, d) {
			f()
		}
	})
}

func (s *schedule) killClient() {
	c := s.clients[s.r.IntN(len(s.clients))]
	s.trace("%s is killed", c.node)
	s.mu.Lock()
	p := c.now
	s.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// ends draws a client, and a server or the store. While servers lose their memory all of them
// can be reached.
func (s *schedule) ends() (client, server string) {
	client = s.clients[s.r.IntN(len(s.clients))].node
	if n := s.r.IntN(len(s.servers) + 1); n < len(s.servers) && !s.loses {
		return client, s.servers[n].node
	}
	return client, storeNode
}

// cutSome cuts one or both ways between a client and a server, or between a server and all.
func (s *schedule) cutSome() {
	client, server := s.ends()
	one, other := s.r.IntN(4) > 0, s.r.IntN(4) > 0
	from := []string{client}
	if s.r.IntN(3) == 0 {
		from = s.everyClient()
	}
	s.cutFor(s.upTo(8*time.Second), from, server, one, other)
}

// divide cuts one client off from the store, and the others from a server, which it still reaches. What it reads there
// may be old.
func (s *schedule) divide() {
	one, d := s.r.IntN(len(s.clients)), 4*time.Second+s.upTo(8*time.Second)
	_, server := s.ends()
	others := slices.Delete(s.everyClient(), one, one+1)
	if server == storeNode || len(others) == 0 {
		return
	}
	s.cutFor(d, []string{s.clients[one].node}, storeNode, true, true)
	s.cutFor(d, others, server, true, true)
}

func (s *schedule) everyClient() (list []string) {
	for _, c := range s.clients {
		list = append(list, c.node)
	}
	return list
}

// cutFor cuts one or both ways between clients and a server for a while.
func (s *schedule) cutFor(d time.Duration, from []string, server string, one, other bool) {
	change := func(by int) {
		s.set(func() {
			for _, c := range from {
				if one {
					s.cut[[2]string{c, server}] += by
				}
				if other {
					s.cut[[2]string{server, c}] += by
				}
			}
		})
	}
	s.trace("cut %v to %s: %v, back: %v", from, server, one, other)
	change(1)
	s.later(d, func() {
		s.trace("healed %v to %s: %v, back: %v", from, server, one, other)
		change(-1)
	})
}

// stopSome stops a process as SIGSTOP does.
func (s *schedule) stopSome() {
	client, node := s.ends()
	if node == storeNode || s.r.IntN(2) == 0 {
		node = client
	}
	var p *process
	s.mu.Lock()
	p = s.serves[node]
	for _, c := range s.clients {
		if c.node == node {
			p = c.now
		}
	}
	s.mu.Unlock()
	if p == nil {
		return
	}
	s.trace("%s is stopped", node)
	s.set(func() { p.stopped++ })
	s.later(s.upTo(8*time.Second), func() {
		s.trace("%s goes on", node)
		s.set(func() { p.stopped-- })
	})
}

// loseOne kills a server that loses its memory, once all others have had all for a while, and waits
// until it has all again.
func (s *schedule) loseOne() {
	n := s.servers[s.r.IntN(len(s.servers))]
	time.Sleep(10 * time.Second)
	if s.settledRecord() == nil {
		return
	}
	s.kill(n)
	time.Sleep(time.Duration(s.r.Int64N(int64(6 * time.Second))))
	s.start(n)
	for end := time.Now().Add(time.Minute); s.settledRecord() == nil && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
}

// settledRecord is the configuration, if all servers know it and are members; else nil.
func (s *schedule) settledRecord() *placement.Configuration {
	s.starting.Lock()
	defer s.starting.Unlock()
	b, _, _ := s.store.Get(s.Context())
	c, err := placement.Parse(b)
	if err != nil || c.Outside() > 0 {
		return nil
	}
	for _, n := range s.servers {
		known := func(m placement.Server) bool { return m.Incarnation == n.now.server.incarnation }
		if n.now == nil || !slices.ContainsFunc(c.Servers, known) || n.now.server.membership.Load().Epoch != c.Epoch {
			return nil
		}
	}
	return &c
}

// heal ends all that was cut or stopped, for good.
func (s *schedule) heal() {
	s.set(func() {
		for way := range s.cut {
			s.cut[way] = -1 << 20
		}
		for _, c := range s.clients {
			if c.now != nil {
				c.now.stopped = -1 << 20
			}
		}
		for _, p := range s.serves {
			p.stopped = -1 << 20
		}
	})
}

// finish heals all, waits until the copies are equal, and reads them once more.
func (s *schedule) finish() {
	s.heal()
	for _, n := range s.servers {
		s.start(n)
	}
	p := s.process("healer", 0)
	c, err := s.open(p, 2*time.Second)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); c, err = s.open(p, 2*time.Second) {
		s.trace("the healer cannot open: %v", err)
		time.Sleep(time.Second)
	}
	if err != nil {
		s.Errorf("a client after all: %v", err)
		return
	}
	defer func() {
		should.OK(s, c.Close())
	}()
	end := time.Now().Add(5 * time.Minute)
	for why := s.differs(c); why != ""; why = s.differs(c) {
		if time.Now().After(end) {
			s.Errorf("5 minutes after all was well: %s", why)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	r := s.settledRecord()
	s.count("epochs", r.Epoch)
	s.count("repaired", c.pool.counters.repaired.Load())
	w := &modelWorker{s: s, c: c, p: p, known: map[uint64]modelKnown{}, who: "healer"}
	m := p.take(modelPage)
	defer p.giveBack(m)
	for page := range s.pages {
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		w.read(ctx, uint64(page), ring.Frame{Memory: m, Length: modelPage})
		cancel()
		if _, ok := w.known[uint64(page)]; !ok {
			s.Errorf("page %d cannot be read at the end", page)
		}
	}
}

// differs says in what the copies differ; nothing if they are equal and all servers are members.
func (s *schedule) differs(c *Client) string {
	if s.settledRecord() == nil {
		b, _, _ := s.store.Get(s.Context())
		return fmt.Sprintf("servers are not members: the store has %s, the client %s, %v", b, c.pool.view.Load().Encode(), c.pool.storeError())
	}
	v := c.pool.view.Load()
	for page := range uint64(s.pages) {
		var room [maxCopies]*link
		var first []byte
		var stamp protocol.Stamp
		list, _ := c.pool.places(v, page, room[:0])
		for i, k := range list {
			m := s.serves[string(k.address.Discriminator)].server.storage
			m.mu.Lock()
			b := m.memory.Bytes()[int(m.frames[page])*modelPage:][:modelPage]
			now := m.of(page)
			m.mu.Unlock()
			if i == 0 {
				first, stamp = b, now
			} else if !bytes.Equal(first, b) || !now.Same(stamp) {
				return "the copies of a page differ"
			}
		}
	}
	return ""
}

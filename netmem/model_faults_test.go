package netmem

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// trouble makes trouble for a while.
func (s *schedule) trouble() {
	length := time.Duration(5+s.r.IntN(30)) * time.Second
	pace := []time.Duration{300 * time.Millisecond, 2 * time.Second, 6 * time.Second}[s.r.IntN(3)]
	for r := s.settledRecord(); r == nil || r.Epoch == 1; r = s.settledRecord() { // the first client needs all servers
		time.Sleep(time.Duration(s.r.Int64N(int64(100 * time.Millisecond))))
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Duration(s.r.Int64N(int64(pace))))
		if s.loses && s.r.IntN(2) == 0 {
			s.loseOne()
			continue
		}
		switch s.r.IntN(7) {
		case 0:
			s.killClient()
		case 1: // between two copies of a write, or while it repairs
			c, how := s.clients[s.r.IntN(len(s.clients))], []protocol.Condition{protocol.IfOlder, protocol.Exactly}[s.r.IntN(2)]
			away, parts := s.upTo(8*time.Second), !s.loses && s.r.IntN(2) == 0
			s.set(func() {
				if c.now != nil {
					c.now.doomed = how
				}
				if c.now != nil && parts {
					c.now.parting = func(server string) { s.cutFor(away, s.everyClient(), server, true, true) }
				}
			})
		case 2, 3:
			s.cutSome()
		case 4, 5:
			s.stopSome()
		case 6:
			if s.witness != nil {
				s.killFor(s.witness, 5*time.Second)
			}
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

func (s *schedule) killFor(n *modelServer, most time.Duration) {
	s.kill(n)
	s.later(s.upTo(most), func() { s.start(n) })
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

// ends draws a client, and a server or the witness. While servers lose their memory all others
// can be reached.
func (s *schedule) ends() (client, server string) {
	client = s.clients[s.r.IntN(len(s.clients))].node
	list := s.all()
	n := list[s.r.IntN(len(list))]
	if s.loses {
		if s.witness == nil {
			return "", ""
		}
		n = s.witness
	}
	return client, n.node
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
	if node == "" || s.loses && node != "witness" || s.r.IntN(2) == 0 {
		node = client
	}
	if s.loses && node != "witness" {
		return // what it knew of servers before would be old
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

// settledRecord is the record of all servers, if that is the same, and all are members; else nil.
func (s *schedule) settledRecord() *protocol.Record {
	s.starting.Lock()
	defer s.starting.Unlock()
	var r *protocol.Record
	for i, n := range s.servers {
		if n.now == nil {
			return nil
		}
		m := n.now.server.membership.Load()
		has := m.Record
		if r == nil {
			r = &has
		}
		if has != *r || has.Pool == 0 || has.State(i) != protocol.Member {
			return nil
		}
	}
	return r
}

// finish heals all, waits until the copies are equal, and reads them once more.
func (s *schedule) finish() {
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
	for _, n := range s.all() {
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
		if err := c.Close(); err != nil {
			s.Error(err)
		}
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
	atomic.AddInt64(&s.counts.Epochs, int64(r.Epoch))
	atomic.AddInt64(&s.counts.Joins, int64(c.pool.counters.repaired.Load()))
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
		why := "servers are not members:"
		for _, n := range s.servers {
			m := n.now.server.membership.Load()
			why += fmt.Sprintf(" %s is %d, has epoch %d, states %x, complete %v;", n.node, m.self, m.Epoch, m.States, m.complete)
		}
		r := c.pool.record()
		why += fmt.Sprintf(" the client has epoch %d, states %x", r.Epoch, r.States)
		if s.witness != nil {
			at := s.witness.now.server
			at.mu.Lock()
			w := at.witnessed[r.Pool]
			at.mu.Unlock()
			why += fmt.Sprintf(", the witness epoch %d, states %x, %v", w.Epoch, w.States, c.pool.witnessError())
		}
		return why
	}
	v := c.pool.view.Load()
	for page := range uint64(s.pages) {
		var room [maxCopies]*link
		var first []byte
		var stamp protocol.Stamp
		for i, k := range c.pool.places(v, page, room[:0]) {
			m := s.serves[string(k.at.Load().address.Discriminator)].server.storage
			m.mu.Lock()
			b := m.memory.Bytes()[int(m.frames[page])*modelPage:][:modelPage]
			var st [1]protocol.Stamp
			m.run(page, st[:])
			m.mu.Unlock()
			if i == 0 {
				first, stamp = b, st[0]
			} else if !bytes.Equal(first, b) || !st[0].Same(stamp) {
				return "the copies of a page differ"
			}
		}
	}
	return ""
}

package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func (p *Path) Post(producer uint32) {
	if !p.Mu.TryLock() {
		p.Ring(core.BellSend, producer, true)
		return
	}
	if q := &p.Ep.Send; !p.takes(q, producer) || p.k.Events&core.OnReady != 0 {
		p.Ring(core.BellSend, producer, false)
	} else {
		q.Producer = producer
		for p.send() && q.Fetched != producer {
		}
		if q.Fetched != producer || p.k.DirectOps != 0 {
			p.left(producer)
		}
	}
	p.Mu.Unlock()
	if p.Gate.Load()&GateWakes != 0 {
		p.Wake()
	}
}

// takes reports whether a producer index is in range, and no doorbell that was stored before waits.
func (p *Path) takes(q *core.WorkQueue, producer uint32) bool {
	if p.k.Bells.Last.Load() != 0 {
		return false
	}
	return (p.r != nil || p.u != nil) && producer-q.Completed <= q.Mask+1 && int32(producer-q.Producer) > 0
}

// left leaves the messages that Send has not sent to a round.
func (p *Path) left(producer uint32) {
	if p.k.Events&core.Unflushed != 0 {
		p.k.Tx.Flush()
	}
	if p.Ep.Send.Posted() != 0 || p.k.DirectOps >= DirectPerRound {
		p.Ring(core.BellSend, producer, false)
	}
}

func (p *Path) PostReceives(producer uint32) {
	if !p.Mu.TryLock() {
		p.Ring(core.BellRecv, producer, true)
		return
	}
	if q := &p.Ep.Recv; !p.takes(q, producer) {
		p.Ring(core.BellRecv, producer, false)
	} else {
		q.Producer = producer
		if p.r != nil {
			p.r.giveCredit()
		}
		if p.k.Events&core.OnAcks != 0 {
			p.Ring(core.BellRecv, producer, false) // the peer waits
		}
	}
	p.Mu.Unlock()
	if p.Gate.Load()&GateWakes != 0 {
		p.Wake()
	}
}

// SetHost gives a path the calls of its host.
func (p *Path) SetHost(h Host) {
	p.Host = h
	p.guardedSend.prepare(p, false, p.Post)
	p.guardedRecv.prepare(p, true, p.PostReceives)
}

func (g *guardedCalls) prepare(p *Path, receive bool, post func(uint32)) {
	g.post = func() {
		done := false
		defer func() {
			if !done {
				p.Mu.Unlock() // memory is only touched with the lock held
			}
		}()
		post(g.producer)
		done = true
	}
	g.poll = func() {
		defer p.Mu.Unlock()
		g.what = pollOther
		g.what = p.poll(receive, g.most)
	}
}

func (p *Path) PostGuarded(receive bool, producer uint32) {
	g := p.guardedCalls(receive)
	g.producer = producer
	p.Guard(g.post)
}

// pollGuarded is poll. The lock is held, and free at the end.
func (p *Path) pollGuarded(receive bool, most uint32) polled {
	g := p.guardedCalls(receive)
	g.most = most
	p.Guard(g.poll)
	return g.what
}

func (p *Path) guardedCalls(receive bool) *guardedCalls {
	if receive {
		return &p.guardedRecv
	}
	return &p.guardedSend
}

// stepEvery is the number of polls of which one is a round, which looks at timers and doorbells.
const stepEvery = 64

func (p *Path) Poll(receive bool, most int) bool {
	looks := &p.looks[0]
	if receive {
		looks = &p.looks[1]
	}
	*looks++
	gate := p.Gate.Load()
	if *looks%stepEvery != 0 && gate&GateSteps == 0 {
		if !p.Mu.TryLock() {
			return false
		}
		var what polled
		if gate&GateGuards == 0 {
			what = p.poll(receive, uint32(most))
			p.Mu.Unlock()
		} else {
			what = p.pollGuarded(receive, uint32(most))
		}
		if what == pollCompleted {
			return true
		}
		if what == pollNothing && gate&GatePair == 0 {
			return false
		}
	}
	return p.Step(receive && most == 1, !receive && most == 1)
}

// poll takes what has come, until so many of the queue have completed.
func (p *Path) poll(receive bool, most uint32) polled {
	if p.r == nil && p.u == nil || p.k.busy() {
		return pollOther
	}
	if receive {
		return p.k.takeFrames(p, &p.Ep.Recv, &p.Ep.Recv.Completed, most)
	}
	r, q, taken := p.r, &p.Ep.Send, uint32(0)
	if r == nil {
		return p.k.takeFrames(p, q, &q.Completed, most)
	}
	if p.head != p.next {
		if p.reap(p.sends[p.head&q.Mask].mark - 1) {
			return pollCompleted
		}
		taken = p.line.Look(p.next-p.head > q.Mask/2) // before the look for frames
	} else if r.head != r.next {
		if p.settled(r.message(r.head).Mark - 1) {
			return pollCompleted
		}
		taken = p.line.Look(r.next-r.head > q.Mask/2)
	}
	what := p.k.takeFrames(p, q, &q.Completed, most)
	if what == pollNothing && (p.head != p.next && p.reap(taken) || r.head != r.next && p.settled(taken)) {
		return pollCompleted
	}
	return what
}

// settled completes the messages that have arrived, as reap does sends, and reports whether there were any.
func (p *Path) settled(taken uint32) bool {
	before := p.Ep.Send.Completed
	p.r.takenUpTo(taken)
	p.k.SettleAll() // and what waited behind them goes on
	return p.Ep.Send.Completed != before
}

// CQPath is the host's way to the completions of one queue, whose VIs have paths.
type CQPath struct {
	k       *Transport
	entries *uint32 // that the NIC has written
	last    *Path   // to which a frame came last
	looks   uint32
	most    uint32 // of run, a guarded call of poll with the outcome what
	what    polled
	run     func()

	Host
}

// CQPathOf returns the path of a completion queue, nil if there is none with that number.
func (k *Transport) CQPathOf(cq uint32) *CQPath {
	if entries := k.CQs.Written(cq); entries != nil {
		c := &CQPath{k: k, entries: entries}
		c.run = func() {
			defer c.Mu.Unlock()
			c.what = pollOther
			c.what = c.poll(c.most)
		}
		return c
	}
	return nil
}

func (c *CQPath) Poll(most int) bool {
	c.looks++
	gate := c.Gate.Load()
	if c.looks%stepEvery != 0 && gate&GateSteps == 0 {
		if !c.Mu.TryLock() {
			return false
		}
		var what polled
		if gate&GateGuards == 0 {
			what = c.poll(uint32(most))
			c.Mu.Unlock()
		} else {
			c.most = uint32(most)
			c.Guard(c.run)
			what = c.what
		}
		if what == pollCompleted {
			return true
		}
		if what == pollNothing && gate&GatePair == 0 {
			return false
		}
	}
	return c.Step(false, false)
}

// poll takes what has come, until the queue has so many more entries.
func (c *CQPath) poll(most uint32) polled {
	k, before := c.k, *c.entries
	if k.Shorts == nil || k.busy() {
		return pollOther
	}
	flying := len(k.wires.flying) > 0
	if flying {
		k.wires.look() // before the look for frames
	}
	if c.last == nil || c.last.r == nil {
		c.last = k.anyPath()
	}
	what := pollOther
	if c.last != nil {
		what = k.takeFrames(c.last, &k.None, c.entries, most)
	}
	if what == pollNothing && flying && (k.wires.moved || k.wires.heard) {
		k.takeTaken()
	}
	if *c.entries != before {
		return pollCompleted
	}
	return what
}

// busy reports whether there is something for a round to do before frames are taken.
func (k *Transport) busy() bool {
	return k.Bells.Last.Load() != 0 || k.Events&^core.InFlight != 0 || !k.Plain || k.Rx.Held
}

// takeFrames takes short frames to their receives until done, which counts completions, has moved on by most. Most frames are for
// p. It leaves a frame of another kind, and one that it cannot place, to Receive, which ends with a completion of queue of.
func (k *Transport) takeFrames(p *Path, of *core.WorkQueue, done *uint32, most uint32) polled {
	line, before := k.Shorts, *done
	for n := 0; ; n++ {
		payload, header, b, found := line.Next()
		if found == core.FoundNone {
			break
		}
		to := p
		if uint16(header) != p.id || found != core.FoundShort || k.Peers != nil {
			if to = nil; found == core.FoundShort {
				to = pathTo(k.Core, header)
			}
			if to == nil {
				return k.receive(of, done, before)
			}
		}
		if b&(datasheet.ShortLent|datasheet.ShortWrite) != 0 {
			if b&datasheet.ShortLent != 0 || !to.written(payload, header, b) {
				return k.receive(of, done, before)
			}
			if line.Pass(false); k.Events&^core.InFlight != 0 || n > core.WindowFrames {
				return pollOther
			}
			continue
		}
		seg, memory := to.expected(header, b, uint32(len(payload)))
		if seg != nil {
			st := datasheet.StatusDone | datasheet.StatusOpReceive
			if b&datasheet.ShortImmediate != 0 {
				seg.Immediate = b.Immediate()
				st |= datasheet.StatusImmediate
			}
			if at := bytesAt(memory, uint32(len(payload))); len(payload) == 64 {
				*(*[64]byte)(at) = *(*[64]byte)(payload)
			} else {
				copy(at, payload)
			}
			to.landed(seg, header, uint32(len(payload)), st)
		} else if !to.takeUnusual(payload, header, b) {
			return k.receive(of, done, before)
		}
		got := *done-before >= most
		if line.Pass(got); got {
			return pollCompleted
		}
		if k.Events&^core.InFlight != 0 || n > core.WindowFrames {
			return pollOther
		}
	}
	if *done != before {
		return pollCompleted
	}
	return pollNothing
}

// receive takes frames of all kinds.
func (k *Transport) receive(of *core.WorkQueue, done *uint32, before uint32) polled {
	switch k.Rx.Receive(of); {
	case k.Events&^core.InFlight != 0:
		return pollOther
	case *done != before:
		return pollCompleted
	case k.Rx.Behind:
		return pollOther
	}
	return pollNothing // an RDMA write, or the like
}

// anyPath returns the path of a connection, nil if none has one.
func (k *Transport) anyPath() *Path {
	for _, ep := range k.Living {
		if p := pathOf(ep); p != nil && p.r != nil {
			return p
		}
	}
	return nil
}

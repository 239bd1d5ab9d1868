package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// completions ends descriptors and enters them into completion queues.
type completions struct {
	*counters
	*reports
	memory *regions
	bells  *doorbells
	queues []*completionQueue
	last   uint32             // number that was given out last
	failed []*completionQueue // have lost an entry in this step
}

func (c *completions) clear() {
	n := c.memory.limits.CQs
	c.queues, c.last, c.failed = make([]*completionQueue, n), n-1, nil
}

// completionQueue is a ring of entries in host memory.
type completionQueue struct {
	id        uint32
	iova      uint64
	indexIOVA uint64
	log2      uint8
	vector    uint16
	users     int
	dead      bool
	armed     bool
	armWord   uint32
	producer  uint32                 // free-running
	consumer  uint32                 // our last copy of the host's index
	entries   []datasheet.Completion // nil where they are not contiguous for us
	index     *uint32
	epoch     uint64
}

// queue finds a completion queue.
func (c *completions) queue(id uint32) *completionQueue {
	if id >= uint32(len(c.queues)) {
		return nil
	}
	return c.queues[id]
}

// create makes a completion queue. As with endpoints, numbers are not used again
// before all others were.
func (c *completions) create(b *datasheet.CreateCQBody) (reply datasheet.CQBody, why refusal) {
	limits := &c.memory.limits
	switch {
	case b.IOVA == 0 || b.IOVA%datasheet.CompletionSize != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQIOVA}
	case b.IndexIOVA == 0 || b.IndexIOVA%4 != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQIndex}
	case !limits.hasVector(b.Vector):
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQVector}
	case b.Log2 < datasheet.MinCQLog2 || b.Log2 > limits.CQLog2:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQLog2}
	}
	for range c.queues {
		c.last = (c.last + 1) % limits.CQs
		if c.queues[c.last] != nil {
			continue
		}
		cq := &completionQueue{id: c.last, iova: b.IOVA, indexIOVA: b.IndexIOVA, log2: b.Log2, vector: b.Vector}
		if !c.memory.reachable(cq.iova, cq.bytes()) || !c.mapCQ(cq) {
			return reply, refusal{datasheet.ResultDMAFault, fieldCQIOVA}
		}
		c.queues[c.last] = cq
		c.bells.open(limits.Endpoints+cq.id, 0, cq.vector != datasheet.NoVector)
		return datasheet.CQBody{CQ: cq.id}, refusal{}
	}
	return reply, refusal{datasheet.ResultResource, 0}
}

// destroy ends a completion queue that no endpoint uses.
func (c *completions) destroy(b *datasheet.CQBody) refusal {
	cq := c.queue(b.CQ)
	switch {
	case cq == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldCQ}
	case cq.users > 0:
		return refusal{datasheet.ResultResource, fieldCQ}
	}
	c.queues[cq.id] = nil
	c.bells.close(c.memory.limits.Endpoints + cq.id)
	return refusal{}
}

// operations is what completed descriptors say of their operation, by that; the last one
// there is not.
var operations = [datasheet.ControlOpMask + 1]datasheet.Status{datasheet.OpSend: datasheet.StatusOpSend,
	datasheet.OpRDMAWrite: datasheet.StatusOpRDMAWrite, datasheet.OpRDMARead: datasheet.StatusOpRDMARead}

// complete ends the oldest token of a queue, which is that of l: descriptor, then
// completion entry, then interrupt. st lacks StatusDone and the operation.
func (c *completions) complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status) {
	seg := l.descriptor
	if seg == nil || l.stamp != c.memory.stamp {
		seg = c.memory.found(l, ep.ptag)
	}
	if l.eager&eagerDescriptor != 0 {
		c.memory.voidDescriptor(l, ep.ptag)
	}
	st |= datasheet.StatusDone | operations[l.control.bits.Op()]
	if q.receive {
		st |= datasheet.StatusOpReceive
	}
	if seg == nil {
		code := datasheet.EventCompletionProtect
		if st&(datasheet.StatusFormatError|datasheet.StatusProtectionError) != 0 {
			code = datasheet.EventPostDescriptor
		}
		c.event(datasheet.Event{Code: code, Endpoint: ep.id, CQ: datasheet.NoCQ, Descriptor: l.token.Address,
			Detail: uint32(st & datasheet.StatusOpMask)})
	} else {
		if seg.Length = length; l.front != 0 {
			seg.Front = 0
		}
		if st&datasheet.StatusImmediate != 0 {
			seg.Immediate = immediate
		}
		seg.StoreStatus(st)
	}
	index := q.completed
	q.completed++
	if q.named {
		index = l.token.Flags
		if q.source != nil {
			q.source.recv.completed++
		}
	}
	c.progress++
	c.count(datasheet.CounterCompletions, 1)
	if q.cq != nil {
		c.enter(ep, q, index, st)
	} else if q.armed && datasheet.ArmReached(q.armWord, q.completed) {
		q.armed = false
		c.raise(q.vector)
	}
}

// enter adds an entry to the completion queue of q.
func (c *completions) enter(ep *endpoint, q *workQueue, index uint32, st datasheet.Status) {
	cq := q.cq
	if cq.dead {
		return
	}
	if cq.epoch != c.memory.epoch && !c.mapCQ(cq) {
		c.kill(cq, datasheet.EventCompletionProtect)
		return
	}
	mask := uint32(1)<<cq.log2 - 1
	if cq.producer-cq.consumer > mask {
		cq.consumer = datasheet.LoadIndex(cq.index)
		if cq.producer-cq.consumer > mask {
			c.kill(cq, datasheet.EventCQOverrun)
			return
		}
	}
	var entry *datasheet.Completion
	if cq.entries != nil {
		entry = &cq.entries[cq.producer&mask]
	} else if entry = c.scattered(cq, cq.producer&mask); entry == nil {
		c.kill(cq, datasheet.EventCompletionProtect)
		return
	}
	entry.Endpoint, entry.Index, entry.Status = ep.id, index, uint32(st)
	flags := datasheet.PhaseOf(cq.producer, cq.log2)
	if q.receive {
		flags |= datasheet.CompletionReceive
	}
	entry.Publish(flags)
	cq.producer++
	if cq.armed && datasheet.ArmReached(cq.armWord, cq.producer) {
		cq.armed = false
		c.raise(cq.vector)
	}
}

// bytes of the ring.
func (cq *completionQueue) bytes() uint64 { return datasheet.CompletionSize << cq.log2 }

// mapCQ looks up the memory of a completion queue. It fails if the host's index is out of
// reach, and leaves entries to be looked up one by one where they are not contiguous, as in
// the pages of a virtual machine.
func (c *completions) mapCQ(cq *completionQueue) bool {
	cq.index = datasheet.IndexAt(c.memory.whole(cq.indexIOVA, 4, false))
	cq.entries = nil
	if w, err := c.memory.bus.Window(cq.iova, cq.bytes(), true); err == nil && uint64(len(w)) >= cq.bytes() {
		cq.entries = datasheet.CompletionsAt(w[:cq.bytes()])
	}
	cq.epoch = c.memory.epoch
	return cq.index != nil
}

// scattered is entry i of a completion queue whose ring is not contiguous, nil if it is out
// of reach.
func (c *completions) scattered(cq *completionQueue, i uint32) *datasheet.Completion {
	at := c.memory.whole(cq.iova+uint64(i)*datasheet.CompletionSize, datasheet.CompletionSize, true)
	if entries := datasheet.CompletionsAt(at); len(entries) == 1 {
		return &entries[0]
	}
	return nil
}

// kill stops a completion queue that lost an entry. Its endpoints cannot be
// trusted to report any more, so they go to the error state.
func (c *completions) kill(cq *completionQueue, code datasheet.EventCode) {
	cq.dead = true
	c.event(datasheet.Event{Code: code, CQ: cq.id})
	c.raise(cq.vector)
	c.failed = append(c.failed, cq)
	*c.todo |= brokenQueue
}

// arm notes that the consumer of an endpoint's queue wants an interrupt. It returns
// false if there is none to be had.
func (c *completions) arm(q *workQueue, word uint32) bool {
	if word&datasheet.ArmFlag == 0 || q.cq != nil || q.vector == datasheet.NoVector {
		return false
	}
	if q.armed, q.armWord = !datasheet.ArmReached(word, q.completed), word; !q.armed {
		c.raise(q.vector)
	}
	return true
}

// armCQ notes that the consumer of a completion queue wants an interrupt. It returns
// false if there is none to be had.
func (c *completions) armCQ(id, word uint32) bool {
	cq := c.queue(id)
	if cq == nil || word&datasheet.ArmFlag == 0 || cq.vector == datasheet.NoVector {
		return false
	}
	if cq.armed, cq.armWord = !cq.dead && !datasheet.ArmReached(word, cq.producer), word; !cq.armed {
		c.raise(cq.vector)
	}
	return true
}

// resize has a completion queue go on in another ring, from its first slot on. The host
// still takes what is in the old one.
func (c *completions) resize(b *datasheet.ResizeCQBody) (reply datasheet.ResizeCQReply, why refusal) {
	cq := c.queue(b.CQ)
	switch {
	case cq == nil:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldResizedCQ}
	case cq.dead:
		return reply, refusal{datasheet.ResultInvalidState, fieldResizedCQ}
	case b.IOVA == 0 || b.IOVA%datasheet.CompletionSize != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQIOVA}
	case b.IndexIOVA == 0 || b.IndexIOVA%4 != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQIndex}
	case b.Log2 < datasheet.MinCQLog2 || b.Log2 > c.memory.limits.CQLog2:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldResizedLog2}
	}
	other := *cq
	other.iova, other.indexIOVA, other.log2 = b.IOVA, b.IndexIOVA, b.Log2
	if !c.memory.reachable(other.iova, other.bytes()) || !c.mapCQ(&other) {
		return reply, refusal{datasheet.ResultDMAFault, fieldCQIOVA}
	}
	reply.Written = cq.producer
	other.producer, other.consumer, other.armed = 0, 0, false
	if cq.armed {
		c.raise(cq.vector)
	}
	*cq = other
	return reply, refusal{}
}

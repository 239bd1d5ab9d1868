package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// completions ends descriptors and enters them into completion queues.
type completions struct {
	*Core
	queues []*completionQueue
	last   uint32             // number that was given out last
	Failed []*completionQueue // have lost an entry in this step
}

func (c *completions) clear() {
	n := c.Limits.CQs
	c.queues, c.last, c.Failed = make([]*completionQueue, n), n-1, nil
}

func (c *completions) Queue(id uint32) *completionQueue {
	if id >= uint32(len(c.queues)) {
		return nil
	}
	return c.queues[id]
}

// Written returns where a completion queue counts its entries, nil if there is no such queue.
func (c *completions) Written(id uint32) *uint32 {
	if cq := c.Queue(id); cq != nil {
		return &cq.producer
	}
	return nil
}

// Create makes a completion queue. As with endpoints, numbers are not used again
// before all others were.
func (c *completions) Create(b *datasheet.CreateCQBody) (reply datasheet.CQBody, why Refusal) {
	switch {
	case b.IOVA == 0 || b.IOVA%datasheet.CompletionSize != 0:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.IOVA)}
	case b.IndexIOVA == 0 || b.IndexIOVA%4 != 0:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.IndexIOVA)}
	case !c.Limits.HasVector(b.Vector):
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Vector)}
	case b.Log2 < datasheet.MinCQLog2 || b.Log2 > c.Limits.CQLog2:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Log2)}
	}
	for range c.queues {
		c.last = (c.last + 1) % c.Limits.CQs
		if c.queues[c.last] != nil {
			continue
		}
		cq := &completionQueue{id: c.last, iova: b.IOVA, indexIOVA: b.IndexIOVA, log2: b.Log2, vector: b.Vector}
		if !c.Regions.reachable(cq.iova, cq.bytes()) || !c.mapCQ(cq) {
			return reply, Refusal{datasheet.ResultDMAFault, Field(b, &b.IOVA)}
		}
		c.queues[c.last] = cq
		c.Bells.Open(c.Limits.Endpoints+cq.id, 0, cq.vector != datasheet.NoVector)
		return datasheet.CQBody{CQ: cq.id}, Refusal{}
	}
	return reply, Refusal{datasheet.ResultResource, 0}
}

// Destroy ends a completion queue that no endpoint uses.
func (c *completions) Destroy(b *datasheet.CQBody) Refusal {
	cq := c.Queue(b.CQ)
	switch {
	case cq == nil:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.CQ)}
	case cq.Users > 0:
		return Refusal{datasheet.ResultResource, Field(b, &b.CQ)}
	}
	c.queues[cq.id] = nil
	c.Bells.Close(c.Limits.Endpoints + cq.id)
	return Refusal{}
}

// operations are the operation bits of completed descriptors, by operation; the last one
// there is not.
var operations = [datasheet.ControlOpMask + 1]datasheet.Status{datasheet.OpSend: datasheet.StatusOpSend,
	datasheet.OpRDMAWrite: datasheet.StatusOpRDMAWrite, datasheet.OpRDMARead: datasheet.StatusOpRDMARead}

// Complete ends the oldest token of a queue, which is that of l: descriptor, then
// completion entry, then interrupt. st lacks StatusDone and the operation.
func (c *completions) Complete(ep *Endpoint, q *WorkQueue, l *Layout, length, immediate uint32, st datasheet.Status) {
	seg := l.Descriptor
	if seg == nil || l.Stamp != c.Regions.Stamp {
		seg = c.Regions.found(l, ep.Ptag)
	}
	if l.Eager&eagerDescriptor != 0 {
		c.Regions.voidDescriptor(l, ep.Ptag)
	}
	st |= datasheet.StatusDone | operations[l.Control.Bits.Op()]
	if q.Receive {
		st |= datasheet.StatusOpReceive
	}
	if seg == nil {
		code := datasheet.EventCompletionProtect
		if st&(datasheet.StatusFormatError|datasheet.StatusProtectionError) != 0 {
			code = datasheet.EventPostDescriptor
		}
		c.Event(datasheet.Event{Code: code, Endpoint: ep.ID, CQ: datasheet.NoCQ, Descriptor: l.Token.Address,
			Detail: uint32(st & datasheet.StatusOpMask)})
	} else {
		if seg.Length = length; l.Front != 0 {
			seg.Front = 0
		}
		if st&datasheet.StatusImmediate != 0 {
			seg.Immediate = immediate
		}
		seg.StoreStatus(st)
	}
	index := q.Completed
	q.Completed++
	if q.Named {
		index = l.Token.Flags
		if q.Source != nil {
			q.Source.Recv.Completed++
		}
	}
	c.Progress++
	c.Count(datasheet.CounterCompletions, 1)
	c.Tell(ep, q, index, st)
}

// Watched reports whether a completion queue or an interrupt is to tell of a completion.
func (q *WorkQueue) Watched() bool { return q.CQ != nil || q.armed }

// Tell tells them that descriptor index, whose status is written, has completed.
func (c *completions) Tell(ep *Endpoint, q *WorkQueue, index uint32, st datasheet.Status) {
	if q.CQ != nil {
		c.enter(ep, q, index, st)
	} else if q.armed && datasheet.ArmReached(q.armWord, q.Completed) {
		q.armed = false
		c.raise(q.Vector)
	}
}

// enter adds an entry to the completion queue of q.
func (c *completions) enter(ep *Endpoint, q *WorkQueue, index uint32, st datasheet.Status) {
	cq := q.CQ
	if cq.Dead {
		return
	}
	if cq.epoch != c.Regions.Epoch && !c.mapCQ(cq) {
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
	entry.Endpoint, entry.Index, entry.Status = ep.ID, index, uint32(st)
	flags := datasheet.PhaseOf(cq.producer, cq.log2)
	if q.Receive {
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
	cq.index = datasheet.IndexAt(c.Regions.whole(cq.indexIOVA, 4, false))
	cq.entries = nil
	if w, err := c.Regions.bus.Window(cq.iova, cq.bytes(), true); err == nil && uint64(len(w)) >= cq.bytes() {
		cq.entries = datasheet.CompletionsAt(w[:cq.bytes()])
	}
	cq.epoch = c.Regions.Epoch
	return cq.index != nil
}

// scattered is entry i of a completion queue whose ring is not contiguous, nil if it is out
// of reach.
func (c *completions) scattered(cq *completionQueue, i uint32) *datasheet.Completion {
	at := c.Regions.whole(cq.iova+uint64(i)*datasheet.CompletionSize, datasheet.CompletionSize, true)
	if entries := datasheet.CompletionsAt(at); len(entries) == 1 {
		return &entries[0]
	}
	return nil
}

// kill stops a completion queue that lost an entry. Its endpoints cannot be
// trusted to report any more, so they go to the error state.
func (c *completions) kill(cq *completionQueue, code datasheet.EventCode) {
	cq.Dead = true
	c.Event(datasheet.Event{Code: code, CQ: cq.id})
	c.raise(cq.vector)
	c.Failed = append(c.Failed, cq)
	*c.todo |= BrokenQueue
}

// Arm notes that the consumer of an endpoint's queue wants an interrupt. It returns
// false if there is none to be had.
func (c *completions) Arm(q *WorkQueue, word uint32) bool {
	if word&datasheet.ArmFlag == 0 || q.CQ != nil || q.Vector == datasheet.NoVector {
		return false
	}
	if q.armed, q.armWord = !datasheet.ArmReached(word, q.Completed), word; !q.armed {
		c.raise(q.Vector)
	}
	return true
}

// ArmCQ notes that the consumer of a completion queue wants an interrupt. It returns
// false if there is none to be had.
func (c *completions) ArmCQ(id, word uint32) bool {
	cq := c.Queue(id)
	if cq == nil || word&datasheet.ArmFlag == 0 || cq.vector == datasheet.NoVector {
		return false
	}
	if cq.armed, cq.armWord = !cq.Dead && !datasheet.ArmReached(word, cq.producer), word; !cq.armed {
		c.raise(cq.vector)
	}
	return true
}

// Resize has a completion queue go on in another ring, from its first slot on. The host
// still takes what is in the old one.
func (c *completions) Resize(b *datasheet.ResizeCQBody) (reply datasheet.ResizeCQReply, why Refusal) {
	cq := c.Queue(b.CQ)
	switch {
	case cq == nil:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.CQ)}
	case cq.Dead:
		return reply, Refusal{datasheet.ResultInvalidState, Field(b, &b.CQ)}
	case b.IOVA == 0 || b.IOVA%datasheet.CompletionSize != 0:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.IOVA)}
	case b.IndexIOVA == 0 || b.IndexIOVA%4 != 0:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.IndexIOVA)}
	case b.Log2 < datasheet.MinCQLog2 || b.Log2 > c.Limits.CQLog2:
		return reply, Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Log2)}
	}
	other := *cq
	other.iova, other.indexIOVA, other.log2 = b.IOVA, b.IndexIOVA, b.Log2
	if !c.Regions.reachable(other.iova, other.bytes()) || !c.mapCQ(&other) {
		return reply, Refusal{datasheet.ResultDMAFault, Field(b, &b.IOVA)}
	}
	reply.Written = cq.producer
	other.producer, other.consumer, other.armed = 0, 0, false
	if cq.armed {
		c.raise(cq.vector)
	}
	*cq = other
	return reply, Refusal{}
}

package coherence

import (
	"context"
	"fmt"
)

// Sizes that VIA gives.
const (
	descriptorBytes = 64 // control segment and two data segments
	controlBytes    = 32 // control segment
	tokenBytes      = 8  // that the doorbell takes: an uncached store
)

// transfer is one message on its way over two machines. now is where it is; each step
// adds its time to one of the parts.
type transfer struct {
	*Options
	tx, rx *machine
	now    Time
	Result
}

// onBus computes a transfer between machines with memory buses.
func onBus(ctx context.Context, o *Options) (*Result, error) {
	f := &transfer{Options: o, tx: newMachine(o, Sender), rx: newMachine(o, Receiver)}
	f.send()
	f.SendUser = f.User
	frames := Time(o.System.NIC.Frames(o.Bytes))
	if o.Until == Wire {
		frames = 1
	}
	f.SendTransport = frames * o.System.NIC.Frame
	f.spend(&f.Transport, f.now+f.SendTransport)
	if o.Until != Wire {
		f.spend(&f.Transport, f.now+frames*o.System.NIC.Frame)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.receive()
	}
	for _, m := range []*machine{f.tx, f.rx} {
		if m.err != nil {
			return nil, fmt.Errorf("%s: %w", o.Mechanism, m.err)
		}
	}
	f.Transactions = append(f.tx.log, f.rx.log...)
	return &f.Result, f.register()
}

// register initialises the blocks of an eager region on a machine of its own: it is long past when the message is made.
func (f *transfer) register() error {
	if f.Mechanism != EDT {
		return nil
	}
	m := newMachine(f.Options, Sender)
	m.place(Payload, f.Bytes, modified, false)
	switch f.Initialising {
	case Flush:
		f.Registration = m.flush(0, Payload)
	case NICReads:
		for i := range m.sizes[Payload] {
			b := m.starts[Payload] + i
			f.Registration = m.bus.run(f.Registration, func() phases {
				p := m.fetch(b, m.full())
				m.blocks[b].nic = shared
				return p
			})
		}
	}
	f.Initialised = len(m.log)
	return m.err
}

// startDMA returns when a DMA transfer moves its first block. The one fitted figure for its start has initiation
// and interrupt in it. That each is half of it is an assumption.
func (f *transfer) startDMA() Time {
	start := f.System.NIC.Start
	f.Initiation += start - start/2
	f.Interrupt += start / 2
	return f.now + start
}

// spend moves on to a time, which counts for a part.
func (f *transfer) spend(part *Time, to Time) {
	*part += to - f.now
	f.now = to
}

func (f *transfer) send() {
	m := f.tx
	switch f.Mechanism {
	case EDT:
		m.place(Payload, f.Bytes, shared, true)
		m.place(Descriptor, descriptorBytes, shared, true)
		f.build()
		m.finish(f.now)
		f.spend(&f.Transfer, m.bus.drain(f.now))
		m.sent(Payload)
		m.sent(Descriptor)
	case CCDMAIntv, CCDMARetr:
		m.place(Payload, f.Bytes, shared, false)
		m.place(Descriptor, descriptorBytes, shared, false)
		f.build()
		f.dma(Descriptor)
		f.dma(Payload)
	case Inline:
		m.place(Payload, f.Bytes, shared, false)
		m.place(Descriptor, controlBytes, shared, false)
		f.build()
		f.dma(Descriptor, Payload)
	case DMA:
		m.place(Payload, f.Bytes, invalid, false)
		m.place(Descriptor, descriptorBytes, invalid, false)
		f.build()
		f.spend(&f.Transfer, m.flush(m.flush(f.now, Payload), Descriptor))
		f.dma(Descriptor)
		f.dma(Payload)
	case PIO, PIOWC:
		// No other agent reads them, so they stay the host's own.
		m.place(Payload, f.Bytes, modified, false)
		m.place(Descriptor, descriptorBytes, modified, false)
		f.build()
		f.spend(&f.Transfer, f.copyOut(f.copyOut(f.now, Payload), Descriptor))
	case CNI:
		f.enqueue()
	}
}

// inOrder are the numbers of the words of so many bytes.
func (m *machine) inOrder(bytes int) []int {
	return Sequential.words(ceil(bytes, m.Processor.Word), 0, 0)
}

// build is the program's part: message, descriptor, doorbell.
func (f *transfer) build() {
	m := f.tx
	t := m.program(f.now, Payload, f.Words)
	t = m.program(t, Descriptor, m.inOrder(m.sizes[Descriptor]*m.NIC.Block))
	m.place(Token, tokenBytes, invalid, false)
	f.spend(&f.User, m.uncached(t, Store, m.starts[Token], tokenBytes))
}

// dma is one DMA transfer of regions into the NIC.
func (f *transfer) dma(regions ...Region) {
	m := f.tx
	t := f.startDMA()
	for _, r := range regions {
		for i := range m.sizes[r] {
			b := m.starts[r] + i
			if f.Mechanism == CCDMARetr && m.blocks[b].host == modified {
				t = m.bus.run(t, func() phases { return phases{Retry, NIC, b, 0, 0, 0} })
				t = m.bus.run(t, func() phases { return m.castOut(b, shared) })
			}
			t = m.bus.run(t, func() phases { return m.fetch(b, m.paced()) })
		}
		m.sent(r)
	}
	f.spend(&f.Transfer, t)
}

// copyOut stores a region into NIC memory, in words or in write-combined blocks.
func (f *transfer) copyOut(t Time, r Region) Time {
	m := f.tx
	perBlock := m.NIC.Block / m.Processor.Word
	for i := range m.sizes[r] {
		b := m.starts[r] + i
		for range perBlock {
			t = m.read(t, b)
			if f.Mechanism == PIO {
				t = m.uncached(t, Store, b, m.Processor.Word)
			}
		}
		if f.Mechanism == PIOWC {
			t = m.uncached(t, Store, b, m.NIC.Block)
		}
		m.blocks[b].local = m.blocks[b].cached
	}
	m.sent(r)
	return t
}

// enqueue writes the message into the cacheable queue, which the NIC follows. The blocks'
// valid bits tell it that there is a message, so there is neither descriptor nor doorbell;
// their sense is reversed in each pass, so they are never cleared. A queue is strictly first
// in, first out: what is not written in order is copied.
func (f *transfer) enqueue() {
	m := f.tx
	m.place(Queue, min(f.Bytes, m.NIC.Queue), shared, true)
	m.place(Pointers, 2*m.NIC.Block, shared, true)
	inOrder := true
	for i, w := range f.Words {
		inOrder = inOrder && w == i
	}
	words, work := m.inOrder(f.Bytes), m.cycles(m.Processor.Work)
	if !inOrder {
		m.place(Payload, f.Bytes, modified, false)
		f.spend(&f.User, m.program(f.now, Payload, f.Words))
		work = 0
	}
	perBlock, wraps := m.NIC.Block/m.Processor.Word, m.sizes[Queue]
	t := f.now
	for _, w := range words {
		if b := w / perBlock; w%perBlock == 0 && b%wraps == 0 {
			t = m.pass(t)
		}
		if !inOrder {
			t = m.read(t, m.starts[Payload]+w/perBlock)
		}
		t = m.write(t+work, m.starts[Queue]+w/perBlock%wraps)
	}
	if inOrder {
		f.spend(&f.User, t)
	}
	m.finish(t)
	f.spend(&f.Transfer, m.bus.drain(t))
	m.sent(Queue)
}

// pass begins another pass of the queue: lazy pointers are exchanged once in each. The
// host's store to the tail invalidates the NIC's copy, the NIC's to the head the host's.
func (m *machine) pass(t Time) Time {
	tail, head := m.starts[Pointers], m.starts[Pointers]+1
	t = m.bus.run(t, func() phases {
		m.blocks[tail].host, m.blocks[tail].nic = shared, invalid
		return phases{Invalidate, Host, tail, 0, 0, 0}
	})
	return m.bus.run(t, func() phases {
		m.blocks[head].host, m.blocks[head].nic = invalid, shared
		return phases{Invalidate, NIC, head, 0, 0, 0}
	})
}

func (f *transfer) receive() {
	m := f.rx
	switch f.Mechanism {
	case CNI:
		f.dequeue()
		return
	case PIO:
		f.copyIn()
		return
	}
	m.place(Payload, f.Bytes, shared, false)
	m.place(Descriptor, descriptorBytes, shared, false)
	// The message is in the NIC's memory. Until blocks are handed over, the host's copies are of the last one and are not read.
	for i := range m.sizes[Payload] {
		m.blocks[m.starts[Payload]+i].local = 1
	}
	data, began := m.full(), f.now
	if f.Mechanism != EDT {
		data = m.paced()
		began = f.startDMA()
	}
	if f.Mechanism == DMA {
		// The program has flushed the buffer when it posted the receive.
		m.flush(0, Payload)
	}
	hand := func(b int) phases { return m.writeBack(b, data) }
	if f.Receiving == Coherent {
		hand = m.claim
	}
	m.handOver(began, m.starts[Payload], m.sizes[Payload], hand)
	if f.Until == Consumed && f.Mechanism == EDT && f.Receiving == WriteBack {
		// Blocks' valid bits let the program begin before the last one is there.
		f.consume(began)
		return
	}
	// The descriptor's first block has the status, which the program polls.
	status := m.starts[Descriptor]
	t := m.bus.drain(began)
	m.blocks[status].written++
	m.blocks[status].local = m.blocks[status].written
	t = m.bus.run(t, func() phases { return m.writeBack(status, data) })
	f.spend(&f.Transfer, t)
	f.spend(&f.User, m.read(t, status))
	if f.Until == Consumed {
		f.consume(f.now)
	}
}

// handOver posts a transaction for each block from first on, each after the one before.
func (m *machine) handOver(at Time, first, n int, do func(b int) phases) {
	if n == 0 {
		return
	}
	m.bus.post(at, func() phases {
		blk := &m.blocks[first]
		blk.written = blk.local
		p := do(first)
		blk.handedOver, blk.landed = true, m.bus.grant(at)+m.bus.span(p)
		m.handOver(blk.landed, first+1, n-1, do)
		return p
	})
}

func (m *machine) writeBack(b, data int) phases {
	blk := &m.blocks[b]
	blk.host, blk.memory = invalid, blk.local
	return phases{Write, NIC, b, m.NIC.Block, 0, data}
}

func (m *machine) claim(b int) phases {
	blk := &m.blocks[b]
	blk.host, blk.nic = invalid, modified
	return phases{Invalidate, NIC, b, 0, 0, 0}
}

// consume is the program that reads the message word by word, as far as it is there.
func (f *transfer) consume(t Time) {
	m := f.rx
	perBlock := m.NIC.Block / m.Processor.Word
	handed := f.now
	for i := range m.sizes[Payload] {
		b := m.starts[Payload] + i
		for !m.blocks[b].handedOver {
			m.bus.next()
		}
		handed = max(handed, m.blocks[b].landed)
		t = max(t, m.blocks[b].landed)
		for range perBlock {
			t = m.read(t, b) + m.cycles(m.Processor.Work)
		}
	}
	f.spend(&f.Transfer, handed)
	f.spend(&f.User, t)
}

// dequeue brings the message to the program through a cacheable queue: the NIC takes the
// blocks, which the host reads from it. Valid bits in the blocks tell the program.
func (f *transfer) dequeue() {
	m := f.rx
	n := min(f.Bytes, m.NIC.Queue)
	m.place(Queue, n, shared, false)
	m.place(Pointers, 2*m.NIC.Block, shared, true)
	t := f.now
	for left := ceil(f.Bytes, m.NIC.Block); left > 0; left -= m.sizes[Queue] {
		for i := range min(left, m.sizes[Queue]) {
			b := m.starts[Queue] + i
			if i == 0 {
				t = m.pass(t)
			}
			t = m.bus.run(t, func() phases {
				m.blocks[b].written++
				m.blocks[b].local = m.blocks[b].written
				return m.claim(b)
			})
			t = m.read(t, b)
		}
	}
	f.have(t)
}

// have is the time at which the program has the message in its caches, where it may read it.
func (f *transfer) have(t Time) {
	f.spend(&f.Transfer, t)
	if m := f.rx; f.Until == Consumed {
		f.spend(&f.User, t+Time(ceil(f.Bytes, m.Processor.Word))*m.cycles(m.L1.Latency+m.Processor.Work))
	}
}

// copyIn loads the message from NIC memory word by word, after a word that says it is there.
func (f *transfer) copyIn() {
	m := f.rx
	m.place(Payload, f.Bytes, modified, false)
	m.place(Token, tokenBytes, invalid, false)
	f.spend(&f.User, m.uncached(f.now, Load, m.starts[Token], tokenBytes))
	perBlock := m.NIC.Block / m.Processor.Word
	t := f.now
	for _, w := range m.inOrder(f.Bytes) {
		b := m.starts[Payload] + w/perBlock
		t = m.write(m.uncached(t, Load, b, m.Processor.Word), b)
	}
	f.have(t)
}

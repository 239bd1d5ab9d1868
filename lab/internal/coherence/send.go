package coherence

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

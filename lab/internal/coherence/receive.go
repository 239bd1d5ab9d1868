package coherence

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
	m.land(Payload)
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

// land puts a message from the network into the NIC's memory. Until blocks are handed
// over, the host's copies are of the last message and are not read.
func (m *machine) land(r Region) {
	for i := range m.sizes[r] {
		m.blocks[m.starts[r]+i].local = 1
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
	f.spend(&f.Transfer, t)
	if f.Until == Consumed {
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
	f.spend(&f.Transfer, t)
	if f.Until == Consumed {
		f.spend(&f.User, t+Time(ceil(f.Bytes, m.Processor.Word))*m.cycles(m.L1.Latency+m.Processor.Work))
	}
}

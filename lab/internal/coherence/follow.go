package coherence

// enter tells a NIC that follows the program that it writes to a block, which the bus has
// shown at t: the NIC asks for the block that the program was in before. Two transactions a
// block if it is written in order; if the program comes back, the block becomes its own
// again, for two more.
func (m *machine) enter(t Time, b int) {
	if !m.follows[m.blocks[b].region] || m.writing == b {
		return
	}
	m.finish(t)
	m.writing = b
}

// finish lets the NIC read the block that the program was in.
func (m *machine) finish(t Time) {
	if m.writing < 0 {
		return
	}
	b := m.writing
	m.writing = -1
	m.bus.post(t, func() phases {
		if m.blocks[b].nic != invalid {
			return phases{}
		}
		p := m.fetch(b, m.full())
		m.blocks[b].nic = shared
		return p
	})
}

// fetch is the NIC's read of a block: the host's caches supply one that is modified and
// keep it shared, as they cannot tell whether the reader has a copy; memory takes it, too.
func (m *machine) fetch(b, data int) phases {
	blk := &m.blocks[b]
	latency := m.Memory
	if blk.host == modified {
		latency, blk.memory = m.cycles(m.L2.Latency), blk.cached
	}
	if blk.host != invalid {
		blk.host = shared
	}
	blk.local = blk.memory
	return phases{Read, NIC, b, m.NIC.Block, latency, data}
}

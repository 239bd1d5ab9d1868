package coherence

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// state of a block in a cache or in the NIC. The NIC has no exclusive blocks.
type state byte

const (
	invalid state = iota
	shared
	exclusive
	modified
)

// block is one of memory: its states, and how new each copy is. Versions count the
// program's stores.
type block struct {
	region     Region
	index      int // in its region
	host, nic  state
	written    uint64 // version that the program, or on receipt the network, has written
	cached     uint64 // in the host's caches
	memory     uint64 // in host memory
	local      uint64 // in the NIC
	landed     Time   // when the NIC had handed it over to the receiving host
	handedOver bool
}

// machine is one side: processor, caches, memory and NIC on a bus.
type machine struct {
	*profile.MemorySystem
	o      *Options
	side   Side
	bus    bus
	l1, l2 *cache
	blocks []block
	starts map[Region]int
	sizes  map[Region]int
	// follows: the NIC watches the bus and reads what the program writes in these regions.
	follows map[Region]bool
	writing int // the followed block that the program was last seen in, or -1
	log     []Transaction
	err     error // the first violation of the protocol
}

func newMachine(o *Options, side Side) *machine {
	m := &machine{MemorySystem: o.System, o: o, side: side, l1: newCache(o.System.L1), l2: newCache(o.System.L2),
		starts: map[Region]int{}, sizes: map[Region]int{}, follows: map[Region]bool{}, writing: -1}
	m.bus = bus{SystemBus: o.System.Bus, carried: m.carried}
	return m
}

// place adds a region. The host's caches hold it in a state, as far as there is room, and
// a NIC that follows it has a copy.
func (m *machine) place(r Region, bytes int, host state, follow bool) {
	perLine := m.L2.Line / m.NIC.Block
	for len(m.blocks)%perLine != 0 {
		m.blocks = append(m.blocks, block{})
	}
	m.starts[r], m.sizes[r], m.follows[r] = len(m.blocks), ceil(bytes, m.NIC.Block), follow
	for i := range m.sizes[r] {
		b := block{region: r, index: i}
		if follow {
			b.nic = shared
		}
		m.blocks = append(m.blocks, b)
		if host != invalid {
			m.blocks[len(m.blocks)-1].host = host
			_, all := m.hold(len(m.blocks) - 1)
			for _, gone := range all {
				m.blocks[gone].host = invalid
			}
		}
	}
}

// carried notes a transaction and looks at the block's copies.
func (m *machine) carried(p phases, begin, end Time) {
	b := &m.blocks[p.block]
	m.log = append(m.log, Transaction{m.side, p.agent, p.kind, b.region, b.index, p.bytes, begin, end})
	m.check(b)
}

// check holds what must be true of every block at all times.
func (m *machine) check(b *block) {
	switch {
	case m.err != nil:
	case b.host >= exclusive && b.nic != invalid, b.nic == modified && b.host != invalid:
		m.err = fmt.Errorf("%s, %s block %d: %w", m.side, b.region, b.index, ErrOwners)
	case b.host != invalid && b.cached != b.written, b.nic != invalid && b.local != b.written:
		m.err = fmt.Errorf("%s, %s block %d: %w", m.side, b.region, b.index, ErrStale)
	}
}

// sent holds that what the NIC sends of a region is the program's latest.
func (m *machine) sent(r Region) {
	for i := range m.sizes[r] {
		if b := &m.blocks[m.starts[r]+i]; b.local != b.written && m.err == nil {
			m.err = fmt.Errorf("%s sends %s block %d: %w", m.side, r, i, ErrStale)
		}
	}
}

func (m *machine) cycles(n int) Time { return Time(n) * m.Processor.Cycle }

// full is the data cycles of a block at the bus's own rate.
func (m *machine) full() int { return m.Bus.Data(m.NIC.Block, m.Bus.Peak()) }

// paced is the data cycles of a block at the rate of the DMA engine.
func (m *machine) paced() int { return m.Bus.Data(m.NIC.Block, m.o.DMARate) }

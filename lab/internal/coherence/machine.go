package coherence

import (
	"fmt"
	"slices"

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

// hold puts a block into both caches, and says whether L1 had it and which blocks had to
// leave them for it.
func (m *machine) hold(b int) (hit bool, gone []int) {
	hit, _ = m.l1.use(b)
	perLine := m.L2.Line / m.NIC.Block
	_, victim := m.l2.use(b / perLine)
	if victim >= 0 {
		for g := victim * perLine; g < min((victim+1)*perLine, len(m.blocks)); g++ {
			m.l1.drop(g)
			gone = append(gone, g)
		}
	}
	return hit, gone
}

// touch makes room for a block, and returns when the processor has it: at once from L1,
// later from L2. What leaves the caches modified is written back.
func (m *machine) touch(t Time, b int) Time {
	hit, all := m.hold(b)
	for _, gone := range all {
		if m.blocks[gone].host == modified {
			t = m.bus.run(t, func() phases { return m.castOut(gone, invalid) })
		}
		m.blocks[gone].host = invalid
	}
	if hit {
		return t + m.cycles(m.L1.Latency)
	}
	return t + m.cycles(m.L2.Latency)
}

func (m *machine) castOut(b int, after state) phases {
	blk := &m.blocks[b]
	if blk.host != modified {
		return phases{}
	}
	blk.host, blk.memory = after, blk.cached
	return phases{Castout, Host, b, m.NIC.Block, 0, m.full()}
}

// write stores a word into a block and returns when that is done: at once if the block
// is the host's own, otherwise when other copies are gone.
func (m *machine) write(t Time, b int) Time {
	// Room is made first: nothing may come between owning a block and writing to it.
	t = m.touch(t, b)
	m.bus.settle(t)
	blk := &m.blocks[b]
	if blk.host < exclusive {
		t = m.bus.run(t, func() phases { return m.own(b) })
		// A NIC that follows the program sees this on the bus, and asks for the block that the program was in
		// before. Two transactions a block if it is written in order; if the program comes back, the block becomes
		// its own again, for two more.
		if m.follows[blk.region] && m.writing != b {
			m.finish(t)
			m.writing = b
		}
	}
	blk.host = modified
	blk.written++
	blk.cached = blk.written
	m.check(blk)
	return t
}

// own makes the host the only holder of a block.
func (m *machine) own(b int) phases {
	blk := &m.blocks[b]
	if blk.host == shared {
		blk.host, blk.nic = exclusive, invalid
		return phases{Invalidate, Host, b, 0, 0, 0}
	}
	latency := m.supply(blk)
	blk.host, blk.nic = exclusive, invalid
	return phases{ReadOwn, Host, b, m.NIC.Block, latency, m.full()}
}

// supply brings a block that the host does not have to its caches, and returns the
// latency of where it comes from. The NIC's copy is as new as memory's unless it is modified.
func (m *machine) supply(blk *block) Time {
	if blk.nic == modified {
		blk.nic, blk.memory = shared, blk.local
		blk.cached = blk.local
		return m.NIC.Latency
	}
	blk.cached = blk.memory
	return m.Memory
}

func (m *machine) read(t Time, b int) Time {
	t = m.touch(t, b)
	m.bus.settle(t)
	blk := &m.blocks[b]
	if blk.host == invalid {
		t = m.bus.run(t, func() phases {
			latency := m.supply(blk)
			blk.host = shared
			return phases{Read, Host, b, m.NIC.Block, latency, m.full()}
		})
	}
	return t
}

// uncached is a load or store of up to a word of NIC memory.
func (m *machine) uncached(t Time, k Kind, b, bytes int) Time {
	latency := Time(0)
	if k == Load {
		latency = m.NIC.Latency
	}
	return m.bus.run(t, func() phases { return phases{k, Host, b, bytes, latency, m.Bus.Data(bytes, m.Bus.Peak())} })
}

// program writes words of a region one by one, and makes each before.
func (m *machine) program(t Time, r Region, words []int) Time {
	perBlock := m.NIC.Block / m.Processor.Word
	for _, w := range words {
		t = m.write(t+m.cycles(m.Processor.Work), m.starts[r]+w/perBlock)
	}
	return t
}

// flush takes a region out of the caches, by instructions of the program.
func (m *machine) flush(t Time, r Region) Time {
	for i := range m.sizes[r] {
		b := m.starts[r] + i
		t += m.cycles(m.L2.Latency)
		if m.blocks[b].host == modified {
			t = m.bus.run(t, func() phases { return m.castOut(b, invalid) })
		}
		m.blocks[b].host = invalid
		m.l1.drop(b)
	}
	return t
}

// cache knows which lines one level holds: sets of ways, least recently used out. What
// state a block is in stands with the block.
type cache struct {
	profile.Cache
	sets map[int][]int // lines, the least recently used first
}

func newCache(c profile.Cache) *cache { return &cache{c, map[int][]int{}} }

// use looks a line up and makes it the most recently used. If it was not there, it is
// from then on, and victim is the line that had to go, or -1.
func (c *cache) use(line int) (hit bool, victim int) {
	index := line % c.Sets()
	set := c.sets[index]
	victim = -1
	if i := slices.Index(set, line); i >= 0 {
		set = slices.Delete(set, i, i+1)
		hit = true
	} else if len(set) == c.Ways {
		victim = set[0]
		set = slices.Delete(set, 0, 1)
	}
	c.sets[index] = append(set, line)
	return hit, victim
}

func (c *cache) drop(line int) {
	index := line % c.Sets()
	c.sets[index] = slices.DeleteFunc(c.sets[index], func(l int) bool { return l == line })
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

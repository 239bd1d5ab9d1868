package profile

import (
	"embed"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

//go:embed memory/*.toml
var memorySystems embed.FS

// Systems are the memory systems.
var Systems = Library[*MemorySystem]{memorySystems, "memory", (*resolver).memory}

func (r *resolver) memory() *MemorySystem {
	m := &MemorySystem{Name: r.name, Summary: r.text("summary")}
	if r.has("bridge") {
		r.fail("bridge", "", "a NIC on the memory bus: platforms with a bridge are those of trapeze-lab model bridge", ErrValue)
	}
	name := r.text("profile")
	switch {
	case (name != "") == r.has("bus"):
		r.fail("bus", "", "either [bus], or the profile of a platform with PCIe", ErrValue)
	case name != "":
		r.overPCIe(m, name)
	default:
		if r.has("nic.block") {
			r.fail("nic.block", "", "with PCIe only: on a bus it is the line of l1", ErrValue)
		}
		r.onBus(m)
		r.fill(&m.NIC, "bus", "nic")
		m.NIC.Start, m.NIC.Frame = m.NIC.Start*m.NIC.Cycle, m.NIC.Frame*m.NIC.Cycle
		r.holds(m.NIC.Queue >= m.NIC.Block, "nic.queue", m.NIC.Queue, "a line of l1 at least")
	}
	r.processor(m)
	return m
}

// holds refuses a size that does not go with others.
func (r *resolver) holds(ok bool, key string, bytes int, allowed string) {
	if !ok {
		r.fail(key, strconv.Itoa(bytes)+" B", allowed, ErrValue)
	}
}

// processor fills in the processor. Blocks must have whole words.
func (r *resolver) processor(m *MemorySystem) {
	r.fill(&m.Processor, "", "processor")
	r.holds(m.NIC.Block%m.Processor.Word == 0, "processor.word", m.Processor.Word, fmt.Sprintf("so that a block of %d B has whole words", m.NIC.Block))
}

// overPCIe takes the bus and the firmware from a built-in profile.
func (r *resolver) overPCIe(m *MemorySystem, name string) {
	p, err := Hosts.Load(strings.TrimSuffix(name, ".toml"))
	if err == nil && !p.Sender.FullDuplex {
		err = ErrValue
	}
	if err != nil {
		r.fail("profile", name, "a built-in profile of a platform with PCIe", fmt.Errorf("%w: %w", ErrBase, err))
	}
	m.PCIe = p
	r.fill(&m.NIC, "pcie", "nic")
}

// onBus fills in a memory bus and the caches on it.
func (r *resolver) onBus(m *MemorySystem) {
	r.cache("l1", &m.L1)
	r.cache("l2", &m.L2)
	r.holds(m.L2.Line%m.L1.Line == 0, "l2.line", m.L2.Line, "a multiple of l1.line")
	r.fill(m, "", "memory")
	m.Bus = &SystemBus{}
	r.fill(m.Bus, "", "bus")
	m.NIC.Block = m.L1.Line
}

func (r *resolver) cache(table string, c *Cache) {
	r.fill(c, "", table)
	sets := c.Sets()
	r.holds(bits.OnesCount(uint(sets)) == 1 && sets*c.Line*c.Ways == c.Size && bits.OnesCount(uint(c.Line)) == 1, table+".size", c.Size,
		fmt.Sprintf("lines and sets by powers of two, here %d ways of lines of %d B", c.Ways, c.Line))
}

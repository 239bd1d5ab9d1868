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

// maxCycles bounds a cost that is given in cycles.
const maxCycles = 100_000

// memoryKeys are those of a memory system, with a bridge or without one.
var memoryKeys = strings.Fields(`profile processor.clock processor.word processor.work
	l1.size l1.line l1.ways l1.latency l2.size l2.line l2.ways l2.latency memory.latency bus.clock bus.width bus.arbitration bus.address
	nic.clock nic.latency nic.memory nic.dma nic.start nic.frame nic.mtu nic.queue nic.block
	bridge.clock bridge.width bridge.idle bridge.address bridge.wait bridge.first bridge.queue bridge.merge bridge.posted bridge.load
	bridge.prefetch bridge.burst bridge.start`)

// Systems are the memory systems.
var Systems = Library[*MemorySystem]{memorySystems, "memory", memoryKeys, (*resolver).memory}

func (r *resolver) memory() *MemorySystem {
	m := &MemorySystem{Name: r.name, Summary: r.text("summary")}
	if r.has("bridge") {
		r.fail("bridge", "", "a NIC on the memory bus: platforms with a bridge are those of trapeze-lab model bridge", ErrValue)
	}
	m.Processor = r.processor()
	m.NIC = Interface{Memory: r.bytes("nic.memory", 1<<10, 1<<30), MTU: r.bytes("nic.mtu", 64, 1<<16)}
	switch {
	case r.has("profile") == r.has("bus"):
		r.fail("bus", "", "either [bus], or the profile of a platform with PCIe", ErrMissing)
	case r.has("profile"):
		r.overPCIe(m)
	default:
		r.onBus(m)
	}
	r.whole(m)
	return m
}

// whole refuses a memory system whose blocks do not have whole words.
func (r *resolver) whole(m *MemorySystem) {
	if r.err == nil && m.NIC.Block%m.Processor.Word != 0 {
		r.fail("processor.word", fmt.Sprint(m.Processor.Word, " B"), fmt.Sprintf("so that a block of %d B has whole words", m.NIC.Block), ErrValue)
	}
}

// overPCIe takes the bus and the firmware from a built-in profile.
func (r *resolver) overPCIe(m *MemorySystem) {
	name := r.text("profile")
	p, err := Hosts.Load(strings.TrimSuffix(name, ".toml"))
	if err == nil && !p.Sender.FullDuplex {
		err = ErrValue
	}
	if err != nil {
		r.fail("profile", name, "a built-in profile of a platform with PCIe", fmt.Errorf("%w: %w", ErrBase, err))
		return
	}
	m.PCIe = p
	m.NIC.Block = r.bytes("nic.block", 8, 4096)
}

func (r *resolver) processor() Processor {
	return Processor{Cycle: r.cycle("processor.clock"), Word: r.bytes("processor.word", 1, 8), Work: r.count("processor.work", 0, maxCycles)}
}

// caches takes what a processor and its memory bus have, with or without a NIC on it.
func (r *resolver) caches(m *MemorySystem) {
	m.L1, m.L2 = r.cache("l1"), r.cache("l2")
	m.Memory = r.time("memory.latency")
	m.Bus = &SystemBus{Cycle: r.cycle("bus.clock"), Width: r.bytes("bus.width", 1, 4096),
		Arbitration: r.count("bus.arbitration", 0, maxCycles), Address: r.count("bus.address", 1, maxCycles)}
	m.NIC.Block = m.L1.Line
	if m.L2.Line%max(m.L1.Line, 1) != 0 {
		r.fail("l2.line", strconv.Itoa(m.L2.Line)+" B", "a multiple of l1.line", ErrValue)
	}
}

// onBus takes the rest of a system in which all see all transactions.
func (r *resolver) onBus(m *MemorySystem) {
	r.caches(m)
	m.NIC.Cycle = r.cycle("nic.clock")
	m.NIC.Latency = r.time("nic.latency")
	m.NIC.DMA = r.quantity(bandwidth, "nic.dma")
	m.NIC.Start = Time(r.count("nic.start", 0, maxCycles)) * m.NIC.Cycle
	m.NIC.Frame = Time(r.count("nic.frame", 0, maxCycles)) * m.NIC.Cycle
	m.NIC.Queue = r.bytes("nic.queue", m.L1.Line, 1<<20)
	if r.has("nic.block") {
		r.fail("nic.block", "", "with PCIe only: on a bus it is the line of l1", ErrValue)
	}
}

func (r *resolver) cache(name string) Cache {
	c := Cache{Size: r.bytes(name+".size", 64, 1<<28), Line: r.bytes(name+".line", 8, 4096),
		Ways: r.count(name+".ways", 1, 64), Latency: r.count(name+".latency", 0, maxCycles)}
	if sets := c.Sets(); bits.OnesCount(uint(sets)) != 1 || sets*c.Line*c.Ways != c.Size || bits.OnesCount(uint(c.Line)) != 1 {
		r.fail(name+".size", fmt.Sprint(c.Size, " B in ", c.Ways, " ways of ", c.Line, " B"), "lines and sets by powers of two", ErrValue)
	}
	return c
}

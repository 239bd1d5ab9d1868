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

type rawCache struct {
	Size, Line    *string
	Ways, Latency *int64
}

type rawMemory struct {
	Summary, Base, Profile *string
	Processor              struct {
		Clock, Word *string
		Work        *int64
	}
	L1, L2 rawCache
	Memory struct{ Latency *string }
	Bus    *struct {
		Clock, Width         *string
		Arbitration, Address *int64
	}
	NIC struct {
		Clock, Latency, Memory, DMA, MTU, Queue, Block *string
		Start, Frame                                   *int64
	}
	Bridge *rawBridge
}

// memoryKeys hold what a memory system's file may say.
var memoryKeys = keys{
	names: "summary, base, profile, processor.{clock,word,work}, l1 and l2.{size,line,ways,latency}, memory.latency, " +
		"bus.{clock,width,arbitration,address}, nic.{clock,latency,memory,dma,start,frame,mtu,queue,block}, " +
		"bridge.{clock,width,idle,address,wait,first,queue,merge,posted,load,prefetch,burst,start}",
	example: `each key once, with a quoted quantity and its unit, such as "132 MB/s"; counts and cycles are whole numbers without quotes`,
}

// Systems are the memory systems.
var Systems = Library[*MemorySystem]{memorySystems, "memory", parseMemory}

// parseMemory reads a memory system on top of the built-in one that it is based on, if any.
func parseMemory(l Library[*MemorySystem], title, file string, text []byte) (*MemorySystem, error) {
	merged, err := onBase(l.Source, file, text, memoryKeys, func(w *rawMemory) *string { return w.Base })
	if err != nil {
		return nil, err
	}
	return merged.resolve(title, file)
}

// resolve makes a memory system of the texts.
func (w *rawMemory) resolve(title, file string) (*MemorySystem, error) {
	r := &resolver{file: file}
	m := &MemorySystem{Name: title}
	if w.Summary != nil {
		m.Summary = *w.Summary
	}
	if w.Bridge != nil {
		r.fail("bridge", "", "a NIC on the memory bus: platforms with a bridge are those of trapeze-lab model bridge", ErrValue)
	}
	m.Processor = w.processor(r)
	n := &w.NIC
	m.NIC = Interface{Memory: r.bytes("nic.memory", n.Memory, 1<<10, 1<<30), MTU: r.bytes("nic.mtu", n.MTU, 64, 1<<16)}
	switch {
	case (w.Profile == nil) == (w.Bus == nil):
		r.fail("bus", "", "either [bus], or the profile of a platform with PCIe", ErrMissing)
	case w.Profile != nil:
		w.overPCIe(r, m)
	default:
		w.onBus(r, m)
	}
	return r.whole(m)
}

// whole returns a memory system without an error, whose blocks have whole words.
func (r *resolver) whole(m *MemorySystem) (*MemorySystem, error) {
	if r.err == nil && m.NIC.Block%m.Processor.Word != 0 {
		r.fail("processor.word", fmt.Sprint(m.Processor.Word, " B"), fmt.Sprintf("so that a block of %d B has whole words", m.NIC.Block), ErrValue)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// overPCIe takes the bus and the firmware from a built-in profile.
func (w *rawMemory) overPCIe(r *resolver, m *MemorySystem) {
	p, err := Hosts.Load(strings.TrimSuffix(*w.Profile, ".toml"))
	if err == nil && !p.Sender.FullDuplex {
		err = ErrValue
	}
	if err != nil {
		r.fail("profile", *w.Profile, "a built-in profile of a platform with PCIe", fmt.Errorf("%w: %w", ErrBase, err))
		return
	}
	m.PCIe = p
	m.NIC.Block = r.bytes("nic.block", w.NIC.Block, 8, 4096)
}

func (w *rawMemory) processor(r *resolver) Processor {
	p := &w.Processor
	return Processor{Cycle: r.cycle("processor.clock", p.Clock), Word: r.bytes("processor.word", p.Word, 1, 8), Work: r.count("processor.work", p.Work, 0, maxCycles)}
}

// caches takes what a processor and its memory bus have, with or without a NIC on it.
func (w *rawMemory) caches(r *resolver, m *MemorySystem) {
	b := w.Bus
	m.L1, m.L2 = r.cache("l1", &w.L1), r.cache("l2", &w.L2)
	m.Memory = Micros(r.quantity(span, entry{"memory.latency", w.Memory.Latency}))
	m.Bus = &SystemBus{Cycle: r.cycle("bus.clock", b.Clock), Width: r.bytes("bus.width", b.Width, 1, 4096),
		Arbitration: r.count("bus.arbitration", b.Arbitration, 0, maxCycles), Address: r.count("bus.address", b.Address, 1, maxCycles)}
	m.NIC.Block = m.L1.Line
	if m.L2.Line%max(m.L1.Line, 1) != 0 {
		r.fail("l2.line", strconv.Itoa(m.L2.Line)+" B", "a multiple of l1.line", ErrValue)
	}
}

// onBus takes the rest of a system in which all see all transactions.
func (w *rawMemory) onBus(r *resolver, m *MemorySystem) {
	n := &w.NIC
	w.caches(r, m)
	m.NIC.Cycle = r.cycle("nic.clock", n.Clock)
	m.NIC.Latency = Micros(r.quantity(span, entry{"nic.latency", n.Latency}))
	m.NIC.DMA = r.quantity(bandwidth, entry{"nic.dma", n.DMA})
	m.NIC.Start = Time(r.count("nic.start", n.Start, 0, maxCycles)) * m.NIC.Cycle
	m.NIC.Frame = Time(r.count("nic.frame", n.Frame, 0, maxCycles)) * m.NIC.Cycle
	m.NIC.Queue = r.bytes("nic.queue", n.Queue, m.L1.Line, 1<<20)
	if n.Block != nil {
		r.fail("nic.block", *n.Block, "with PCIe only: on a bus it is the line of l1", ErrValue)
	}
}

// cycle reads a clock rate and returns its period.
func (r *resolver) cycle(key string, text *string) Time {
	return Time(1e6 / r.quantity(clock, entry{key, text}))
}

// bytes reads a size from low to high.
func (r *resolver) bytes(key string, text *string, low, high int) int {
	k := size
	k.low, k.high = float64(low), float64(high)
	k.allowed = fmt.Sprintf(`%d to %d B, whole, written as "128 B", "1 KiB" or "4 MiB"`, low, high)
	return int(r.quantity(k, entry{key, text}))
}

// count reads a whole number from low to high.
func (r *resolver) count(key string, n *int64, low, high int) int {
	return int(r.ranged(key, n, int64(low), int64(high), fmt.Sprintf("%d to %d", low, high)))
}

// ranged reads a required whole number; allowed tells its range in words.
func (r *resolver) ranged(key string, n *int64, low, high int64, allowed string) int64 {
	switch {
	case n == nil:
		r.fail(key, "", allowed, ErrMissing)
	case *n < low || *n > high:
		r.fail(key, strconv.FormatInt(*n, 10), allowed, ErrValue)
	default:
		return *n
	}
	return low
}

func (r *resolver) cache(name string, w *rawCache) Cache {
	c := Cache{Size: r.bytes(name+".size", w.Size, 64, 1<<28), Line: r.bytes(name+".line", w.Line, 8, 4096),
		Ways: r.count(name+".ways", w.Ways, 1, 64), Latency: r.count(name+".latency", w.Latency, 0, maxCycles)}
	if sets := c.Sets(); bits.OnesCount(uint(sets)) != 1 || sets*c.Line*c.Ways != c.Size || bits.OnesCount(uint(c.Line)) != 1 {
		r.fail(name+".size", fmt.Sprint(c.Size, " B in ", c.Ways, " ways of ", c.Line, " B"), "lines and sets by powers of two", ErrValue)
	}
	return c
}

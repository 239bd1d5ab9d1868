package profile

import (
	"embed"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// MemorySystem is a platform as one message meets it on its way from a program's memory
// into the NIC: processor, caches, memory, the bus between them, and the NIC. Either Bus
// or PCIe is there.
type MemorySystem struct {
	Name      string
	Summary   string
	Processor Processor
	L1, L2    Cache // with Bus only
	Memory    Time  `key:"latency" is:"time"` // of host memory; with Bus only
	Bus       *SystemBus
	PCIe      *Profile // the bus, the link and the NIC's firmware of a cost profile
	Bridge    *Bridge  // of Bridges alone: the NIC is behind it, and no more than its Block is known
	NIC       Interface
}

// Processor is a host's processor, in order and one store at a time.
type Processor struct {
	Cycle Time `key:"clock" is:"clock"`
	Word  int  `key:"word" is:"bytes 1 8"`      // of the words that messages are made of, and of the widest uncached access
	Work  int  `key:"work" is:"count 0 100000"` // cycles in which the program makes the next word, beside the store
}

// Cache is one level of a host's caches.
type Cache struct {
	Size    int `key:"size" is:"bytes 64 268435456"`
	Line    int `key:"line" is:"bytes 8 4096"`
	Ways    int `key:"ways" is:"count 1 64"`
	Latency int `key:"latency" is:"count 0 100000"` // processor cycles
}

// Sets returns the number of sets.
func (c Cache) Sets() int { return c.Size / (c.Line * c.Ways) }

// SystemBus is a bus on which all see all transactions, one at a time.
type SystemBus struct {
	Cycle       Time `key:"clock" is:"clock"`
	Width       int  `key:"width" is:"bytes 1 4096"`         // of a data cycle
	Arbitration int  `key:"arbitration" is:"count 0 100000"` // cycles, next to the transaction before if there is one
	Address     int  `key:"address" is:"count 1 100000"`     // cycles
}

// Cycles returns the time of n bus cycles.
func (b *SystemBus) Cycles(n int) Time { return Time(n) * b.Cycle }

// Data returns the data cycles of n bytes that come at rate MB/s, whole ones; the bus's
// own rate is the highest.
func (b *SystemBus) Data(n int, rate float64) int {
	whole := (n + b.Width - 1) / b.Width
	// The rate is a decimal number; a thousandth of a cycle is its error and no cycle.
	return max(whole, int(math.Ceil(float64(n)*1e6/rate/float64(b.Cycle)-1e-3)))
}

// Peak returns what the bus carries at most, in MB/s.
func (b *SystemBus) Peak() float64 { return float64(b.Width) * 1e6 / float64(b.Cycle) }

// Interface is the NIC at the end of the bus. With PCIe, all but Memory, MTU and Block
// come from the profile.
type Interface struct {
	Cycle   Time    `key:"clock" is:"clock" with:"bus"`
	Latency Time    `key:"latency" is:"time" with:"bus"`          // of its memory
	Memory  int     `key:"memory" is:"bytes 1024 1073741824"`     // bytes
	DMA     float64 `key:"dma" is:"rate" with:"bus"`              // MB/s, the highest rate of its DMA engine
	Start   Time    `key:"start" is:"count 0 100000" with:"bus"`  // of a DMA transfer's initiation and interrupt; in cycles in a file
	Frame   Time    `key:"frame" is:"count 0 100000" with:"bus"`  // of the message layer for a frame, at each end; in cycles in a file
	MTU     int     `key:"mtu" is:"bytes 64 65536"`               // bytes of a message in a frame
	Queue   int     `key:"queue" is:"bytes 1 1048576" with:"bus"` // bytes of a cacheable queue; with Bus only
	Block   int     `key:"block" is:"bytes 8 4096" with:"pcie"`   // bytes that go at a time: a cache line
}

// Frames returns the number of frames of a message of n bytes.
func (i *Interface) Frames(n int) int { return max(1, (n+i.MTU-1)/i.MTU) }

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

//go:embed bridged/*.toml
var bridged embed.FS

// First says who has a bus when both want it.
type First string

// Arbitrations of a bridge.
const (
	ProcessorFirst First = "processor" // until as many of its transactions as Queue have gone
	DMAFirst       First = "dma"       // whenever it wants
	InTurn         First = "turns"     // in the order of the requests
)

// Bridge joins a host's memory bus with the PCI bus that the NIC is on.
type Bridge struct {
	PCI      SystemBus // Arbitration: idle cycles between transactions; Address: with device selection.
	Wait     int       `key:"wait" is:"count 0 100000"`       // cycles of a read on PCI before its first data.
	First    First     `key:"first" is:"processor dma turns"` // on the memory bus.
	Queue    int       `key:"queue" is:"count 1 64"`          // transactions of the processor that the bridge has taken and not done.
	Merge    int       `key:"merge" is:"bytes 1 4096"`        // of a block whose uncached words the processor or the bridge joins in one burst.
	Posted   int       `key:"posted" is:"count 1 64"`         // bursts of stores that wait in the bridge while the processor goes on.
	Load     Time      `key:"load" is:"time"`                 // of an uncached load beside its time on PCI: to the bridge and back to the program.
	Prefetch int       `key:"prefetch" is:"count 1 64"`       // blocks of memory between the memory bus and PCI.
	Burst    int       `key:"burst" is:"bytes 8 65536"`       // that the NIC moves on PCI before the processor has its turn.
	Start    Time      `key:"start" is:"time"`                // of each DMA transfer, while the buses are free.
}

// Bridges are the platforms with a bridge.
var Bridges = Library[*MemorySystem]{bridged, "bridged", (*resolver).bridged}

func (r *resolver) bridged() *MemorySystem {
	m := &MemorySystem{Name: r.name, Summary: r.text("summary"), Bridge: &Bridge{}}
	if r.has("profile") {
		r.fail("profile", r.text("profile"), "none: all of a platform with a bridge is in its file", ErrValue)
	}
	if !r.has("bridge") {
		r.fail("bridge", "", "the bridge and the PCI bus behind it", ErrMissing)
	}
	r.onBus(m)
	r.processor(m)
	b := m.Bridge
	r.fill(&b.PCI, "", "bridge")
	r.fill(b, "", "bridge")
	r.holds(b.Merge <= m.NIC.Block, "bridge.merge", b.Merge, "a line of l1 at most")
	r.holds(b.Burst >= m.NIC.Block, "bridge.burst", b.Burst, "a line of l1 at least")
	return m
}

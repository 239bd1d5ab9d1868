package profile

import "math"

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

package coherence

import (
	"context"
	"fmt"
	"strconv"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Program names the work of the processor beside the NIC.
type Program string

// Programs.
const (
	NoProgram Program = "none"
	BlockCopy Program = "copy"      // from memory to memory, by the caches
	PIOWrite  Program = "pio-write" // from cached memory to the NIC
	PIORead   Program = "pio-read"  // from the NIC to cached memory
)

// Programs are all of them.
var Programs = []Program{NoProgram, BlockCopy, PIOWrite, PIORead}

// Direction names the work of the NIC beside the processor.
type Direction string

// Directions of DMA.
const (
	NoDMA    Direction = "none"
	SendDMA  Direction = "send"    // the NIC reads host memory
	Received Direction = "receive" // the NIC writes host memory
)

// Directions are all of them.
var Directions = []Direction{NoDMA, SendDMA, Received}

// Contest says who meets at a bridge.
type Contest struct {
	System  *profile.MemorySystem // with a Bridge
	Program Program
	DMA     Direction
	Bytes   int // of each DMA transfer, 1 to MaxBytes
}

// Contestant has the rates that one of the two reaches.
type Contestant struct {
	Alone    float64 `json:"alone_mb_s" help:"with nothing beside it"`
	Together float64 `json:"together_mb_s" help:"0 if it starves"`
	Less     float64 `json:"less_percent"`
}

// Outcome of a contest. The processor's rate counts each byte once, also of a copy.
type Outcome struct {
	Processor     Contestant `json:"processor" text:"flat"`
	DMA           Contestant `json:"dma" text:"flat"`
	TransferAlone Time       `json:"transfer_alone_us" help:"one DMA transfer with what begins it"`
	Transfer      Time       `json:"transfer_us" help:"the same beside the program, mean; 0 if none ended"`
	Burst         int        `json:"pio_burst_bytes" help:"the longest that the program's words were joined to"`
	Starved       bool       `json:"processor_starved"`
}

// contestBlocks are those that the program moves, the second-level cache's at least. The second half is
// measured: a copy has filled the cache by then, half with each side. transfers are those of DMA
// alone.
const (
	contestBlocks = 1 << 12
	transfers     = 32
)

// AtBridge computes what the processor and the NIC do to each other.
func AtBridge(ctx context.Context, o Contest) (*Outcome, error) {
	switch {
	case o.System == nil || o.System.Bridge == nil:
		return nil, refuse("platform", "", "one with a bridge")
	case o.DMA == NoDMA && o.Program == NoProgram:
		return nil, refuse("dma", string(o.DMA), join(Directions)+", and not none of either")
	case o.Bytes < 1 || o.Bytes > MaxBytes:
		return nil, refuse("bytes", strconv.Itoa(o.Bytes), fmt.Sprintf("1 to %d", MaxBytes))
	}
	r := &Outcome{}
	alone := func(program Program, dma Direction) (*contest, error) {
		one := o
		one.Program, one.DMA = program, dma
		c := newContest(&one)
		return c, c.run(ctx)
	}
	if o.Program != NoProgram {
		c, err := alone(o.Program, NoDMA)
		if err != nil {
			return nil, err
		}
		r.Processor.Alone, r.Burst = c.rate, c.burst
	}
	if o.DMA != NoDMA {
		c, err := alone(NoProgram, o.DMA)
		if err != nil {
			return nil, err
		}
		r.DMA.Alone, r.TransferAlone = c.dmaRate, c.transfer
	}
	both, err := alone(o.Program, o.DMA)
	if err != nil {
		return nil, err
	}
	r.Processor.Together, r.DMA.Together, r.Transfer, r.Starved = both.rate, both.dmaRate, both.transfer, both.starves()
	for _, c := range []*Contestant{&r.Processor, &r.DMA} {
		if c.Alone > 0 {
			c.Less = 100 * (1 - c.Together/c.Alone)
		}
	}
	return r, nil
}

// contest is a run: a processor, its memory bus, and PCI behind the bridge.
type contest struct {
	*machine
	o      *Contest
	pci    bus
	posted []Time // when the program's last stores end
	burst  int    // bytes of the program's longest on PCI
	lines  lines

	rate, dmaRate float64 // MB/s
	transfer      Time
}

func newContest(o *Contest) *contest {
	c := &contest{machine: newMachine(&Options{System: o.System}, Sender), o: o}
	b := o.System.Bridge
	c.machine.bus.arbiter = arbiter{first: b.First, queue: b.Queue}
	c.machine.bus.carried = func(p phases, _, _ Time) { c.check(&c.blocks[p.block]) }
	c.pci = bus{SystemBus: &b.PCI, carried: func(phases, Time, Time) {}, arbiter: arbiter{first: profile.InTurn}}
	c.posted = make([]Time, b.Posted)
	return c
}

func (c *contest) starves() bool { return c.machine.bus.starved || c.pci.starved }

// run has the program and the NIC work, and takes their rates.
func (c *contest) run(ctx context.Context) error {
	blocks := max(contestBlocks, c.L2.Size/c.NIC.Block)
	resident := blocks
	if c.o.Program != BlockCopy {
		resident = c.L1.Size / c.NIC.Block / 2
	}
	c.place(Queue, resident*c.NIC.Block, invalid, false)
	c.place(Descriptor, resident*c.NIC.Block, invalid, false)
	c.place(Payload, c.o.Bytes, invalid, false)
	if err := c.lines.begin(c); err != nil {
		return err
	}
	var t, half Time
	for i := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.o.Program == NoProgram || c.starves() {
			break
		}
		if i == blocks/2 {
			half = t
		}
		t = c.step(t, i%resident)
	}
	for c.o.Program == NoProgram && len(c.lines.took) < transfers {
		if c.lines.busy().next(); c.err != nil {
			break
		}
	}
	if c.o.Program != NoProgram && !c.starves() {
		c.rate = megabytes((blocks-blocks/2)*c.NIC.Block, t-half)
	}
	c.lines.end(half, t)
	return c.err
}

func megabytes(bytes int, span Time) float64 { return float64(bytes) / span.Microseconds() }

// step moves one block by the program: it loads from memory or PCI, and stores to either.
func (c *contest) step(t Time, i int) Time {
	words := c.NIC.Block / c.Processor.Word
	if c.o.Program == PIORead {
		t = c.loads(t, i)
	} else {
		for range words {
			t = c.read(t, c.starts[Queue]+i) + c.cycles(c.Processor.Work)
		}
	}
	if c.o.Program == PIOWrite {
		return c.stores(t, i)
	}
	for range words {
		t = c.write(t+c.cycles(c.Processor.Work), c.starts[Descriptor]+i)
	}
	return t
}

func (c *contest) note(err error) {
	if c.err == nil {
		c.err = err
	}
}

// bursts joins uncached words of a block, in the order in which the program names them: a word
// of the same aligned piece as the one before goes with it. It returns the bytes of each burst.
func (c *contest) bursts(words []int) []int {
	var sizes []int
	piece := -1
	for _, w := range words {
		p := w * c.Processor.Word / c.o.System.Bridge.Merge
		if p != piece {
			sizes = append(sizes, 0)
			piece = p
		}
		sizes[len(sizes)-1] += c.Processor.Word
		c.burst = max(c.burst, sizes[len(sizes)-1])
	}
	return sizes
}

// loadOrder is the paper's order of four quadwords (CS-1997-20, 2.3), for each four words of a block.
var loadOrder = []int{0, 3, 1, 2}

// loads are the program's reads of a block of the NIC.
func (c *contest) loads(t Time, block int) Time {
	words := c.inOrder(c.NIC.Block)
	if n := len(loadOrder); len(words)%n == 0 {
		for i := range words {
			words[i] = i/n*n + loadOrder[i%n]
		}
	}
	for _, bytes := range c.bursts(words) {
		t = c.uncachedPCI(t, Load, block, bytes) + c.o.System.Bridge.Load
	}
	return t
}

// stores are its writes: they are posted, and the program waits while the bridge has no room.
func (c *contest) stores(t Time, block int) Time {
	for _, bytes := range c.bursts(c.inOrder(c.NIC.Block)) {
		t = max(t, c.posted[0])
		c.posted = append(c.posted[1:], c.uncachedPCI(t, Store, block, bytes))
		t += c.cycles(max(1, bytes/c.Processor.Word))
	}
	return t
}

// uncachedPCI is one burst of the program on PCI.
func (c *contest) uncachedPCI(t Time, k Kind, block, bytes int) Time {
	return c.pci.run(t, func() phases {
		c.lines.row = 0
		wait := Time(0)
		if k == Load {
			wait = c.pci.Cycles(c.o.System.Bridge.Wait)
		}
		return phases{kind: k, agent: Host, block: block, bytes: bytes, latency: wait, data: c.pci.Data(bytes, c.pci.Peak())}
	})
}

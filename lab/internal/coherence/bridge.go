package coherence

import (
	"context"
	"fmt"
	"strconv"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
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
	case o.DMA == NoDMA && o.Program == NoProgram:
		return nil, refuse("dma", string(o.DMA), join(Directions)+", and not none of either")
	case o.Bytes < 1 || o.Bytes > MaxBytes:
		return nil, refuse("bytes", strconv.Itoa(o.Bytes), fmt.Sprintf("1 to %d", MaxBytes))
	}
	r := &Outcome{}
	program, dma, both := o, o, o
	program.DMA, dma.Program = NoDMA, NoProgram
	var met [3]*contest
	for i, one := range []*Contest{&program, &dma, &both} {
		met[i] = newContest(one)
		if one.DMA == NoDMA && one.Program == NoProgram {
			continue
		}
		if err := met[i].run(ctx); err != nil {
			return nil, err
		}
	}
	r.Processor.Alone, r.Burst = met[0].rate, met[0].burst
	r.DMA.Alone, r.TransferAlone = met[1].dmaRate, met[1].transfer
	r.Processor.Together, r.DMA.Together, r.Transfer, r.Starved = met[2].rate, met[2].dmaRate, met[2].transfer, met[2].starves()
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

// lines are the NIC's DMA transfers, block by block through the bridge. The bridge is a data movement
// device with Prefetch buffers. Transfers follow each other without end.
type lines struct {
	*contest
	device *pipeline.Device
	line   int    // of the transfer, that comes into the bridge next.
	count  int    // of a transfer.
	out    int    // lines of the transfer that have left.
	freed  []Time // when each buffer is free; the next to be used first.
	row    int    // bytes of the burst on PCI.
	came   []Time // when each line of the transfer was in the bridge.
	idle   Time   // when the next line may come.
	ends   Time   // the last line on PCI.

	began Time   // the transfer.
	took  []Time // each transfer that has ended.
	ended []Time // when.
	left  []Time // when each line was at its end.
}

func (l *lines) begin(c *contest) (err error) {
	l.contest = c
	if c.o.DMA == NoDMA {
		return nil
	}
	b := c.o.System.Bridge
	l.count = ceil(c.o.Bytes, c.NIC.Block)
	l.freed, l.came = make([]Time, b.Prefetch), make([]Time, l.count)
	if l.device, err = pipeline.NewDevice(pipeline.StoreAndForward{}, b.Prefetch); err != nil {
		return err
	}
	l.idle = b.Start
	l.start()
	return nil
}

// busy is the bus on which the NIC has asked for something.
func (l *lines) busy() *bus {
	if len(l.pci.waiting) > 0 {
		return &l.pci
	}
	return &l.machine.bus
}

// start brings the next line into the bridge, if there is a buffer for it. A transfer begins
// when the one before has left.
func (l *lines) start() {
	if l.line == l.count || !l.device.CanStart() {
		return
	}
	_, err := l.device.Start(l.NIC.Block)
	l.note(err)
	line := l.line
	l.line++
	in := l.overMemory
	if l.o.DMA == Received {
		in = l.overPCI
	}
	in(max(l.idle, l.freed[0]), line, func(end Time) {
		l.idle, l.came[line] = end, end
		l.note(l.device.Arrived(l.NIC.Block))
		l.leave(end)
		l.start()
	})
}

// leave moves the oldest line out of the bridge, if it is idle.
func (l *lines) leave(at Time) {
	if n, _ := l.device.Move(); n == 0 {
		return
	}
	out := l.overPCI
	if l.o.DMA == Received {
		out = l.overMemory
	}
	line := l.out
	l.out++
	out(max(at, l.came[line]), line, func(end Time) {
		l.note(l.device.Done())
		l.freed = append(l.freed[1:], end)
		l.left = append(l.left, end)
		if line == l.count-1 {
			l.took, l.ended = append(l.took, end-l.began), append(l.ended, end)
			l.line, l.out, l.began = 0, 0, end
			l.idle = end + l.o.System.Bridge.Start
			l.start()
			return
		}
		l.leave(end)
		l.start()
	})
}

// overMemory moves a line over the memory bus, and calls then when it is known when that ends.
// If the program wants this bus, too, it waits there.
func (l *lines) overMemory(at Time, line int, then func(end Time)) {
	b := &l.machine.bus
	block := l.starts[Payload] + line
	l.ask(b, l.o.Program == BlockCopy, at, false, func() phases {
		var p phases
		if l.o.DMA == SendDMA {
			p = l.fetch(block, l.full())
			// Memory is its only owner: the NIC keeps no copy.
			l.blocks[block].nic = invalid
			return p
		}
		l.blocks[block].written++
		l.blocks[block].local = l.blocks[block].written
		return l.writeBack(block, l.full())
	}, then)
}

// overPCI moves a line over PCI. It goes on with the burst before if nothing came between.
func (l *lines) overPCI(at Time, line int, then func(end Time)) {
	follows := func(begin Time) bool { return l.row > 0 && begin <= l.ends }
	joins := follows(at) && l.row < l.o.System.Bridge.Burst
	l.ask(&l.pci, l.o.Program != BlockCopy, at, joins, func() phases {
		begin := l.pci.grant(at)
		p := phases{kind: DMARead, agent: NIC, block: line, bytes: l.NIC.Block, data: l.pci.Data(l.NIC.Block, l.pci.Peak())}
		if follows(begin) {
			p.data -= l.pci.Arbitration + l.pci.Address // the bus and the address are there
		} else {
			l.row = 0
		}
		l.row += l.NIC.Block
		l.ends = begin + l.pci.span(p)
		return p
	}, then)
}

// ask requests a bus, and waits for it if it is contended.
func (l *lines) ask(b *bus, contended bool, at Time, joins bool, do func() phases, then func(end Time)) {
	if !contended {
		then(b.perform(request{at: at, do: do}))
		return
	}
	b.waiting = append(b.waiting, request{at: at, joins: joins, do: func() phases {
		p := do()
		then(b.grant(at) + b.span(p)) // what it asks for waits for this to end
		return p
	}})
}

// end takes the rate and the mean transfer from a time to another; without a program, of all.
func (l *lines) end(from, to Time) {
	if l.o.DMA == NoDMA {
		return
	}
	if l.o.Program == NoProgram || l.starves() {
		to = l.machine.bus.free
		if len(l.left) > 0 {
			to = l.left[len(l.left)-1]
		}
	}
	moved := 0
	for _, t := range l.left {
		if t > from && t <= to {
			moved += l.NIC.Block
		}
	}
	l.dmaRate = megabytes(moved, to-from)
	n, sum := 0, Time(0)
	for i, t := range l.ended {
		if t-l.took[i] >= from && t <= to {
			sum += l.took[i]
			n++
		}
	}
	if n > 0 {
		l.transfer = sum / Time(n)
	}
}

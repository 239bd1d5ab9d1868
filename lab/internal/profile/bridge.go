package profile

import "embed"

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
	Wait     int       // cycles of a read on PCI before its first data.
	First    First     // on the memory bus.
	Queue    int       // transactions of the processor that the bridge has taken and not done.
	Merge    int       // bytes of a block whose uncached words the processor or the bridge joins in one burst.
	Posted   int       // bursts of stores that wait in the bridge while the processor goes on.
	Load     Time      // of an uncached load beside its time on PCI: to the bridge and back to the program.
	Prefetch int       // blocks of memory between the memory bus and PCI.
	Burst    int       // bytes that the NIC moves on PCI before the processor has its turn.
	Start    Time      // of each DMA transfer, while the buses are free.
}

// Bridges are the platforms with a bridge.
var Bridges = Library[*MemorySystem]{bridged, "bridged", memoryKeys, (*resolver).bridged}

func (r *resolver) bridged() *MemorySystem {
	m := &MemorySystem{Name: r.name, Summary: r.text("summary")}
	for table, what := range map[string]string{"bus": "the memory bus", "bridge": "the bridge and the PCI bus behind it"} {
		if !r.has(table) {
			r.fail(table, "", what, ErrMissing)
		}
	}
	if r.has("profile") {
		r.fail("profile", r.text("profile"), "none: all of a platform with a bridge is in its file", ErrValue)
	}
	m.Processor = r.processor()
	r.caches(m)
	m.Bridge = r.bridge(m.NIC.Block)
	r.whole(m)
	return m
}

// bridge reads a bridge; block is the unit of the memory bus.
func (r *resolver) bridge(block int) *Bridge {
	return &Bridge{
		PCI: SystemBus{Cycle: r.cycle("bridge.clock"), Width: r.bytes("bridge.width", 1, 64),
			Arbitration: r.count("bridge.idle", 0, maxCycles), Address: r.count("bridge.address", 1, maxCycles)},
		Wait:     r.count("bridge.wait", 0, maxCycles),
		First:    First(r.word([]string{string(ProcessorFirst), string(DMAFirst), string(InTurn)}, "bridge.first")),
		Queue:    r.count("bridge.queue", 1, 64),
		Merge:    r.bytes("bridge.merge", 1, block),
		Posted:   r.count("bridge.posted", 1, 64),
		Load:     r.time("bridge.load"),
		Prefetch: r.count("bridge.prefetch", 1, 64),
		Burst:    r.bytes("bridge.burst", block, 1<<16),
		Start:    r.time("bridge.start"),
	}
}

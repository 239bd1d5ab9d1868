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

type rawBridge struct {
	Clock, Width, First, Merge, Load, Burst, Start *string
	Idle, Address, Wait, Queue, Posted, Prefetch   *int64
}

// Bridges are the platforms with a bridge.
var Bridges = Library[*MemorySystem]{bridged, "bridged", parseBridge}

func parseBridge(l Library[*MemorySystem], title, file string, text []byte) (*MemorySystem, error) {
	w, err := onBase(l.Source, file, text, memoryKeys, func(w *rawMemory) *string { return w.Base })
	if err != nil {
		return nil, err
	}
	r := &resolver{file: file}
	m := &MemorySystem{Name: title}
	if w.Summary != nil {
		m.Summary = *w.Summary
	}
	switch {
	case w.Bus == nil:
		r.fail("bus", "", "the memory bus", ErrMissing)
	case w.Bridge == nil:
		r.fail("bridge", "", "the bridge and the PCI bus behind it", ErrMissing)
	case w.Profile != nil:
		r.fail("profile", *w.Profile, "none: all of a platform with a bridge is in its file", ErrValue)
	default:
		m.Processor = w.processor(r)
		w.caches(r, m)
		m.Bridge = w.Bridge.resolve(r, m.NIC.Block)
	}
	return r.whole(m)
}

// resolve makes a bridge of the texts; block is the unit of the memory bus.
func (w *rawBridge) resolve(r *resolver, block int) *Bridge {
	b := &Bridge{
		PCI: SystemBus{Cycle: r.cycle("bridge.clock", w.Clock), Width: r.bytes("bridge.width", w.Width, 1, 64),
			Arbitration: r.count("bridge.idle", w.Idle, 0, maxCycles), Address: r.count("bridge.address", w.Address, 1, maxCycles)},
		Wait:     r.count("bridge.wait", w.Wait, 0, maxCycles),
		Queue:    r.count("bridge.queue", w.Queue, 1, 64),
		Merge:    r.bytes("bridge.merge", w.Merge, 1, block),
		Posted:   r.count("bridge.posted", w.Posted, 1, 64),
		Load:     Micros(r.quantity(span, entry{"bridge.load", w.Load})),
		Prefetch: r.count("bridge.prefetch", w.Prefetch, 1, 64),
		Burst:    r.bytes("bridge.burst", w.Burst, block, 1<<16),
		Start:    Micros(r.quantity(span, entry{"bridge.start", w.Start})),
	}
	const orders = `"processor", "dma" or "turns"`
	switch {
	case w.First == nil:
		r.fail("bridge.first", "", orders, ErrMissing)
	case First(*w.First) != ProcessorFirst && First(*w.First) != DMAFirst && First(*w.First) != InTurn:
		r.fail("bridge.first", *w.First, orders, ErrValue)
	default:
		b.First = First(*w.First)
	}
	return b
}

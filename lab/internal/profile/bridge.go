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

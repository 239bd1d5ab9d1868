package emulator

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/processor"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mac"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// DoorbellMode says how stores to BAR2 reach the engine.
type DoorbellMode int

const (
	// DoorbellsDefault is DoorbellsTrapped: inline a doorbell is a call into the engine,
	// see vfio.InProcess, and on a thread a sleeping engine does not see a store to memory.
	DoorbellsDefault DoorbellMode = iota
	// DoorbellsMapped makes BAR2 shared memory that can be mapped, and that the engine
	// reads when it is stepped.
	DoorbellsMapped
	// DoorbellsTrapped makes BAR2 a region that cannot be mapped; WriteRegion tells
	// the engine of each store.
	DoorbellsTrapped
)

const (
	// defaultSRAM is the size of BAR4 in bytes: slots of 256 KiB for control programs
	// and their maps, and more than 7 MiB for endpoints and regions. The size is our choice, of
	// which a process can have many; untouched pages take no memory.
	defaultSRAM = 8 << 20
	// maxSRAM keeps a wrong number from taking the machine's memory. This is our
	// choice, too.
	maxSRAM = 1 << 30
)

// Options are the choices of New. Wire is needed.
type Options struct {
	// Name is the address that Info and errors give; "emu:" if empty.
	Name string
	// Wire carries the NIC's frames. The device owns it from then on.
	Wire wire.Port
	// MAC of the station; if zero, a random, locally administered one.
	MAC datasheet.MAC
	// Limits and Timing of the engine; zero values mean its defaults.
	// Limits.Vectors is the number of MSI-X vectors, at most
	// datasheet.Vectors.
	Limits engine.Limits
	Timing engine.Timing
	// Pipeline says how payloads cross the NIC until the host sets another policy.
	Pipeline engine.Pipeline
	// Clock is a monotonic clock for the engine and the clock block; nil means
	// the real one.
	Clock     func() time.Duration
	Doorbells DoorbellMode
	// Thread has a goroutine of the device step the engine, and Poll do nothing;
	// otherwise Poll steps it.
	Thread bool
	// Pinned ties that goroutine to a thread that stays on processor core Core, one
	// that this process may use.
	Pinned bool
	Core   int
	// SRAM is the size of BAR4 in bytes, a power of two of at least
	// processor.MinSRAM; defaultSRAM if zero.
	SRAM uint32
	// Memory bounds the bytes that MapDMA maps; zero: no limit.
	Memory uint64
}

func (o *Options) complete() error {
	bad := func(format string, a ...any) error {
		return &vfio.Error{Op: "create emulated device", Device: o.Name, Err: fmt.Errorf("%w: "+format, append([]any{ErrOptions}, a...)...)}
	}
	if o.Name == "" {
		o.Name = "emu:"
	}
	if o.Wire == nil {
		return bad("there is no Wire")
	}
	if o.MAC == (datasheet.MAC{}) {
		o.MAC = mac.Random()
	}
	if o.Pinned {
		if !o.Thread {
			return bad("only an engine on a thread can be pinned to a core: add engine=thread")
		}
		if cores := usableCores(); !slices.Contains(cores, o.Core) {
			return bad("core %d: this process may use %v", o.Core, cores)
		}
	}
	switch o.Doorbells {
	case DoorbellsMapped, DoorbellsTrapped:
	case DoorbellsDefault:
		o.Doorbells = DoorbellsTrapped
	default:
		return bad("Doorbells is %d", o.Doorbells)
	}
	if o.SRAM == 0 {
		o.SRAM = defaultSRAM
	}
	if o.SRAM < processor.MinSRAM || o.SRAM > maxSRAM || bits.OnesCount32(o.SRAM) != 1 {
		return bad("SRAM of %d bytes is not a power of two in %d..%d", o.SRAM, processor.MinSRAM, maxSRAM)
	}
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() time.Duration { return time.Since(start) }
	}
	return nil
}

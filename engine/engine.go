package engine

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"sync/atomic"
)

// Engine is one NIC. Step, Run, Execute, Exclusive and Reset exclude each
// other; Doorbell and Wake may be called at any time. It joins the parts, which do
// the work.
type Engine struct {
	mu    hotlock.Mutex
	sleep sleeper

	// What follows is protected by mu.
	core  core
	vis   *transport
	cells *cellMover
}

// New makes an engine. Errors wrap ErrConfig.
func New(c Config) (*Engine, error) {
	e := &Engine{sleep: sleeper{wake: make(chan struct{}, 1)}}
	if err := e.core.assemble(&c, e.rang, e.demultiplex); err != nil {
		return nil, err
	}
	e.vis = newTransport(&e.core)
	newRings(e.vis)
	e.cells = newCells(e.vis, c.Cells)
	e.clear()
	return e, nil
}

// clear puts everything but the configuration into the power-on state.
func (e *Engine) clear() {
	e.core.clear()
	e.vis.clear()
	e.cells.clear()
	e.core.welcome()
}

// Limits returns the engine's limits.
func (e *Engine) Limits() Limits { return e.core.limits }

// MAC returns the engine's station address.
func (e *Engine) MAC() datasheet.MAC { return e.core.mac }

// Features returns the feature bits of what the engine can do.
func (e *Engine) Features() uint64 {
	f := datasheet.FeatureReliableDelivery | datasheet.FeatureReliableReception |
		datasheet.FeatureFrame | datasheet.FeaturePayloadTable | datasheet.FeatureInline |
		datasheet.FeatureRDMAWrite | datasheet.FeatureRDMARead | datasheet.FeatureReceiveQueue
	if e.core.regions.sram.bytes != nil {
		f |= datasheet.FeatureRing | datasheet.FeatureEager | datasheet.FeatureChannel
	}
	if e.core.bells.bar != nil {
		f |= datasheet.FeatureDoorbellMarks
	}
	return f
}

// Exclusive runs f while the engine does nothing. Afterwards the engine no
// longer uses windows into host memory of an older generation.
func (e *Engine) Exclusive(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	e.core.regions.renew()
}

// Reset puts the engine into its power-on state. Peers are not told that their
// connections have ended: they learn it when they next send or probe.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.revoke(0)
	e.clear()
}

// Counter returns a counter. It waits for a step to end.
func (e *Engine) Counter(c datasheet.Counter) uint64 {
	if c < 0 || c >= datasheet.CounterCount {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.own[c] + e.core.others[c].Load()
}

// AddCounter counts something that happened outside the engine. It may be
// called from any goroutine.
func (e *Engine) AddCounter(c datasheet.Counter, n uint64) {
	if c >= 0 && c < datasheet.CounterCount {
		e.core.others[c].Add(n)
	}
}

// MapSRAM makes memory, all of BAR4, the device memory from now on; what stands before
// offset from is not the engine's. Call it before the first endpoint or region exists, or
// within Exclusive right after Reset. Without it the engine has no device memory.
func (e *Engine) MapSRAM(memory []byte, from uint32) {
	e.core.regions.sram.bytes, e.core.regions.sram.from = memory, uint64(from)
	e.core.regions.sram.clear()
}

// FreeSRAM is how many bytes of device memory are not in use. It waits for a step to end.
func (e *Engine) FreeSRAM() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return uint32(e.core.regions.sram.free())
}

// CellLevels returns the levels of now. It waits for a step to end.
func (e *Engine) CellLevels() CellLevels {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.cells.levels
	l.Receive, l.ReceiveHighest, l.ReceiveSize = e.cells.received.n, e.cells.received.highest, e.cells.received.config.FIFO
	l.Stopped = e.cells.holding
	for _, link := range e.cells.links {
		if link.stopped {
			l.StoppedBy++
		}
	}
	return l
}

// sleeper lets a thread that runs the engine sleep until there is work.
type sleeper struct {
	asleep atomic.Bool
	wake   chan struct{}
}

// Wake ends the sleep of Run. It may be called from any goroutine.
func (e *Engine) Wake() {
	if e.sleep.asleep.Load() {
		select {
		case e.sleep.wake <- struct{}{}:
		default:
		}
	}
}

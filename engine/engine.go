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
	core
	setups setups
	vis    *transport
	cells  *cellMover
}

// New makes an engine. Errors wrap ErrConfig.
func New(c Config) (*Engine, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	e := &Engine{sleep: sleeper{wake: make(chan struct{}, 1)}, core: core{limits: c.Limits, timing: c.Timing,
		link: newLink(c.Port, c.MAC, c.Pipeline), reports: reports{host: c.Host},
		clock: clock{read: c.Clock, gap: c.Timing.Dead / deadLooks}}}
	p := &e.core
	p.reports.todo = &p.events
	p.bells = newDoorbells(c.Limits.Endpoints, c.Limits.CQs, e.rang)
	p.program.clock = &p.clock
	p.regions = regions{counters: &p.counters, bus: c.Memory, limits: c.Limits, direct: newDirect(&p.link)}
	p.cqs = completions{counters: &p.counters, reports: &p.reports, memory: &p.regions, bells: &p.bells}
	p.dma = dma{clock: &p.clock, program: &p.program, regions: &p.regions, config: c.Pipeline, timed: p.timed}
	e.tx = transmitter{core: p, pace: pace{bus: c.Pipeline.bus()}}
	e.rx = receiver{core: p, demultiplex: e.demultiplex, conns: &e.conns, placement: placement{bus: c.Pipeline.bus()}}
	e.conns = connections{core: p, tx: &e.tx}
	e.setups = setups{core: p, random: c.Rand, tx: &e.tx, conns: &e.conns}
	e.vis = newTransport(p)
	newRings(e.vis)
	e.cells = newCells(e.vis, c.Cells)
	p.requests = requests{clock: &p.clock, reports: &p.reports}
	if err := e.dma.clear(); err != nil {
		return nil, err
	}
	e.clear()
	return e, nil
}

// clear puts everything but the configuration into the power-on state.
func (e *Engine) clear() {
	e.counters.clear()
	e.regions.clear()
	e.cqs.clear()
	e.clock.clear()
	e.vectors, e.setups.underWay = 0, nil
	e.tx.clear()
	e.rx.clear()
	e.cells.clear()
	e.program.clear()
	_ = e.dma.clear() // its policies were good when the engine was made
	e.endpoints.clear(e.limits.Endpoints)
	e.vis.wires.clear()
	e.bells.clear()
	e.requests.clear()
	e.conns.departed, e.conns.departedAt = [rememberedEnds]ended{}, 0
	e.welcome()
}

// Limits returns the engine's limits.
func (e *Engine) Limits() Limits { return e.limits }

// MAC returns the engine's station address.
func (e *Engine) MAC() datasheet.MAC { return e.mac }

// Features returns the feature bits of what the engine can do.
func (e *Engine) Features() uint64 {
	f := datasheet.FeatureReliableDelivery | datasheet.FeatureReliableReception |
		datasheet.FeatureFrame | datasheet.FeaturePayloadTable | datasheet.FeatureInline |
		datasheet.FeatureRDMAWrite | datasheet.FeatureRDMARead | datasheet.FeatureReceiveQueue
	if e.regions.sram.bytes != nil {
		f |= datasheet.FeatureRing | datasheet.FeatureEager | datasheet.FeatureChannel
	}
	if e.bells.bar != nil {
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
	e.regions.renew()
}

// Reset puts the engine into its power-on state. Peers are not told that their
// connections have ended: they learn it when they next send or probe.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revoke(0)
	e.clear()
}

// Counter returns a counter. It waits for a step to end.
func (e *Engine) Counter(c datasheet.Counter) uint64 {
	if c < 0 || c >= datasheet.CounterCount {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.own[c] + e.others[c].Load()
}

// AddCounter counts something that happened outside the engine. It may be
// called from any goroutine.
func (e *Engine) AddCounter(c datasheet.Counter, n uint64) {
	if c >= 0 && c < datasheet.CounterCount {
		e.others[c].Add(n)
	}
}

// MapSRAM makes memory, all of BAR4, the device memory from now on; what stands before
// offset from is not the engine's. Call it before the first endpoint or region exists, or
// within Exclusive right after Reset. Without it the engine has no device memory.
func (e *Engine) MapSRAM(memory []byte, from uint32) {
	e.regions.sram.bytes, e.regions.sram.from = memory, uint64(from)
	e.regions.sram.clear()
}

// FreeSRAM is how many bytes of device memory are not in use. It waits for a step to end.
func (e *Engine) FreeSRAM() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return uint32(e.regions.sram.free())
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

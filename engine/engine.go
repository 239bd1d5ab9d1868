package engine

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine/internal/channel"
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/ring"
	"github.com/trapeze-nic/trapeze/engine/internal/vi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

// Engine is one NIC. Step, Run, Execute, Exclusive and Reset exclude each
// other; Doorbell and Wake may be called at any time. The parts within do the work.
type Engine struct {
	core.Core // guarded by mu, but for the fields whose comments say otherwise

	vis   *vi.Transport  // set by New; what is in it is guarded by mu
	cells *channel.Mover // as vis

	mu    hotlock.Mutex // of the goroutine that steps, or runs Execute or Exclusive
	sleep sleeper       // any goroutine's
}

// New makes an engine. Errors wrap ErrConfig.
func New(c core.Config) (*Engine, error) {
	e := &Engine{sleep: sleeper{wake: make(chan struct{}, 1)}}
	if err := e.Assemble(&c, e.rang, e.demultiplex); err != nil {
		return nil, err
	}
	e.vis = vi.New(&e.Core)
	ring.Register(e.vis)
	e.cells = channel.New(e.vis, c.Cells)
	e.clear()
	return e, nil
}

// clear puts everything but the configuration into the power-on state.
func (e *Engine) clear() {
	e.Clear()
	e.vis.Clear()
	e.cells.Clear()
	e.RefreshPlain()
}

// Features returns the feature bits of what the engine can do besides what all can.
func (e *Engine) Features() (f uint64) {
	if e.Regions.SRAM.Bytes != nil {
		f |= datasheet.FeatureRing | datasheet.FeatureEager | datasheet.FeatureChannel
	}
	if e.Bells.Bar != nil {
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
	e.Regions.Renew()
}

// Reset puts the engine into its power-on state. Peers are not told that their
// connections have ended: they learn it when they next send or probe.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Revoke(0)
	e.clear()
}

// Counter returns a counter. It waits for a step to end.
func (e *Engine) Counter(c datasheet.Counter) uint64 {
	if c < 0 || c >= datasheet.CounterCount {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Own[c] + e.Others[c].Load()
}

// AddCounter counts something that happened outside the engine. It may be
// called from any goroutine.
func (e *Engine) AddCounter(c datasheet.Counter, n uint64) {
	if c >= 0 && c < datasheet.CounterCount {
		e.Others[c].Add(n)
	}
}

// MapSRAM makes memory, all of BAR4, the device memory from now on; what stands before
// offset from is not the engine's. Call it before the first endpoint or region exists, or
// within Exclusive right after Reset. Without it the engine has no device memory. It fails with ErrConfig if
// there is no room for the frame buffers of Pipeline.
func (e *Engine) MapSRAM(memory []byte, from uint32) error {
	e.Regions.SRAM.Bytes, e.Regions.SRAM.From = memory, uint64(from)
	e.Regions.SRAM.Clear()
	return e.PlaceBuffers()
}

// FreeSRAM returns the bytes of device memory that are not in use. It waits for a step to end.
func (e *Engine) FreeSRAM() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return uint32(e.Regions.SRAM.Free())
}

// CellLevels returns the levels of now. It waits for a step to end.
func (e *Engine) CellLevels() CellLevels {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.cells.Levels
	l.Receive, l.ReceiveHighest, l.ReceiveSize = e.cells.Received.N, e.cells.Received.Highest, e.cells.Received.Config.FIFO
	l.Stopped = e.cells.Holding
	for _, link := range e.cells.Links {
		if link.Stopped {
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

package engine

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

// Engine is one NIC. Step, Run, Execute, Exclusive and Reset exclude each
// other; Doorbell and Wake may be called at any time.
type Engine struct {
	port     Port
	mac      descriptors.MAC
	limits   Limits
	timing   Timing
	random   interface{ Read([]byte) (int, error) }
	checksum bool
	// progressive is the port, if it is one; pieces says that frames are
	// published piece by piece.
	progressive Progressive
	pieces      bool
	lender      Lender // the port, if it is one
	pipeline    Pipeline
	// maxPayload is what fits a frame, in bytes; oneBurst is the largest that is
	// gathered at once.
	maxPayload, oneBurst uint32

	mu    hotlock.Mutex
	bells doorbells
	sleep sleeper

	// What follows is protected by mu.
	counters
	reports
	regions regions
	cqs     completions
	clock
	committed bool // frames await a flush

	movers [directions]*memory.Mover
	out    outgoing
	in     incoming
	dma    dma
	program

	endpoints    []*endpoint
	takers       []*endpoint // open for raw frames, in the order of their creation
	lastEndpoint uint32      // number that was given out last

	ready     list        // have something to send
	spare     []*endpoint // memory for ready
	alone     bool        // only one has in this step
	owing     list        // owe acknowledgements, or the epitaph
	fresh     list        // have got receives
	unsettled list        // have been acknowledged, but for settleAll
	handed    bool        // a message to the host in this round
	busy      list        // have frames under way or wait for credit
	settingUp []*endpoint // have a connection under way

	requests requests

	loan loan
}

// Budgets of one step. A step is short, so that no part of the engine waits
// long for another.
const (
	receiveBudget   = 64
	transmitQuantum = 16 // frames an endpoint may send per turn
)

// New makes an engine. Errors wrap ErrConfig.
func New(c Config) (*Engine, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		port: c.Port, mac: c.MAC, limits: c.Limits,
		timing: c.Timing, random: c.Rand, checksum: c.Port.Checksum(),
		maxPayload: uint32(c.Port.MTU() - descriptors.HeaderSize),
		sleep:      sleeper{wake: make(chan struct{}, 1)}, pipeline: c.Pipeline,
	}
	e.bells = newDoorbells(c.Limits.Endpoints, c.Limits.CQs, e.rang)
	e.clock = clock{read: c.Clock, gap: c.Timing.Dead / deadLooks}
	e.reports = reports{host: c.Host}
	e.requests = requests{clock: &e.clock, reports: &e.reports}
	e.regions = regions{counters: &e.counters, bus: c.Memory, limits: c.Limits}
	e.cqs = completions{counters: &e.counters, reports: &e.reports, memory: &e.regions}
	e.progressive, _ = c.Port.(Progressive)
	e.lender, _ = c.Port.(Lender)
	// The checksum stands in the header, so nothing can go before the whole.
	e.pieces = e.progressive != nil && !e.checksum
	if e.oneBurst = e.maxPayload; e.pieces {
		e.oneBurst = uint32(c.Pipeline.Burst)
	}
	if err := e.newMovers(); err != nil {
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
	e.committed, e.vectors = false, 0
	e.clearFrames()
	e.clearProgram()
	e.clearDMA()
	e.endpoints = make([]*endpoint, e.limits.Endpoints)
	e.takers = nil
	e.lastEndpoint = 0
	e.bells.clear()
	e.ready, e.owing, e.fresh = list{bit: onReady}, list{bit: onOwing}, list{bit: onFresh}
	e.unsettled, e.busy = list{bit: onUnsettled}, list{bit: onBusy}
	e.spare, e.settingUp = nil, nil
	e.requests.clear()
}

// Limits returns the engine's limits.
func (e *Engine) Limits() Limits { return e.limits }

// MAC returns the engine's station address.
func (e *Engine) MAC() descriptors.MAC { return e.mac }

// Features returns the feature bits of what the engine can do.
func (e *Engine) Features() uint64 {
	f := descriptors.FeatureReliableDelivery | descriptors.FeatureReliableReception |
		descriptors.FeatureFrame | descriptors.FeaturePayloadTable | descriptors.FeatureInline
	if e.bells.bar != nil {
		f |= descriptors.FeatureDoorbellMarks
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

// Reset puts the engine into its power-on state. Connections end without a
// word: their peers learn it when they next send or ask.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lender != nil {
		e.lender.Revoke()
	}
	e.clear()
}

// Counter returns a counter. It waits for a step to end.
func (e *Engine) Counter(c descriptors.Counter) uint64 {
	if c < 0 || c >= descriptors.CounterCount {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.own[c] + e.others[c].Load()
}

// AddCounter counts something that happened outside the engine. It may be
// called from any goroutine.
func (e *Engine) AddCounter(c descriptors.Counter, n uint64) {
	if c >= 0 && c < descriptors.CounterCount {
		e.others[c].Add(n)
	}
}

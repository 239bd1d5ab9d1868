package emulator

import (
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
)

// gate says what paths into the device have to do beside messages.
type gate struct {
	mu   sync.Mutex    // held while bits is computed, so that the last change is seen
	bits atomic.Uint32 // engine.Gate...
}

// regate computes the gate anew. It is called behind each change of what it looks at.
func (d *Device) regate() {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	p, bits := d.peer.Load(), uint32(0)
	if d.special.Load() || !d.pollable.Load() {
		bits |= engine.GateSteps
	}
	if d.foreign.Load() {
		bits |= engine.GateGuards
	}
	if p != nil {
		bits |= engine.GatePair
	}
	if d.idle.waiting.Load() || p != nil && p.idle.waiting.Load() {
		bits |= engine.GateWakes
	}
	d.gate.bits.Store(bits)
}

// regateBoth is regate for both ends of a wire that are stepped together.
func (d *Device) regateBoth() {
	d.regate()
	if p := d.peer.Load(); p != nil {
		p.regate()
	}
}

package nic

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Stats says what a port has done so far.
type Stats struct {
	// NIC has the counters of driver and device: frames and bytes each way, and losses.
	NIC ethernet.Stats
	// Lost frames were committed while there was no link, or when the NIC failed.
	Lost uint64
	// Bad frames were dropped because the driver cannot send them, or says of them what
	// cannot be.
	Bad uint64
	// Wakes is the number of times that the wire has woken the receiver.
	Wakes uint64
	// Restarts are those of the NIC after it has failed.
	Restarts uint64
	// Err is why the NIC does not work now, nil if it does.
	Err error
}

type counters struct{ lost, bad, wakes, restarts atomic.Uint64 }

// Stats may be called from any goroutine.
func (p *Port) Stats() Stats {
	c := &p.counters
	s := Stats{NIC: p.nic.Stats(), Lost: c.lost.Load(), Bad: c.bad.Load(), Wakes: c.wakes.Load(), Restarts: c.restarts.Load()}
	if err := p.failure.Load(); err != nil {
		s.Err = *err
	}
	return s
}

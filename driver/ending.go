package driver

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ConnectionEnd says how a connection ended, by the Detail of its
// EventConnectionLost, a result of SPEC.md 8.7: ErrDisconnected, ErrPeerLost, ErrPathMTU
// or ErrConnectionBroken.
func ConnectionEnd(detail uint32) descriptors.Code {
	switch detail {
	case uint32(datasheet.ResultSuccess):
		return descriptors.ErrDisconnected
	case uint32(datasheet.ResultConnectionLost):
		return descriptors.ErrPeerLost
	case uint32(datasheet.ResultPathMTU):
		return descriptors.ErrPathMTU
	}
	return descriptors.ErrConnectionBroken
}

// ending says how the last connection of an endpoint ended, as far as that is known.
type ending struct{ what atomic.Uint64 }

// Values of ending.what.
const (
	endingNone  uint64 = iota // nothing to tell: no connection, or this side has ended it
	endingOpen                // connected or connecting, as far as is known
	endingLost                // it has ended, and the device has lost the event that says why
	endingKnown               // plus the event's Detail
)

// begin is called before a command that connects, and undo with what it returned
// if that came to nothing. An event of an earlier connection cannot come in
// between: it comes before the answer to the DISCONNECT that a VI needs to be
// connected again.
func (e *ending) begin() (before uint64) { return e.what.Swap(endingOpen) }
func (e *ending) undo(before uint64)     { e.what.CompareAndSwap(endingOpen, before) }

// told notes that the device has said why the connection ended.
func (e *ending) told(detail uint32) {
	e.what.CompareAndSwap(endingOpen, endingKnown+uint64(detail))
}

// local notes that this side has ended the connection, unless it had ended before.
func (e *ending) local() { e.what.CompareAndSwap(endingOpen, endingNone) }

// code says how the connection ended, 0 if there is nothing to tell.
func (e *ending) code() descriptors.Code {
	switch what := e.what.Load(); what {
	case endingNone, endingOpen:
		return 0
	case endingLost:
		return descriptors.ErrConnectionBroken
	default:
		return ConnectionEnd(uint32(what - endingKnown))
	}
}

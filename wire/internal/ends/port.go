// Package ends has what the ends of all wires share.
package ends

import (
	"errors"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/failure"
)

// Port is one end of a wire: what an engine needs, and what the owner of the
// device needs beyond that. LinkUp and the methods below may be called from any
// goroutine, the others by one at a time.
//
// While the link is down, frames that are committed are lost, or wait on ports that are
// engine.Lossless as long as the other end is there; and none arrive, but
// for those that a peer has left behind where the wire keeps them.
type Port interface {
	engine.Port
	// SetWake has f called after frames have arrived, by the goroutine that
	// brought them. f must not block. Nil ends it.
	SetWake(f func())
	// OnLink has f called after the link may have gone up or down, by the
	// goroutine that did it. f must not touch the link itself. Nil ends it.
	OnLink(f func())
	// SetLink pulls this end's plug or puts it back. It is in to begin with.
	SetLink(up bool)
	// Close pulls the plug for good. Closing again does nothing.
	Close() error
}

// Drainer is implemented by ports whose frames are lost if the port is closed before
// the peer has taken them.
type Drainer interface {
	// Drained reports whether the peer has taken every frame that was flushed, or
	// there is no peer to take them. It is for the sender.
	Drained() bool
}

// Claimer is implemented by ports of a wire that learns from frames where stations
// are, and on which others could claim to be one.
type Claimer interface {
	// Claim says that a station is at this end, before frames pass. It fails if it is
	// at another; errors wrap ErrOptions.
	Claim(mac datasheet.MAC) error
}

// Over is a wire on another one: its methods are those of the one within, but for those that differ.
type Over struct{ Port }

// Inner is the wire within.
func (o *Over) Inner() Port { return o.Port }

// Claim does nothing on wires that learn nothing.
func (o *Over) Claim(mac datasheet.MAC) error {
	if c, ok := o.Port.(Claimer); ok {
		return c.Claim(mac)
	}
	return nil
}

// Drained is true of wires that do not know.
func (o *Over) Drained() bool {
	d, ok := o.Port.(Drainer)
	return !ok || d.Drained()
}

// ErrOptions is wrapped by the errors about bad options.
var ErrOptions = errors.New("bad wire options")

// ErrNotListening: there is no listener yet.
var ErrNotListening = errors.New("no process listens at the socket")

// ErrGone: the peer's end was closed, or its process ended.
var ErrGone = errors.New("the peer is gone")

// Error says what could not be done, why, and what may help. Its device is the kind of wire, the
// address, and the peer if it is known.
type Error = failure.Error

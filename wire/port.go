package wire

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

type (
	// Port is one end of a wire.
	Port = ends.Port
	// Drainer is implemented by ports whose frames are lost if the port is closed before the peer
	// has taken them.
	Drainer = ends.Drainer
	// Claimer is implemented by ports of a wire that learns from frames where stations
	// are, and on which others could claim to be one.
	Claimer = ends.Claimer
	// Hook is a function that can be set and called from any goroutine. Its zero value does nothing.
	Hook = ends.Hook
	// Error says what could not be done at which port, why, and what may help.
	Error = ends.Error
)

var (
	// ErrOptions is wrapped by the errors about bad options.
	ErrOptions = ends.ErrOptions
	// ErrNotListening: there is no listener yet.
	ErrNotListening = ends.ErrNotListening
	// ErrGone: the peer's end was closed, or its process ended.
	ErrGone = ends.ErrGone
)

func checkMTU(mtu int) error {
	if mtu < datasheet.MinMTU || mtu > datasheet.MaxMTU {
		return fmt.Errorf("%w: MTU %d is not in %d..%d", ErrOptions, mtu, datasheet.MinMTU, datasheet.MaxMTU)
	}
	return nil
}

package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/speed"
)

// pace has a transmitter's knowledge of transfers that take their time: those of hostTx by the
// speed of the bus, those of netTx by that of the wire. The frame in progress is then
// gathered into the NIC's memory while the one before leaves the wire.
type pace struct {
	Bus   speed.Path
	stage []byte        // takes the frame in progress
	due   time.Duration // when hostTx has moved its next burst
	busy  bool          // netTx is
	// Coming says that something is under way on the wire that needs nothing but time.
	Coming bool
}

// placement is the transfer of a hostRcv whose bus has a speed.
type placement struct {
	bus   speed.Path
	Moves int  // bytes of the transfer under way
	ends  bool // the frame ends with it
	until time.Duration
}

package engine

import (
	"github.com/trapeze-nic/trapeze/engine/internal/channel"
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/vi"
)

// These are the parts of an engine, and its reports. The parts inside share them.
type (
	Config   = core.Config   // Port, Memory and Host are needed.
	Limits   = core.Limits   // the resources of a device.
	Timing   = core.Timing   // the times of the reliability protocol.
	Pipeline = core.Pipeline // how payloads cross the NIC.
	Cells    = core.Cells    // how cells cross the NIC.

	Memory      = core.Memory      // host memory, by bus address.
	Host        = core.Host        // the host, other than its memory.
	Port        = core.Port        // one end of a wire.
	Progressive = core.Progressive // a port that hands frames over in pieces.
	Paced       = core.Paced       // a port of a wire with a speed.
	Peers       = core.Peers       // a port of a wire with many ends.
	Lossless    = core.Lossless    // a port of a wire that loses nothing.
	Found       = core.Found       // what is next on it.
	Lender      = core.Lender      // a port whose peer can read this host's memory.

	Processor = core.Processor // runs control programs.
	Hook      = core.Hook      // where one may be asked.
	HookSet   = core.HookSet
	Action    = core.Action    // what becomes of a frame.
	Direction = core.Direction // of a payload through the NIC.

	CellLevels = channel.Levels // how full the FIFOs of channels are.
)

// Hooks, actions and directions; DefaultQueue stands for the built-in rule, and DefaultMinPulse is the
// least that the default policies move, in bytes.
const (
	HookPulseTransmit, HookPulseReceive   = core.HookPulseTransmit, core.HookPulseReceive
	HookFilterTransmit, HookFilterReceive = core.HookFilterTransmit, core.HookFilterReceive
	HookDemultiplex                       = core.HookDemultiplex
	FramePass, FrameDrop, FrameRedirect   = core.FramePass, core.FrameDrop, core.FrameRedirect
	Transmit, Receive                     = core.Transmit, core.Receive
	DefaultQueue                          = core.DefaultQueue
	DefaultMinPulse                       = core.DefaultMinPulse
	DefaultBuffers, MaxBuffers            = core.DefaultBuffers, core.MaxBuffers

	GateSteps, GatePair               = vi.GateSteps, vi.GatePair
	GateWakes, GateGuards             = vi.GateWakes, vi.GateGuards
	FoundNone, FoundShort, FoundOther = core.FoundNone, core.FoundShort, core.FoundOther
)

// ErrConfig is wrapped by the errors of New.
var ErrConfig = core.ErrConfig

// DefaultLimits returns the limits of a device that is configured without any.
func DefaultLimits() Limits { return core.DefaultLimits() }

// DefaultTiming returns the timing of a device that is configured without one. A peer
// that dies is noticed within 4 seconds.
func DefaultTiming() Timing { return core.DefaultTiming() }

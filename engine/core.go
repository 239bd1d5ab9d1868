package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// core is the parts that all others need.
type core struct {
	limits Limits
	timing Timing
	link
	counters
	reports
	clock
	program
	endpoints
	bells    doorbells
	regions  regions
	cqs      completions
	dma      dma
	requests requests
	kinds    [datasheet.KindReceiveQueue + 1]*kind // by number, nil where there is none
	tx       transmitter
	rx       receiver
	conns    connections
	handed   bool // a message to the host in this round
	carried  uint // operations since the last round that took no frame
}

// subject finds the endpoint that a command is about. What was posted to it before
// the command counts as posted.
func (c *core) subject(id uint32) *endpoint {
	ep := c.endpoint(id)
	if id == 0 {
		ep = c.all[0]
	}
	if ep != nil {
		c.bells.takePage(ep.id)
	}
	return ep
}

// These are the budgets of one step. A step is short, so that no part of the engine
// waits long for another.
const (
	receiveBudget   = windowFrames     // frames that are received: what one peer may have under way
	transmitQuantum = windowFrames / 4 // frames that an endpoint may send in its turn
)

// connections ends connections: when a side disconnects, when something fails, and
// when the peer is dead (SPEC.md 8.7).
type connections struct {
	*core
	tx *transmitter

	// departed are the last connections whose endpoints are gone, or connected anew: a
	// peer that missed the end is told of it all the same.
	departed   [rememberedEnds]ended
	departedAt int
}

// rememberedEnds bounds departed. Peers learn of an end within a probe time or so
// (SPEC.md 8.5), so this covers an application that ends a hundred connections at once.
const rememberedEnds = 128

// welcome lets the peer carry out operations, unless a program, the host or a viewer has a say
// in them. Each change of that calls it.
func (c *core) welcome() {
	d := &c.regions.direct
	if d.port == nil {
		return
	}
	d.open = c.hooks == 0 && !c.timed && !c.dma.chosen && !c.dma.log.on && c.dma.pulses == [directions]bool{}
	d.port.Welcome(d.open)
}

// offered is the number of the wire to a station if nothing is lost on it, else zero: a
// program that may drop frames counts as part of it. Once both sides have agreed, what such
// a program drops ends the connection.
func (c *core) offered(station datasheet.MAC) uint32 {
	if c.hooks&dropping != 0 {
		return 0
	}
	return c.wire(station)
}

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
	setups   setups
	handed   bool // a message to the host in this round
	carried  uint // operations since the last round that took no frame
}

// assemble puts the parts together, as c says, whose zero values it replaces. It gives rang what
// was stored to doorbells, and demultiplex sound frames. Errors wrap ErrConfig.
func (p *core) assemble(c *Config, rang func(page uint32, b bell, value uint32), demultiplex func(h *datasheet.Header, payload []byte) verdict) error {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return err
	}
	p.limits, p.timing, p.link = c.Limits, c.Timing, newLink(c.Port, c.MAC, c.Pipeline)
	p.reports = reports{host: c.Host, todo: &p.events}
	p.clock = clock{read: c.Clock, gap: c.Timing.Dead / deadLooks}
	p.program.clock = &p.clock
	p.bells = newDoorbells(c.Limits.Endpoints, c.Limits.CQs, rang)
	p.regions = regions{counters: &p.counters, bus: c.Memory, limits: c.Limits, direct: newDirect(&p.link)}
	p.cqs = completions{counters: &p.counters, reports: &p.reports, memory: &p.regions, bells: &p.bells}
	p.dma = dma{clock: &p.clock, program: &p.program, regions: &p.regions, config: c.Pipeline, timed: p.timed}
	p.tx = transmitter{core: p, pace: pace{bus: c.Pipeline.bus()}}
	p.rx = receiver{core: p, demultiplex: demultiplex, conns: &p.conns, placement: placement{bus: c.Pipeline.bus()}}
	p.conns = connections{core: p, tx: &p.tx}
	p.setups = setups{core: p, random: c.Rand, tx: &p.tx, conns: &p.conns}
	p.requests = requests{clock: &p.clock, reports: &p.reports}
	return p.dma.clear()
}

// clear puts everything but the configuration into the power-on state.
func (p *core) clear() {
	p.counters.clear()
	p.regions.clear()
	p.cqs.clear()
	p.clock.clear()
	p.vectors, p.setups.underWay = 0, nil
	p.tx.clear()
	p.rx.clear()
	p.program.clear()
	_ = p.dma.clear() // its policies were good when the engine was made
	p.endpoints.clear(p.limits.Endpoints)
	p.bells.clear()
	p.requests.clear()
	p.conns.departed, p.conns.departedAt = [rememberedEnds]ended{}, 0
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

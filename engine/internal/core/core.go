// Package core has what endpoints of all kinds need of a NIC: queues, regions, doorbells,
// completions, both ways of the wire, connections, the clock and DMA. Kinds register with it.
package core

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/round"
)

// Core joins the parts that all kinds need. One goroutine at a time writes it, under the engine's lock: the one that steps
// the engine, carries out an admin command or calls the host's configuration. Where others write too, the comment says so.
type Core struct {
	// Set once, by Assemble.
	Limits Limits
	Timing Timing
	link

	counters // Others is any goroutine's
	Reports
	Clock
	Program
	endpoints
	Bells     doorbells // any goroutine stores to a doorbell
	Regions   Regions
	CQs       completions
	DMA       dma
	Bus       hostBus // to host memory
	Requests  requests
	Kinds     [datasheet.KindReceiveQueue + 1]*Kind // by number, nil where there is none; set once, by the kinds' packages
	Tx        Transmitter
	Rx        Receiver
	Conns     Connections
	Setups    setups
	None      WorkQueue // of no endpoint: nothing of it completes
	Delivered bool      // a message to the host in this round
	DirectOps uint      // operations since the last round that took no frame
	Plain     bool      // neither a program nor the host has a say in what becomes of a frame
}

// Assemble puts the parts together, as c says, whose zero values it replaces. It gives rang what
// was stored to doorbells, and demultiplex sound frames. Errors wrap ErrConfig.
func (p *Core) Assemble(c *Config, rang func(page uint32, b Bell, value uint32), demultiplex func(h *datasheet.Header, payload []byte) Verdict) error {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return err
	}
	p.Limits, p.Timing, p.link = c.Limits, c.Timing, newLink(c.Port, c.MAC, c.Pipeline)
	p.Reports = Reports{host: c.Host, todo: &p.Events}
	p.Clock = Clock{Read: c.Clock, gap: c.Timing.Dead / DeadLooks}
	p.Program.Clock = &p.Clock
	p.Bells = newDoorbells(c.Limits.Endpoints, c.Limits.CQs, rang)
	p.Regions = Regions{counters: &p.counters, bus: c.Memory, Limits: c.Limits}
	if p.Lossless != nil {
		p.Regions.Direct.Port = p.Lender
	}
	p.CQs = completions{Core: p}
	p.DMA = dma{clock: &p.Clock, program: &p.Program, regions: &p.Regions, config: c.Pipeline, timed: p.Timed}
	p.Bus = hostBus{Path: c.Pipeline.bus(), half: c.Pipeline.HalfDuplex}
	p.Tx, p.Rx = newTransmitter(p, &c.Pipeline), newReceiver(p, &c.Pipeline, demultiplex)
	p.Conns = Connections{Core: p}
	p.Setups = setups{Core: p, random: c.Rand}
	p.Requests = requests{Clock: &p.Clock, Reports: &p.Reports}
	return p.DMA.clear()
}

// Clear puts everything but the configuration into the power-on state.
func (p *Core) Clear() {
	p.counters.clear()
	p.Regions.clear()
	_ = p.PlaceBuffers() // they had room before
	p.CQs.clear()
	p.Clock.clear()
	p.vectors, p.Setups.UnderWay = 0, nil
	p.Tx.clear()
	p.Rx.clear()
	p.Program.clear()
	_ = p.DMA.clear() // its policies were good when the engine was made
	p.endpoints.clear(p.Limits.Endpoints)
	p.Bells.clear()
	p.Requests.clear()
	p.Conns.departed, p.Conns.departedAt = [rememberedEnds]ended{}, 0
}

// PlaceBuffers takes the frame buffers out of device memory, if there is some and transfers take their time.
func (c *Core) PlaceBuffers() error {
	if !c.Timed {
		return nil
	}
	n, size := c.DMA.config.Buffers, round.Up(int(c.mtu), sramGranule)
	memory := Aligned(2 * n * size)
	if s := &c.Regions.SRAM; s.Bytes != nil {
		span, ok := s.Alloc(uint64(len(memory)), sramGranule)
		if !ok {
			return fmt.Errorf("%w: Pipeline.Buffers, %d in each direction of %d bytes: the device memory has %d bytes left",
				ErrConfig, n, size, s.Free())
		}
		memory = s.Memory(span)
	}
	for i := range n {
		at := 2 * i * size
		c.Tx.setMemory(i, memory[at:][:c.mtu:c.mtu])
		c.Rx.setMemory(i, memory[at+size:][:c.mtu:c.mtu])
	}
	return nil
}

// Subject finds the endpoint that a command is about. What was posted to it before
// the command counts as posted.
func (c *Core) Subject(id uint32) *Endpoint {
	ep := c.Endpoint(id)
	if id == 0 {
		ep = c.All[0]
	}
	if ep != nil {
		c.Bells.TakePage(ep.ID)
	}
	return ep
}

// These are the budgets of one step. A step is short, so that no part of the engine
// waits long for another.
const (
	receiveBudget   = WindowFrames     // frames that are received: what one peer may have under way
	TransmitQuantum = WindowFrames / 4 // frames that an endpoint may send in its turn
)

// Connections ends connections: when a side disconnects, when something fails, and
// when the peer is dead (SPEC.md 8.7).
type Connections struct {
	*Core

	// departed are the last connections whose endpoints are gone, or connected anew: a
	// peer that missed the end is told of it all the same.
	departed   [rememberedEnds]ended
	departedAt int

	// Ahead sends the cells that wait for room on the wire, which go before the end of their connection. It
	// returns false if the wire takes no more now.
	Ahead func() bool
}

// rememberedEnds bounds departed. Peers learn of an end within a probe time or so
// (SPEC.md 8.5), so this covers an application that ends a hundred connections at once.
const rememberedEnds = 128

// RefreshPlain lets the peer carry out operations, unless a program, the host or a viewer has a say
// in them. Each change of that calls it.
func (c *Core) RefreshPlain() {
	d := &c.Regions.Direct
	c.Plain = c.Hooks == 0 && !c.Timed && !c.Checksum && !c.DMA.Chosen && !c.DMA.Log.On && c.DMA.Pulses == [Directions]bool{}
	for _, m := range c.DMA.Movers {
		m.Settle() // a path does not ask it
	}
	if d.Port == nil {
		return
	}
	d.Open = c.Plain
	d.Port.AllowDirect(d.Open)
}

// offered is the number of the wire to a station if nothing is lost on it, else zero: a
// program that may drop frames counts as part of it. Once both sides have agreed, what such
// a program drops ends the connection.
func (c *Core) offered(station datasheet.MAC) uint32 {
	if c.Hooks&dropping != 0 {
		return 0
	}
	return c.Wire(station)
}

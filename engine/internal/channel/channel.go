// Package channel is the kind of MINI's channels (SPEC.md 16), and carries their cells.
package channel

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/vi"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// channels is the delivery of MINI's channels (SPEC.md 16). Connecting, probes and their answers
// are those of an unreliable VI; messages are cells, which Mover carries.
type channels struct {
	vi.Unreliable
	cells *Mover
}

// New makes the mover of an engine, and registers channels.
func New(k *vi.Transport, config core.Cells) *Mover {
	w := &Mover{Core: k.Core, config: config, Received: cellFIFO{Config: config}}
	k.Bells.RangChannel, k.Conns.Ahead = w.Rang, w.launch
	all := channels{vi.Unreliable{Transport: k}, w}
	k.Kinds[datasheet.KindChannel] = &core.Kind{Connects: true, SRAM: true, Check: all.check, Number: all.number,
		Create: all.create, Destroy: all.destroy, Deliver: func(datasheet.Reliability) core.Delivery { return all }}
	return w
}

// Rang takes what was stored to a channel's doorbell.
func (w *Mover) Rang(page uint32, which core.ChannelBell, value uint32) {
	ch := channelOf(w.All[page])
	switch {
	case ch == nil:
		w.Count(datasheet.CounterBadDoorbells, 1)
	case which == core.BellReceive:
		if ch.kernel || !ch.allow(value) {
			w.Count(datasheet.CounterBadDoorbells, 1)
		}
	default:
		w.post(w.All[page], datasheet.ChannelPriority(which), value)
	}
}

// number is that of channel 0, or a free one that a cell's header can name.
func (k channels) number(b *datasheet.CreateEndpointBody) (uint32, bool) {
	if b.Options == datasheet.EndpointKernel {
		return 0, k.All[0] == nil
	}
	n := k.Free(min(datasheet.ChannelPage(b.SendLog2).Channels(), k.Limits.Endpoints))
	return n, n != 0
}

// create takes a page of device memory, in which the host sees how far the channel is.
func (k channels) create(ep *core.Endpoint, b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why core.Refusal) {
	at, ok := k.Regions.SRAM.Alloc(datasheet.PageSize, datasheet.PageSize)
	if !ok {
		return reply, core.Refusal{Result: datasheet.ResultResource, Field: 0}
	}
	memory, page := k.Regions.SRAM.Memory(at), datasheet.ChannelPage(b.SendLog2)
	ch := &channel{page: page, mask: page.Words() - 1, span: at, tag: b.Ptag, kernel: b.Options == datasheet.EndpointKernel,
		control: datasheet.ChannelControlAt(memory), ends: datasheet.ChannelEndsAt(memory),
		send: doublePage{b.SendCQ, b.SendIOVA}, recv: doublePage{b.RecvCQ, b.RecvIOVA}}
	ch.transmit.Pointer, ch.receive.Pointer = page.Pointer(b.SendIOVA), page.Pointer(b.RecvIOVA)
	if b.Options&datasheet.EndpointSpaced != 0 {
		ch.receive.Status = datasheet.ChannelSpaced
	}
	ch.crc = cells.StartCRC
	for p := range ch.posted {
		ch.posted[p].ring = make([]message, mostMessages)
	}
	ch.showSent()
	ch.showReceived()
	ep.Own, ep.Bells, ep.Connects = ch, core.Bells, !ch.kernel
	ch.bells = k.Bells.OpenChannel(ep.ID)
	k.cells.Levels.Channels++
	return datasheet.EndpointCreated{Send: uint32(at.At)}, core.Refusal{}
}

// check names what is wrong with a new channel. It has no queues to check.
func (k channels) check(b *datasheet.CreateEndpointBody) core.Refusal {
	page := datasheet.ChannelPage(b.SendLog2)
	aligned := func(address uint64) bool { return address&(1<<page-1) == 0 }
	reach := func(handle uint32, address uint64, write bool) bool {
		r, _ := k.Regions.Reach(handle, b.Ptag, address, uint64(page.Bytes()), write)
		return r != nil && !r.Device
	}
	kernel := b.Options == datasheet.EndpointKernel
	return core.FirstOf([]core.Check{
		{b.Reliability != datasheet.Unreliable, datasheet.ResultInvalidReliability, core.Field(b, &b.Reliability)},
		{!page.Valid(), datasheet.ResultInvalidParameter, core.Field(b, &b.SendLog2)},
		{b.RecvLog2 != b.SendLog2, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvLog2)},
		{b.MaxTransfer != page.Bytes(), datasheet.ResultInvalidMTU, core.Field(b, &b.MaxTransfer)},
		{b.Rights != 0, datasheet.ResultInvalidParameter, core.Field(b, &b.Rights)},
		{b.Options != 0 && b.Options != datasheet.EndpointSpaced && !kernel, datasheet.ResultInvalidParameter, core.FieldOptions},
		{b.SendVector != datasheet.NoVector, datasheet.ResultInvalidParameter, core.Field(b, &b.SendVector)},
		{b.RecvVector != datasheet.NoVector, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvVector)},
		{k.Regions.Ptag(b.Ptag) == nil, datasheet.ResultInvalidPtag, core.Field(b, &b.Ptag)},
		{!aligned(b.SendIOVA), datasheet.ResultInvalidParameter, core.Field(b, &b.SendIOVA)},
		{!aligned(b.RecvIOVA) || kernel && b.RecvIOVA != 0, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvIOVA)},
		{!reach(b.SendCQ, b.SendIOVA, false), datasheet.ResultInvalidParameter, core.Field(b, &b.SendCQ)},
		{kernel && b.RecvCQ != 0 || !kernel && !reach(b.RecvCQ, b.RecvIOVA, true), datasheet.ResultInvalidParameter, core.Field(b, &b.RecvCQ)},
	})
}

func (k channels) destroy(ep *core.Endpoint) {
	ch := channelOf(ep)
	if ch.kernel {
		k.cells.withdraw(ch)
	}
	k.Regions.SRAM.Release(ch.span)
	k.cells.Levels.Channels--
}

func (k channels) Open(ep *core.Endpoint, peer *datasheet.ConnectBody) {
	k.Unreliable.Open(ep, peer)
	ch := channelOf(ep)
	ch.connect(ep.ID, &ep.Remote)
	ch.assembly.Reset()
	ch.expect, ch.cutShort = 0, false
	ch.receive.Status |= datasheet.ChannelConnected
	ch.showSent()
	ch.showReceived()
	k.cells.join(ep)
}

// Close implements core.Delivery: what has not been sent never is. What the peer sent before it left is stored first.
func (k channels) Close(ep *core.Endpoint) {
	ch := channelOf(ep)
	if ch.link == nil {
		return // it was connecting
	}
	for k.cells.Received.has(ep) {
		k.cells.store(cellBudget)
	}
	k.cells.leave(ep)
	ch.giveUp()
	if kernel := channelOf(k.All[0]); kernel != nil {
		kernel.showSent() // some of it may have been its
	}
	ch.receive.Status &^= datasheet.ChannelConnected
	ch.showSent()
	ch.showReceived()
}

// Transmit implements core.Delivery: Mover sends.
func (channels) Transmit(*core.Endpoint, int) bool { return false }

func (k channels) Take(ep *core.Endpoint, h *datasheet.Header, payload []byte) core.Verdict {
	switch h.Type {
	case datasheet.FrameCells:
		k.Hear(ep)
		return k.cells.take(ep, h, payload)
	case datasheet.FrameCellStop, datasheet.FrameCellStart:
		k.Hear(ep)
		k.cells.stop(channelOf(ep).link, h.Type == datasheet.FrameCellStop)
		return core.Taken
	case datasheet.FrameProbe:
		k.cells.repeat(ep)
	case datasheet.FrameAck:
	default:
		return core.Refused
	}
	return k.Unreliable.Take(ep, h, payload)
}

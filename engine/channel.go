package engine

import (
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// channels is the delivery of MINI's channels (SPEC.md 16). Connecting, probes and their answers
// are those of an unreliable VI; messages are cells, which cellMover carries.
type channels struct {
	unreliableVI
	cells *cellMover
}

// newCells makes the mover of an engine, and registers channels.
func newCells(k *transport, config Cells) *cellMover {
	w := &cellMover{core: k.core, tx: &k.tx, conns: &k.conns, config: config, received: cellFIFO{config: config}}
	k.bells.rangChannel = w.rang
	all := channels{unreliableVI{k}, w}
	k.kinds[datasheet.KindChannel] = &kind{connects: true, sram: true, check: all.check, number: all.number,
		create: all.create, destroy: all.destroy, deliver: func(datasheet.Reliability) delivery { return all }}
	return w
}

// rang takes what was stored to a channel's doorbell.
func (w *cellMover) rang(page uint32, which channelBell, value uint32) {
	ch := channelOf(w.all[page])
	switch {
	case ch == nil:
		w.count(datasheet.CounterBadDoorbells, 1)
	case which == bellReceive:
		if ch.kernel || !ch.allow(value) {
			w.count(datasheet.CounterBadDoorbells, 1)
		}
	default:
		w.post(w.all[page], datasheet.ChannelPriority(which), value)
	}
}

// number is that of channel 0, or a free one that a cell's header can name.
func (k channels) number(b *datasheet.CreateEndpointBody) (uint32, bool) {
	if b.Options == datasheet.EndpointKernel {
		return 0, k.all[0] == nil
	}
	n := k.free(min(datasheet.ChannelPage(b.SendLog2).Channels(), k.limits.Endpoints))
	return n, n != 0
}

// create takes a page of device memory, in which the host sees how far the channel is.
func (k channels) create(ep *endpoint, b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why refusal) {
	at, ok := k.regions.sram.alloc(datasheet.PageSize, datasheet.PageSize)
	if !ok {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	memory, page := k.regions.sram.memory(at), datasheet.ChannelPage(b.SendLog2)
	ch := &channel{page: page, mask: page.Words() - 1, span: at, tag: b.Ptag, kernel: b.Options == datasheet.EndpointKernel,
		control: datasheet.ChannelControlAt(memory), ends: datasheet.ChannelEndsAt(memory),
		send: doublePage{b.SendCQ, b.SendIOVA}, recv: doublePage{b.RecvCQ, b.RecvIOVA}}
	ch.transmit.Pointer, ch.receive.Pointer = uint16(2*ep.id), uint16(2*ep.id+1)
	if b.Options&datasheet.EndpointSpaced != 0 {
		ch.receive.Status = datasheet.ChannelSpaced
	}
	ch.crc = cells.StartCRC
	ch.showSent()
	ch.showReceived()
	ep.own, ep.bells, ep.connects = ch, bells, !ch.kernel
	ch.bells = k.bells.openChannel(ep.id)
	k.cells.levels.Channels++
	return datasheet.EndpointCreated{Send: uint32(at.at)}, refusal{}
}

// check names what is wrong with a new channel. It has no queues to check.
func (k channels) check(b *datasheet.CreateEndpointBody) refusal {
	page := datasheet.ChannelPage(b.SendLog2)
	aligned := func(address uint64) bool { return address%(1<<page) == 0 }
	reach := func(handle uint32, address uint64, write bool) bool {
		r, _ := k.regions.reach(handle, b.Ptag, address, uint64(page.Bytes()), write)
		return r != nil && !r.device
	}
	kernel := b.Options == datasheet.EndpointKernel
	switch {
	case b.Reliability != datasheet.Unreliable:
		return refusal{datasheet.ResultInvalidReliability, fieldReliability}
	case !page.Valid():
		return refusal{datasheet.ResultInvalidParameter, fieldSendLog2}
	case b.RecvLog2 != b.SendLog2:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvLog2}
	case b.MaxTransfer != page.Bytes():
		return refusal{datasheet.ResultInvalidMTU, fieldMaxTransfer}
	case b.Rights != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldRights}
	case b.Options != 0 && b.Options != datasheet.EndpointSpaced && !kernel:
		return refusal{datasheet.ResultInvalidParameter, fieldOptions}
	case b.SendVector != datasheet.NoVector:
		return refusal{datasheet.ResultInvalidParameter, fieldSendVector}
	case b.RecvVector != datasheet.NoVector:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvVector}
	case k.regions.ptag(b.Ptag) == nil:
		return refusal{datasheet.ResultInvalidPtag, fieldVIPtag}
	case !aligned(b.SendIOVA):
		return refusal{datasheet.ResultInvalidParameter, fieldSendIOVA}
	case !aligned(b.RecvIOVA), kernel && b.RecvIOVA != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	case !reach(b.SendCQ, b.SendIOVA, false):
		return refusal{datasheet.ResultInvalidParameter, fieldSendCQ}
	case kernel && b.RecvCQ != 0, !kernel && !reach(b.RecvCQ, b.RecvIOVA, true):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
	}
	return refusal{}
}

// destroy gives back what create took.
func (k channels) destroy(ep *endpoint) {
	ch := channelOf(ep)
	if ch.kernel {
		k.cells.withdraw(ch)
	}
	k.regions.sram.release(ch.span)
	k.cells.levels.Channels--
}

// open implements kind.
func (k channels) open(ep *endpoint, peer *datasheet.ConnectBody) {
	k.unreliableVI.open(ep, peer)
	ch := channelOf(ep)
	ch.connect(ep.id, &ep.remote)
	ch.assembly.Reset()
	ch.expect, ch.cutShort = 0, false
	ch.receive.Status |= datasheet.ChannelConnected
	ch.showSent()
	ch.showReceived()
	k.cells.join(ep)
}

// close implements kind: what has not been sent never is.
func (k channels) close(ep *endpoint) {
	ch := channelOf(ep)
	if ch.link == nil {
		return // it was connecting
	}
	k.cells.leave(ep)
	ch.giveUp()
	if kernel := channelOf(k.all[0]); kernel != nil {
		kernel.showSent() // some of it may have been its
	}
	ch.receive.Status &^= datasheet.ChannelConnected
	ch.showSent()
	ch.showReceived()
}

// transmit implements kind: cellMover sends.
func (channels) transmit(*endpoint, int) bool { return false }

// take implements kind.
func (k channels) take(ep *endpoint, h *datasheet.Header, payload []byte) verdict {
	switch h.Type {
	case datasheet.FrameCells:
		k.hear(ep)
		return k.cells.take(ep, h, payload)
	case datasheet.FrameCellStop, datasheet.FrameCellStart:
		k.hear(ep)
		k.cells.stop(channelOf(ep).link, h.Type == datasheet.FrameCellStop)
		return taken
	case datasheet.FrameProbe:
		k.cells.repeat(ep)
	case datasheet.FrameAck:
	default:
		return refused
	}
	return k.unreliableVI.take(ep, h, payload)
}

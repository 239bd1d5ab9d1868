package engine

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// channels is the kind of MINI's channels (SPEC.md 16). Connecting, probes and their answers
// are those of an unreliable VI; messages are cells, which cellMover carries.
type channels struct {
	unreliableVI
	cells *cellMover
}

// kernelChannel is the kind of channel 0.
type kernelChannel struct{ channels }

// check implements kind. It does without checkEndpoint: a channel has no queues.
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

// connects implements kind.
func (k kernelChannel) connects() bool { return false }

// destroy implements kind.
func (k kernelChannel) destroy(ep *endpoint) {
	k.cells.withdraw(ep.channel)
	k.channels.destroy(ep)
}

// destroy implements kind.
func (k channels) destroy(ep *endpoint) {
	k.regions.sram.release(ep.channel.span)
	k.cells.levels.Channels--
}

// open implements kind.
func (k channels) open(ep *endpoint, peer *datasheet.ConnectBody) {
	k.unreliableVI.open(ep, peer)
	ch := ep.channel
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
	ch := ep.channel
	if ch.link == nil {
		return // it was connecting
	}
	k.cells.leave(ep)
	ch.giveUp()
	if k := k.all[0]; k != nil {
		k.channel.showSent() // some of it may have been its
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
		return k.cells.take(ep, h, payload)
	case datasheet.FrameCellStop, datasheet.FrameCellStart:
		ep.unrel.hear(&k.clock)
		k.cells.stop(ep.channel.link, h.Type == datasheet.FrameCellStop)
		return taken
	case datasheet.FrameProbe:
		k.cells.repeat(ep)
	case datasheet.FrameAck:
	default:
		return refused
	}
	return k.unreliableVI.take(ep, h, payload)
}

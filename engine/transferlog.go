package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

func (d *dma) stopLog() {
	d.log.on = false
	for _, m := range d.movers {
		m.SetLog(nil)
	}
}

// Transfer implements memory.Log.
func (s *logSide) Transfer(outgoing bool, frame uint32, start, end int64, bytes, queued int) {
	g := &s.dma.log
	packet := frame - s.first
	if int32(packet) < 0 {
		return // it was in progress when the log began
	}
	if g.producer-g.consumer >= 1<<g.log2 {
		g.lost++
		return
	}
	at := g.iova + uint64(g.producer&(1<<g.log2-1))*datasheet.DMARecordSize
	records := datasheet.DMARecordsAt(s.dma.regions.whole(at, datasheet.DMARecordSize, true))
	if records == nil {
		s.dma.stopLog()
		return
	}
	r := &records[0]
	r.Start, r.End, r.Packet, r.Bytes = uint64(start/psPerNS), uint64(end/psPerNS), packet, uint32(bytes)
	r.Engine = engineOf[s.direction][0]
	if outgoing {
		r.Engine = engineOf[s.direction][1]
	}
	r.Publish(datasheet.PhaseOf(g.producer, g.log2) | queuedFlags(queued))
	g.producer++
}

// queuedFlags returns the flags of a record of a frame with so many behind it.
func queuedFlags(queued int) uint32 {
	const most = int(datasheet.DMARecordQueued >> 16)
	return uint32(min(max(queued, 0), most)) << 16
}

// engineOf names the incoming and the outgoing engine of each direction.
var engineOf = [directions][2]datasheet.DMAEngine{
	Transmit: {datasheet.EngineHostTx, datasheet.EngineNetTx},
	Receive:  {datasheet.EngineNetRcv, datasheet.EngineHostRcv},
}

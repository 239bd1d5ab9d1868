package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

func (d *dma) StopLog() {
	d.Log.On = false
	for _, m := range d.Movers {
		m.SetLog(nil)
	}
}

// Transfer implements memory.Log.
func (s *logSide) Transfer(outgoing bool, frame uint32, start, end int64, bytes, queued int) {
	g := &s.dma.Log
	packet := frame - s.First
	if int32(packet) < 0 {
		return // it was in progress when the log began
	}
	if g.Producer-g.Consumer >= 1<<g.Log2 {
		g.Lost++
		return
	}
	at := g.IOVA + uint64(g.Producer&(1<<g.Log2-1))*datasheet.DMARecordSize
	records := datasheet.DMARecordsAt(s.dma.regions.whole(at, datasheet.DMARecordSize, true))
	if records == nil {
		s.dma.StopLog()
		return
	}
	r := &records[0]
	r.Start, r.End, r.Packet, r.Bytes = uint64(start/psPerNS), uint64(end/psPerNS), packet, uint32(bytes)
	r.Engine = engineOf[s.direction][0]
	if outgoing {
		r.Engine = engineOf[s.direction][1]
	}
	r.Publish(datasheet.PhaseOf(g.Producer, g.Log2) | queuedFlags(queued))
	g.Producer++
}

// queuedFlags returns the flags of a record of a frame with so many behind it.
func queuedFlags(queued int) uint32 {
	const most = int(datasheet.DMARecordQueued >> 16)
	return uint32(min(max(queued, 0), most)) << 16
}

// engineOf names the incoming and the outgoing engine of each direction.
var engineOf = [Directions][2]datasheet.DMAEngine{
	Transmit: {datasheet.EngineHostTx, datasheet.EngineNetTx},
	Receive:  {datasheet.EngineNetRcv, datasheet.EngineHostRcv},
}

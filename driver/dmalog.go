package driver

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// MaxDMALog is the largest number of records of a DMA log.
const MaxDMALog = 1 << datasheet.MaxLogLog2

// dmaLog is the ring into which the device writes its DMA log. dmaBlock.mu
// guards it.
type dmaLog struct {
	buf      *dmaBuffer // nil while there is no log
	ring     []datasheet.DMARecord
	log2     uint8
	consumer uint32
	failed   error // why nothing more can be read
	// lent ends a log that is kept for a program beside this one; nil of any other.
	lent *time.Timer
}

// DMALogState is the state of the DMA log.
type DMALogState = telemetry.DMALog

// EnableDMALog has the device keep a record of each transfer of its engines, in
// a log with room for at least the given number of records, 1 to MaxDMALog.
// When that is full the device drops new ones until ReadDMALog has made room.
// Packets are numbered from 0 in each direction, and the log starts empty, also
// if one was kept before. The log is off when a NIC is opened. It fails with
// ErrInvalidParameter, or with ErrNotSupported if the device cannot do it.
func (n *NIC) EnableDMALog(records int) error {
	const op = "enable DMA log"
	if records < 1 || records > MaxDMALog {
		return n.refuse(op, fmt.Errorf("%w: a log of %d records", descriptors.ErrInvalidParameter, records), fmt.Sprintf("it has 1 to %d", MaxDMALog))
	}
	return n.inDMA(op, func() error {
		if err := n.closeLog(); err != nil {
			return err
		}
		return n.openLog(max(uint8(bits.Len(uint(records-1))), datasheet.MinLogLog2))
	})
}

func (n *NIC) openLog(log2 uint8) error {
	// The memory is new, and so zero, as the phase bits ask.
	buf, err := n.newDMA(n.background, datasheet.DMARecordSize<<log2, vfio.DMARead|vfio.DMAWrite, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return err
	}
	err = n.setAddress(datasheet.RegLogBaseLow, buf.iova, "a log")
	if err == nil {
		err = n.setDMA(datasheet.RegLogLog2, uint32(log2), "a log of 2^%d records")
	}
	if err != nil {
		return n.release(buf, err)
	}
	if err := n.setDMAControl(datasheet.DMAControlLog, 0); err != nil {
		// The device may have switched it on and not said so: the memory stays
		// until Close.
		return err
	}
	n.dma.log = dmaLog{buf: buf, ring: datasheet.DMARecordsAt(buf.mem.Bytes()[:datasheet.DMARecordSize<<log2]), log2: log2}
	return nil
}

// DisableDMALog ends the log. What was not read is gone. It does nothing if
// there is no log.
func (n *NIC) DisableDMALog() error {
	return n.inDMA("disable DMA log", n.closeLog)
}

// closeLog switches the log off and frees it. dma.mu is held.
func (n *NIC) closeLog() error {
	buf := n.dma.log.buf
	if buf == nil {
		return nil
	}
	if err := n.setDMAControl(0, datasheet.DMAControlLog); err != nil {
		return err
	}
	if t := n.dma.log.lent; t != nil {
		t.Stop()
	}
	n.dma.log = dmaLog{}
	return n.freeDMA(buf)
}

// ReadDMALog moves the oldest records of the log into p and returns how many;
// zero if there are none. Times are picoseconds of the device's clock, which
// two devices need not share. It fails with ErrInvalidState if there is no log,
// and with ErrProtocol if the device wrote a record that cannot be: records
// after it are not to be had.
func (n *NIC) ReadDMALog(p []dmalog.Record) (count int, err error) {
	err = n.inDMA("read DMA log", func() error {
		l := &n.dma.log
		if l.buf == nil {
			return hinted(descriptors.ErrInvalidState, "enable the log first")
		}
		for count < len(p) && l.failed == nil {
			r, ok := l.next()
			if !ok {
				break
			}
			p[count] = r
			count++
		}
		if count == 0 {
			return l.failed
		}
		// What is taken is taken, also if more cannot be: that is told next time.
		return n.regs.write(datasheet.BlockDMA, datasheet.RegLogConsumer, l.consumer)
	})
	return count, err
}

// next takes the oldest record and checks it. False says that there is none, or
// that l.failed says why.
func (l *dmaLog) next() (dmalog.Record, bool) {
	shared := &l.ring[l.consumer&(1<<l.log2-1)]
	flags := shared.LoadFlags()
	if flags&datasheet.CompletionPhase != datasheet.PhaseOf(l.consumer, l.log2) {
		return dmalog.Record{}, false
	}
	mmio.FromDevice()
	r := *shared // once: the device may change it under our eyes
	const longest = math.MaxInt64 / 1000
	if flags&^(datasheet.CompletionPhase|datasheet.DMARecordQueued) != 0 || r.Engine >= datasheet.DMAEngineCount || r.Start > r.End || r.End > longest ||
		r.Packet > math.MaxInt32 || r.Bytes > datasheet.MaxTransfer {
		l.failed = fmt.Errorf("%w: record %d of the DMA log is engine %d, packet %d, %d bytes, %d to %d ns, flags %#x",
			ErrProtocol, l.consumer, uint32(r.Engine), r.Packet, r.Bytes, r.Start, r.End, flags)
		return dmalog.Record{}, false
	}
	l.consumer++
	return dmalog.Record{
		Packet: int(r.Packet), Engine: engines[r.Engine], Start: int64(r.Start) * 1000, End: int64(r.End) * 1000, Bytes: int(r.Bytes),
		Queued: int(flags & datasheet.DMARecordQueued >> 16),
	}, true
}

// engines are the device's engines by number, in the log's terms.
var engines = [datasheet.DMAEngineCount]dmalog.Engine{
	datasheet.EngineHostTx: dmalog.HostTx, datasheet.EngineNetTx: dmalog.NetTx,
	datasheet.EngineNetRcv: dmalog.NetRcv, datasheet.EngineHostRcv: dmalog.HostRcv,
}

// DMALog returns the state of the DMA log. It fails with ErrNotSupported if the
// device cannot keep one.
func (n *NIC) DMALog() (s DMALogState, err error) {
	err = n.inDMA("query DMA log", func() error {
		var control, lost uint32
		err := n.regs.readAll(n.background, datasheet.BlockDMA, reading{datasheet.RegDMAControl, &control}, reading{datasheet.RegLogLost, &lost})
		if err == nil {
			_, err = n.regs.status(n.background)
		}
		if err == nil {
			s = DMALogState{Enabled: control&datasheet.DMAControlLog != 0, Records: len(n.dma.log.ring), Lost: lost}
		}
		return err
	})
	return s, err
}

// closeDMA has the device decide by itself, and ends the log, because the NIC
// closes: the memory behind both is about to go.
func (n *NIC) closeDMA() {
	n.dma.mu.Lock()
	defer n.dma.mu.Unlock()
	p := n.pump.Swap(nil)
	if p != nil {
		p.stop()
	}
	if n.failed() == nil && (p != nil || n.dma.log.buf != nil) {
		// If this does not help, the reset does.
		_ = n.regs.write(datasheet.BlockDMA, datasheet.RegDMAControl, 0)
	}
}

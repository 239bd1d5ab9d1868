package driver

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// DMALogState is the state of the DMA log.
type DMALogState = telemetry.DMALog

// EnableDMALog makes the device keep a record of each transfer of its engines, in
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
	buf, err := n.space.Ring(n.background, datasheet.DMARecordSize<<log2, vfio.DMARead|vfio.DMAWrite)
	if err != nil {
		return err
	}
	err = n.setAddress(datasheet.RegLogBaseLow, buf.IOVA, "a log")
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
	n.dma.log = dmaLog{buf: buf, ring: datasheet.DMARecordsAt(buf.Bytes()[:datasheet.DMARecordSize<<log2]), log2: log2}
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
	return n.space.Free(buf)
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

const (
	// lentLog2 is the size of a log that is kept for another program, 4096 records as a power of
	// two; lentPage bounds the records that it takes at a time.
	lentLog2, lentPage = 12, 512
	// lentFor bounds the life of such a log without a reader.
	lentFor = 5 * time.Second
)

// transfers takes records of a log that is kept for a program beside this one, and begins it if
// there is none. It fails with ErrInvalidState if this program keeps a log of its own.
func (n *NIC) transfers(context.Context, []uint64) (any, error) {
	if err := n.inDMA("lend DMA log", n.lendLog); err != nil {
		return nil, err
	}
	var records [lentPage]dmalog.Record
	count, err := n.ReadDMALog(records[:])
	if err != nil {
		return nil, err
	}
	state, err := n.DMALog()
	t := telemetry.Transfers{Records: [][5]int64{}, Lost: state.Lost}
	for _, r := range records[:count] {
		t.Records = append(t.Records, [5]int64{int64(r.Packet), int64(r.Engine), r.Start / 1000, r.End / 1000, int64(r.Bytes)})
	}
	return t, err
}

// lendLog has the log that is lent kept for some time more. dma.mu is held.
func (n *NIC) lendLog() error {
	l := &n.dma.log
	if l.buf != nil && l.lent == nil {
		return hinted(descriptors.ErrInvalidState, "the program that has the NIC keeps the log itself")
	}
	if l.buf == nil {
		if err := n.openLog(lentLog2); err != nil {
			return err
		}
		l.lent = time.AfterFunc(lentFor, n.endLent)
		return nil
	}
	l.lent.Reset(lentFor)
	return nil
}

// endLent ends a log that was lent, unless the program has begun one of its own.
func (n *NIC) endLent() {
	_ = n.inDMA("end lent DMA log", func() error {
		if n.dma.log.lent == nil {
			return nil
		}
		return n.closeLog()
	}) // else the NIC is closed, or has failed; or Close does it
}

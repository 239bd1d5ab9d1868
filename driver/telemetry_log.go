package driver

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

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

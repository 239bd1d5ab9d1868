package driver

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// dmaBlock is the driver's state of the device's DMA block (SPEC.md 2.9).
// mu guards it and the block's registers but for the pulses.
type dmaBlock struct {
	mu sync.Mutex
	// own is the device's configuration, known once it was asked.
	own   *builtInPolicies
	area  *dma.Buffer // progress counters, nil until the host first decides
	host  Policy      // that the pump runs
	cause error       // why the pump gave up
	log   dmaLog
}

// builtInPolicies are the registers of the built-in policies.
type builtInPolicies struct{ policyTx, policyRx, minPulseTx, minPulseRx uint32 }

type builtInRegister struct {
	reading
	what string
}

func (b *builtInPolicies) registers() [4]builtInRegister {
	const policy, size = "policy number %d", "a minimum pulse of %d bytes"
	return [4]builtInRegister{
		{reading{datasheet.RegPolicyTx, &b.policyTx}, policy}, {reading{datasheet.RegMinPulseTx, &b.minPulseTx}, size},
		{reading{datasheet.RegPolicyRx, &b.policyRx}, policy}, {reading{datasheet.RegMinPulseRx, &b.minPulseRx}, size},
	}
}

// MaxDMALog is the largest number of records of a DMA log.
const MaxDMALog = 1 << datasheet.MaxLogLog2

// dmaLog is the ring into which the device writes its DMA log. dmaBlock.mu
// guards it.
type dmaLog struct {
	buf      *dma.Buffer // nil while there is no log
	ring     []datasheet.DMARecord
	log2     uint8
	consumer uint32
	failed   error // why nothing more can be read
	// lent ends a log that is kept for a program beside this one; nil of any other.
	lent *time.Timer
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
	if flags&^(datasheet.CompletionPhase|datasheet.DMARecordBuffer|datasheet.DMARecordControl|datasheet.DMARecordQueued) != 0 || r.Engine >= datasheet.DMAEngineCount || r.Start > r.End || r.End > longest ||
		r.Packet > math.MaxInt32 || r.Bytes > datasheet.MaxTransfer {
		l.failed = fmt.Errorf("%w: record %d of the DMA log is engine %d, packet %d, %d bytes, %d to %d ns, flags %#x",
			ErrProtocol, l.consumer, uint32(r.Engine), r.Packet, r.Bytes, r.Start, r.End, flags)
		return dmalog.Record{}, false
	}
	l.consumer++
	return dmalog.Record{
		Packet: int(r.Packet), Engine: r.Engine, Start: int64(r.Start) * 1000, End: int64(r.End) * 1000, Bytes: int(r.Bytes),
		Queued: int(flags & datasheet.DMARecordQueued >> 16), Buffer: int(flags & datasheet.DMARecordBuffer >> 1), Control: flags&datasheet.DMARecordControl != 0,
	}, true
}

package driver

import (
	"fmt"
	"reflect"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Stats has the counters of a device (SPEC.md 2.7) since its last reset; one that the device
// does not have is zero. The fields are in the order of datasheet.Counter.
type Stats struct {
	FramesSent          uint64 `json:"frames_sent" help:"Frames that the NIC has sent." unit:"frames"`
	FramesReceived      uint64 `json:"frames_received" help:"Frames that the NIC has received." unit:"frames"`
	BytesSent           uint64 `json:"bytes_sent" help:"Bytes of payload that the NIC has sent." unit:"bytes"`
	BytesReceived       uint64 `json:"bytes_received" help:"Bytes of payload that the NIC has received." unit:"bytes"`
	MessagesSent        uint64 `json:"messages_sent" help:"Messages that the NIC has sent." unit:"messages"`
	MessagesReceived    uint64 `json:"messages_received" help:"Messages that the NIC has received." unit:"messages"`
	FramesDropped       uint64 `json:"frames_dropped" help:"Frames that were bad, stale or not expected." unit:"frames"`
	ChecksumErrors      uint64 `json:"checksum_errors" help:"Frames with a wrong checksum." unit:"frames"`
	ReceiveQueueEmpty   uint64 `json:"receive_queue_empty" help:"Messages that found no receive descriptor." unit:"messages"`
	FramesRetransmitted uint64 `json:"frames_retransmitted" help:"Frames that the NIC has sent again." unit:"frames"`
	FramesDuplicate     uint64 `json:"frames_duplicate" help:"Frames that came once more." unit:"frames"`
	Timeouts            uint64 `json:"timeouts" help:"Times that an acknowledgement was late." unit:"timeouts"`
	ProtectionErrors    uint64 `json:"protection_errors" help:"Uses of memory that were refused." unit:"errors"`
	DMAFaults           uint64 `json:"dma_faults" help:"Transfers that did not reach the host's memory." unit:"errors"`
	BadDoorbells        uint64 `json:"bad_doorbells" help:"Doorbells with a value that makes no sense." unit:"doorbells"`
	BadRegisterAccesses uint64 `json:"bad_register_accesses" help:"Accesses to registers that are not there or not allowed." unit:"accesses"`
	Interrupts          uint64 `json:"interrupts" help:"Interrupts that the NIC has raised." unit:"interrupts"`
	Completions         uint64 `json:"completions" help:"Completions that the NIC has written." unit:"completions"`
	PayloadsDiscarded   uint64 `json:"payloads_discarded" help:"Payloads of ring messages that had no place." unit:"messages"`
	EagerBlocks         uint64 `json:"eager_blocks" help:"Blocks of eager memory that were taken from device memory." unit:"blocks"`
	EagerReads          uint64 `json:"eager_reads" help:"Blocks of eager memory that were read from host memory." unit:"blocks"`
	EagerRefused        uint64 `json:"eager_refused" help:"Registrations that found no room for their blocks." unit:"registrations"`
	CellsSent           uint64 `json:"cells_sent" help:"Cells that the NIC has sent." unit:"cells"`
	CellsReceived       uint64 `json:"cells_received" help:"Cells that the NIC has received." unit:"cells"`
	CellsDropped        uint64 `json:"cells_dropped" help:"Cells without room, a channel or a sound header." unit:"cells"`
	ChannelStops        uint64 `json:"channel_stops" help:"Times that the NIC told a peer to stop sending cells." unit:"stops"`
	StopsTaken          uint64 `json:"channel_stops_taken" help:"Times that a peer told the NIC to stop sending cells." unit:"stops"`
}

// Stats reads the device's counters. It fails with ErrNotSupported if the device has none.
func (n *NIC) Stats() (Stats, error) {
	var s Stats
	values, err := n.readCounters()
	fields := reflect.ValueOf(&s).Elem()
	for i := range min(len(values), fields.NumField()) {
		fields.Field(i).SetUint(values[i])
	}
	return s, err
}

// Counters reads the device's counters, by name. It fails with ErrNotSupported if the
// device has none. Counters that this driver has no name for are called counter_18 and so
// on.
func (n *NIC) Counters() (map[string]uint64, error) {
	values, err := n.readCounters()
	if err != nil {
		return nil, err
	}
	counters := make(map[string]uint64, len(values))
	for i, v := range values {
		name := datasheet.Counter(i).String()
		if i >= int(datasheet.CounterCount) {
			name = fmt.Sprintf("counter_%d", i)
		}
		counters[name] = v
	}
	return counters, nil
}

// readCounters returns the counters in their order.
func (n *NIC) readCounters() (values []uint64, err error) {
	err = n.inBlock("read counters", datasheet.BlockCounters, func() error {
		count, err := n.regs.read(n.background, datasheet.BlockCounters, datasheet.RegCounterCount)
		if err != nil {
			return err
		}
		if room := (n.regs.blocks[datasheet.BlockCounters].Size - datasheet.RegCounterBase) / 8; count > room {
			return fmt.Errorf("%w: the counters block says it has %d, and room for %d", ErrBadRegisters, count, room)
		}
		values = make([]uint64, count)
		for i := range values {
			if values[i], err = n.regs.read64(datasheet.BlockCounters, datasheet.RegCounterBase+8*uint64(i)); err != nil {
				return err
			}
		}
		return nil
	})
	return values, err
}

// VIStats has the counters of a VI since it was made. The counters of receives are zero if the
// VI shares a receive queue: the Stats of that queue have them.
type VIStats struct {
	SendsPosted       uint64 `json:"sends_posted" help:"Sends that were posted." unit:"descriptors"`
	SendsCompleted    uint64 `json:"sends_completed" help:"Sends that have completed and were taken back." unit:"descriptors"`
	SendsFailed       uint64 `json:"sends_failed" help:"Sends that have completed in error." unit:"descriptors"`
	ReceivesPosted    uint64 `json:"receives_posted" help:"Receives that were posted." unit:"descriptors"`
	ReceivesCompleted uint64 `json:"receives_completed" help:"Receives that have completed and were taken back." unit:"descriptors"`
	ReceivesFailed    uint64 `json:"receives_failed" help:"Receives that have completed in error." unit:"descriptors"`
}

// Stats returns the counters, also on a device that has failed. It fails with ErrClosed once
// the VI or its NIC is closed.
func (v *VI) Stats() (s VIStats, err error) {
	err = v.n.doAny(v.n.background, "read counters of VI", func() error {
		return v.leaving.unless(v.n, func() error {
			s.SendsPosted, s.SendsCompleted, s.SendsFailed = v.send.counts()
			s.ReceivesPosted, s.ReceivesCompleted, s.ReceivesFailed = v.recv.counts()
			return nil
		})
	})
	return s, err
}

// counts returns how many descriptors were posted, were taken back, and completed in error.
func (q *workQueue) counts() (posted, completed, failed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	posted = widened(q.halves, q.next)
	return posted, posted - uint64(q.next-q.taken), q.failed
}

// widened is a count of descriptors whose low half is index. halves counts the multiples of 2^31
// that it has passed, and may lag behind by one.
func widened(halves, index uint32) uint64 {
	if halves&1 != index>>31 {
		halves++
	}
	return uint64(halves>>1)<<32 | uint64(index)
}

// CQStats has the counters of a completion queue since it was made.
type CQStats struct {
	Entries  uint64 `json:"entries" help:"Completion entries that were read." unit:"entries"`
	Capacity uint64 `json:"capacity" help:"Completion entries that the queue has room for." unit:"entries" kind:"gauge"`
	Promised uint64 `json:"promised" help:"Completion entries that the attached work queues may need." unit:"entries" kind:"gauge"`
}

// Stats returns the counters, also on a device that has failed. It fails with ErrClosed once
// the CQ or its NIC is closed.
func (c *CQ) Stats() (s CQStats, err error) {
	err = c.n.doAny(c.n.background, "read counters of CQ", func() error {
		return c.leaving.unless(c.n, func() error {
			c.mu.Lock()
			s.Entries = c.read
			c.mu.Unlock()
			c.n.mu.Lock()
			defer c.n.mu.Unlock()
			s.Capacity, s.Promised = uint64(c.entries), uint64(c.promised)
			return nil
		})
	})
	return s, err
}

// ChannelLevels say how full the FIFOs of a device's channels are (SPEC.md 2.12). The highest
// ones are those since the device was reset. Counters has what was sent, received and dropped.
type ChannelLevels struct {
	Channels int // there are, connected or not
	// Transmit is the number of messages that wait or are being sent, to all stations, by priority.
	Transmit, TransmitHighest [datasheet.ChannelPriorities]int
	// Receive is the number of cells in the receive FIFO, which holds ReceiveSize.
	Receive, ReceiveHighest, ReceiveSize int
	StoppedBy                            int // stations that have told the device to stop sending cells
	Stopped                              int // stations that the device has told so
}

// ChannelLevels reads how full the FIFOs of channels are. The device goes on meanwhile: the
// fields are of moments that follow each other. It fails with ErrNotSupported if the device
// does not say.
func (n *NIC) ChannelLevels() (l ChannelLevels, err error) {
	const high, low = datasheet.PriorityHigh, datasheet.PriorityLow
	err = n.inBlock("read levels of channels", datasheet.BlockChannels, func() error {
		for _, r := range []struct {
			reg uint64
			to  *int
		}{
			{datasheet.RegChannels, &l.Channels},
			{datasheet.RegTransmitHigh, &l.Transmit[high]}, {datasheet.RegTransmitHighHighest, &l.TransmitHighest[high]},
			{datasheet.RegTransmitLow, &l.Transmit[low]}, {datasheet.RegTransmitLowHighest, &l.TransmitHighest[low]},
			{datasheet.RegReceiveLevel, &l.Receive}, {datasheet.RegReceiveHighest, &l.ReceiveHighest}, {datasheet.RegReceiveSize, &l.ReceiveSize},
			{datasheet.RegStoppedBy, &l.StoppedBy}, {datasheet.RegStopped, &l.Stopped},
		} {
			v, err := n.regs.read(n.background, datasheet.BlockChannels, r.reg)
			if err != nil {
				return err
			}
			*r.to = int(v)
		}
		return nil
	})
	return l, err
}

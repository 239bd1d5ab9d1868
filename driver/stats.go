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
	EagerLanded         uint64 `json:"eager_landed" help:"Blocks of eager memory in which a message has landed." unit:"blocks"`
	EagerWrittenBack    uint64 `json:"eager_written_back" help:"Blocks in which messages land, or parts of them, that were written to host memory." unit:"blocks"`
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

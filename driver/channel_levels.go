package driver

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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

package driver

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// ChannelLevels say how full the FIFOs of a device's channels are (SPEC.md 2.12), and what was counted. The highest
// levels are those since the device was reset.
type ChannelLevels = telemetry.Channels

// ChannelLevels reads how full the FIFOs of channels are. The device goes on meanwhile: the
// fields are of moments that follow each other. It fails with ErrNotSupported if the device
// does not say.
func (n *NIC) ChannelLevels() (l ChannelLevels, err error) {
	err = n.inBlock("read levels of channels", datasheet.BlockChannels, func() error {
		for _, r := range []struct {
			reg uint64
			to  *int
		}{
			{datasheet.RegChannels, &l.Open},
			{datasheet.RegTransmitHigh, &l.High.Level}, {datasheet.RegTransmitHighHighest, &l.High.Highest},
			{datasheet.RegTransmitLow, &l.Low.Level}, {datasheet.RegTransmitLowHighest, &l.Low.Highest},
			{datasheet.RegReceiveLevel, &l.Receive.Level}, {datasheet.RegReceiveHighest, &l.Receive.Highest}, {datasheet.RegReceiveSize, &l.ReceiveRoom},
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
	if err != nil {
		return l, err
	}
	s, err := n.Stats()
	l.Stops, l.StopsTaken, l.CellsSent, l.CellsArrived, l.Drops = s.ChannelStops, s.StopsTaken, s.CellsSent, s.CellsReceived, s.CellsDropped
	return l, err
}

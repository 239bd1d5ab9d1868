package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// infoChannels is how full the FIFOs of a NIC's channels are, and were at most since it was
// reset, and what it has counted of cells.
type infoChannels struct {
	Open         int      `json:"open"`
	High         infoFIFO `json:"high" help:"messages to send"`
	Low          infoFIFO `json:"low" help:"messages to send"`
	Receive      infoFIFO `json:"receive" help:"cells to store"`
	ReceiveRoom  int      `json:"receive_cells" help:"room for"`
	Stopped      int      `json:"stopped" help:"stations that the NIC has told to stop"`
	StoppedBy    int      `json:"stopped_by" help:"stations that have told it so"`
	Stops        uint64   `json:"stops" help:"times"`
	StopsTaken   uint64   `json:"stops_taken" help:"times"`
	CellsSent    uint64   `json:"cells_sent"`
	CellsArrived uint64   `json:"cells_received"`
	Drops        uint64   `json:"drops"`
}

// infoFIFO is a FIFO.
type infoFIFO struct {
	Level   int `json:"level"`
	Highest int `json:"highest"`
}

// inspectChannels returns nil for a device that is too old to say.
func inspectChannels(nic *driver.NIC) (*infoChannels, error) {
	l, err := nic.ChannelLevels()
	if errors.Is(err, driver.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	counters, err := nic.Counters()
	count := func(c descriptors.Counter) uint64 { return counters[c.String()] }
	return &infoChannels{
		Open:    l.Channels,
		High:    infoFIFO{l.Transmit[descriptors.PriorityHigh], l.TransmitHighest[descriptors.PriorityHigh]},
		Low:     infoFIFO{l.Transmit[descriptors.PriorityLow], l.TransmitHighest[descriptors.PriorityLow]},
		Receive: infoFIFO{l.Receive, l.ReceiveHighest}, ReceiveRoom: l.ReceiveSize,
		Stopped: l.Stopped, StoppedBy: l.StoppedBy,
		Stops: count(descriptors.CounterChannelStops), StopsTaken: count(descriptors.CounterStopsTaken),
		CellsSent: count(descriptors.CounterCellsSent), CellsArrived: count(descriptors.CounterCellsReceived),
		Drops: count(descriptors.CounterCellsDropped),
	}, err
}

// used reports whether the NIC has or had channels since it was reset.
func (c *infoChannels) used() bool { return c != nil && *c != infoChannels{ReceiveRoom: c.ReceiveRoom} }

// lines are what a person is told, a line each.
func (c *infoChannels) lines() []string {
	stopped := ""
	if c.Stopped+c.StoppedBy > 0 {
		stopped = fmt.Sprintf("; now %d stations are told to stop, and %d have told this one", c.Stopped, c.StoppedBy)
	}
	return []string{
		fmt.Sprintf("%d open; to send: %d high (at most %d), %d low (at most %d); received: %d of %d cells (at most %d)",
			c.Open, c.High.Level, c.High.Highest, c.Low.Level, c.Low.Highest, c.Receive.Level, c.ReceiveRoom, c.Receive.Highest),
		fmt.Sprintf("%d cells sent, %d received, %d dropped; stop said %d times, heard %d times%s",
			c.CellsSent, c.CellsArrived, c.Drops, c.Stops, c.StopsTaken, stopped),
	}
}

// printNIC has the lines below those of another report, if there is anything to say.
func (c *infoChannels) printNIC(w io.Writer) (err error) {
	if c.used() {
		for _, line := range c.lines() {
			_, err = fmt.Fprintf(w, "NIC: %s\n", line)
		}
	}
	return err
}

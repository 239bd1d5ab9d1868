package channel

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Levels say how full the FIFOs of channels are (SPEC.md 2.12). The highest ones are those
// since Reset.
type Levels struct {
	Channels int // endpoints of that kind
	// Transmit is how many messages have been taken and have not ended, by priority.
	Transmit, TransmitHighest [datasheet.ChannelPriorities]int
	// Receive is how many cells are in the receive FIFO, which holds ReceiveSize.
	Receive, ReceiveHighest, ReceiveSize int
	StoppedBy                            int // peer stations that have said stop
	Stopped                              int // peer stations that were told to stop
}

// posted counts a message that was taken.
func (l *Levels) posted(p datasheet.ChannelPriority) {
	l.Transmit[p]++
	l.TransmitHighest[p] = max(l.TransmitHighest[p], l.Transmit[p])
}

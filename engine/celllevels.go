package engine

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// CellLevels say how full the FIFOs of channels are (SPEC.md 2.12). The highest ones are those
// since Reset.
type CellLevels struct {
	Channels int // endpoints of that kind
	// Transmit is how many messages have been taken and have not ended, by priority.
	Transmit, TransmitHighest [datasheet.ChannelPriorities]int
	// Receive is how many cells are in the receive FIFO, which holds ReceiveSize.
	Receive, ReceiveHighest, ReceiveSize int
	StoppedBy                            int // peer stations that have said stop
	Stopped                              int // peer stations that were told to stop
}

// posted counts a message that was taken.
func (l *CellLevels) posted(p datasheet.ChannelPriority) {
	l.Transmit[p]++
	l.TransmitHighest[p] = max(l.TransmitHighest[p], l.Transmit[p])
}

// Cells says how cells cross the NIC. Zero values mean the defaults, which keep what an
// urgent cell may meet in front of it short.
type Cells struct {
	// FIFO is how many cells the receive FIFO holds: 1024.
	FIFO int
	// Stop is how many may be in it before peers are told to stop: 128; Start is at how
	// many they may go on: 32.
	Stop, Start int
	// PerFrame is how many cells a frame has at most: 16.
	PerFrame int
	// NeverStop has no peer told to stop: what finds the FIFO full is dropped.
	NeverStop bool
}

func (c *Cells) setDefaults() {
	for _, d := range []struct {
		value     *int
		otherwise int
	}{{&c.FIFO, 1024}, {&c.Stop, 128}, {&c.Start, 32}, {&c.PerFrame, 16}} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
}

func (c *Cells) validate() error {
	if c.FIFO < 1 || c.PerFrame < 1 || c.Start < 1 || c.Stop < c.Start || c.Stop >= c.FIFO {
		return fmt.Errorf("%w: Cells %+v: 1 <= Start <= Stop < FIFO, PerFrame >= 1", ErrConfig, *c)
	}
	return nil
}

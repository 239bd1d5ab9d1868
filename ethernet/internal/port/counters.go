package port

import "github.com/trapeze-nic/trapeze/ethernet"

// Counters are those of ethernet.QueueStats. The ring's lock guards writing; Port.Mu guards that
// of Restarts, and Wait alone writes Interrupts.
type Counters struct {
	ReceivedFrames, ReceivedBytes, SentFrames, SentBytes ethernet.Counter
	ReceiveErrors, BadLengths, Unended, NoBuffers        ethernet.Counter
	Lost, Restarts, Interrupts                           ethernet.Counter
}

func (c *Counters) read() ethernet.QueueStats {
	return ethernet.QueueStats{
		ReceivedFrames: c.ReceivedFrames.Load(), ReceivedBytes: c.ReceivedBytes.Load(),
		SentFrames: c.SentFrames.Load(), SentBytes: c.SentBytes.Load(),
		ReceiveErrors: c.ReceiveErrors.Load(), BadLengths: c.BadLengths.Load(), Unended: c.Unended.Load(),
		NoBuffers: c.NoBuffers.Load(), Lost: c.Lost.Load(), Restarts: c.Restarts.Load(), Interrupts: c.Interrupts.Load(),
	}
}

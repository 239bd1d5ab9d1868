package afxdp

import "github.com/trapeze-nic/trapeze/ethernet"

// counters are what a queue counts. Who holds its lock writes, but for interrupts.
type counters struct {
	receivedFrames, receivedBytes, sentFrames, sentBytes ethernet.Counter
	badLengths, unended, noBuffers, lost, restarts       ethernet.Counter
	interrupts                                           ethernet.Counter
}

func (c *counters) read() ethernet.QueueCounters {
	return ethernet.QueueCounters{
		ReceivedFrames: c.receivedFrames.Load(), ReceivedBytes: c.receivedBytes.Load(),
		SentFrames: c.sentFrames.Load(), SentBytes: c.sentBytes.Load(),
		BadLengths: c.badLengths.Load(), Unended: c.unended.Load(), NoBuffers: c.noBuffers.Load(),
		Lost: c.lost.Load(), Restarts: c.restarts.Load(), Interrupts: c.interrupts.Load(),
	}
}

package vfiouser

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// Messages counts messages by command.
type Messages map[protocol.Command]uint64

// Total is the number of messages.
func (m Messages) Total() uint64 {
	var n uint64
	for _, v := range m {
		n += v
	}
	return n
}

// messageCounters counts commands; those that the protocol does not have count
// as command 0.
type messageCounters [protocol.Commands]atomic.Uint64

func (c *messageCounters) add(command protocol.Command) {
	if !command.Known() {
		command = 0
	}
	c[command].Add(1)
}

// snapshot lists the commands that have been counted.
func (c *messageCounters) snapshot() Messages {
	m := Messages{}
	for i := range c {
		if n := c[i].Load(); n > 0 {
			m[protocol.Command(i)] = n
		}
	}
	return m
}

// ServerStats counts the work of a server so far.
type ServerStats struct {
	// Messages that clients have sent, bad ones included.
	Messages Messages
	// Errors counts those that were answered with an error, or would have
	// been if they wanted an answer.
	Errors uint64
	// Clients that have had the device, and that were Refused.
	Clients, Refused uint64
	// Ranges and Files of DMA memory that are mapped now.
	Ranges, Files int
}

type serverCounters struct {
	messages         messageCounters
	errors           atomic.Uint64
	clients, refused atomic.Uint64
	ranges, files    atomic.Int64
}

// Stats returns what the server has done so far. It may be called at any time.
func (s *Server) Stats() ServerStats {
	c := &s.stats
	return ServerStats{Messages: c.messages.snapshot(), Errors: c.errors.Load(),
		Clients: c.clients.Load(), Refused: c.refused.Load(),
		Ranges: int(c.ranges.Load()), Files: int(c.files.Load())}
}

package agent

import (
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/wire"
)

// client is a NIC that a program has from the agent.
type client struct {
	nic     *nic
	grant   *Grant
	mac     datasheet.MAC
	vis     uint32
	memory  uint64 // bytes that it may register; 0: no limit
	who     *identity
	program string
	conn    *agentlink.Conn
	port    *wire.SHM
	said    chan said // what the program is still to be told

	frames, bytes, reached, dropped, lost, forged, refused, slowed atomic.Uint64

	// Those of the goroutine that passes frames on.
	deficit int  // bytes that it may still send in this round; negative after a frame to many
	pending bool // its turn goes on
	slow    bool
	due     time.Time // from then on its rate allows the next frame
	claims  claims    // of frames that wait for it
}

// said is a message with a descriptor.
type said struct {
	m  agentlink.Message
	fd int
}

// headSize is the size of the part of a frame that is checked, in bytes: our wire header, and the body of one that connects.
const headSize = datasheet.HeaderSize + datasheet.ConnectBodySize

// may reports whether a frame, of which h is a copy of the beginning, is one that the client may send.
func (c *client) may(h []byte) bool {
	switch {
	case len(h) < datasheet.EthernetHeaderSize:
		c.refused.Add(1)
		return false
	case datasheet.MAC(h[6:]) != c.mac:
		c.forged.Add(1)
		return false
	case !c.grants(h):
		c.refused.Add(1)
		return false
	}
	return true
}

// grants reports whether the grant has what a frame is for.
func (c *client) grants(h []byte) bool {
	frame := datasheet.HeaderAt(h)
	if frame == nil || frame.EtherType != datasheet.EtherType {
		return c.grant.Frames
	}
	switch t := frame.Type; {
	case frame.SourceEndpoint > c.vis:
		return false
	case t == datasheet.FrameCells || t == datasheet.FrameCellStop || t == datasheet.FrameCellStart:
		return c.grant.Channels
	case t == datasheet.FrameConnectRequest || t == datasheet.FrameConnectAccept:
		body := datasheet.ConnectBodyAt(h[datasheet.HeaderSize:])
		if body == nil {
			return false
		}
		return (body.Kind != datasheet.KindRing || c.grant.Rings) && (body.Kind != datasheet.KindChannel || c.grant.Channels)
	}
	return true
}

// deliver gives the client a frame, unless it has no room for more of that sender: it does not hold up
// others. head, if there is any, replaces its beginning.
func (c *client) deliver(from *client, f, head []byte) {
	taken, size := c.port.Room()
	if size != 0 && !c.claims.admit(from, taken, size) {
		c.dropped.Add(1)
		return
	}
	b := c.port.Reserve(len(f))
	if b == nil {
		c.dropped.Add(1)
		return
	}
	copy(b, f)
	copy(b, head)
	c.port.Commit()
	if size != 0 {
		c.claims.add(from, len(f), c.port.Mark())
	}
	c.reached.Add(1)
}

// waits returns how long the rate keeps the client's next frame.
func (c *client) waits(now time.Time) time.Duration {
	wait := c.due.Sub(now)
	if wait > 0 && !c.slow {
		c.slowed.Add(1)
	}
	c.slow = wait > 0
	return wait
}

// spend takes note of n bytes that have left: the next ones are due when the rate has allowed these.
// A client that has been idle may send its saved share at once, two frames at least.
func (c *client) spend(now time.Time, n int) {
	rate := speed.Path{Rate: c.grant.Rate}
	if rate.Instant() {
		return
	}
	if earliest := now.Add(-max(rateBurst, rate.Takes(2*c.nic.mtu))); c.due.Before(earliest) {
		c.due = earliest
	}
	c.due = c.due.Add(rate.Takes(n))
}

// tell has the program told something. One that does not listen has to leave.
func (c *client) tell(m agentlink.Message, fd int) bool {
	select {
	case c.said <- said{m, fd}:
		return true
	default:
		return false
	}
}

// direct reports whether a client may share memory with another.
func (c *client) direct(d *client) bool {
	return c.mayShare(d, c.port.MTU())
}

// mayShare is direct for a client whose frames have up to mtu bytes.
func (c *client) mayShare(d *client, mtu int) bool {
	return c != d && c.grant.Direct && d.grant.Direct && mtu == d.port.MTU()
}

func (c *client) report(all []*client) agentlink.Client {
	direct := 0
	for _, d := range all {
		if c.direct(d) {
			direct++
		}
	}
	return agentlink.Client{NIC: c.nic.Name, Station: c.mac.String(), PID: c.who.pid, UID: c.who.uid, Program: c.program,
		Grant: c.grant.Name, VIs: c.vis, Direct: direct, ClientStats: c.stats()}
}

package agent

import (
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/wire"
)

// client is a NIC that a program has from the agent.
type client struct {
	nic     *nic
	grant   *Grant
	mac     descriptors.MAC
	vis     uint32
	memory  uint64 // bytes that it may register; 0: no limit
	who     *identity
	program string
	conn    *agentlink.Conn
	port    *wire.SHM
	said    chan said // what the program is still to be told

	frames, bytes, reached, dropped, lost, forged, refused, slowed atomic.Uint64

	// Those of the goroutine that passes frames on.
	deficit int  // bytes that it may still send in this round
	pending bool // its turn goes on
	slow    bool
	credit  int64 // bytes that its rate allows now
	at      time.Time
}

// said is a message with a descriptor.
type said struct {
	m  agentlink.Message
	fd int
}

// headSize is the size of the part of a frame that is checked, in bytes: our wire header, and the body of one that connects.
const headSize = descriptors.HeaderSize + descriptors.ConnectBodySize

// may reports whether a frame, of which h is a copy of the beginning, is one that the client may send.
func (c *client) may(h []byte) bool {
	switch {
	case len(h) < descriptors.EthernetHeaderSize:
		c.refused.Add(1)
		return false
	case descriptors.MAC(h[6:]) != c.mac:
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
	frame := descriptors.HeaderAt(h)
	if frame == nil || frame.EtherType != descriptors.EtherType {
		return c.grant.Frames
	}
	switch t := frame.Type; {
	case frame.SourceEndpoint > c.vis:
		return false
	case t == descriptors.FrameCells || t == descriptors.FrameCellStop || t == descriptors.FrameCellStart:
		return c.grant.Channels
	case t == descriptors.FrameConnectRequest || t == descriptors.FrameConnectAccept:
		body := descriptors.ConnectBodyAt(h[descriptors.HeaderSize:])
		if body == nil {
			return false
		}
		return (body.Kind != descriptors.KindRing || c.grant.Rings) && (body.Kind != descriptors.KindChannel || c.grant.Channels)
	}
	return true
}

// deliver gives the client a frame, unless it has no room: it does not hold up others. head, if
// there is any, replaces its beginning.
func (c *client) deliver(f, head []byte) {
	b := c.port.Reserve(len(f))
	if b == nil {
		c.dropped.Add(1)
		return
	}
	copy(b, f)
	copy(b, head)
	c.port.Commit()
	c.reached.Add(1)
}

// earn adds what the rate has allowed since the last time.
func (c *client) earn(now time.Time) {
	rate := c.grant.Rate
	if rate == 0 {
		return
	}
	if most := max(rate*int64(rateBurst)/int64(time.Second), 2*int64(c.nic.mtu)); c.at.IsZero() || now.Sub(c.at) > time.Second {
		c.credit = most
	} else {
		c.credit = min(most, c.credit+rate*int64(now.Sub(c.at))/int64(time.Second))
	}
	c.at = now
}

// owes returns how long the client has to wait before its next frame.
func (c *client) owes() time.Duration {
	if c.grant.Rate == 0 || c.credit > 0 {
		c.slow = false
		return 0
	}
	if !c.slow {
		c.slow = true
		c.slowed.Add(1)
	}
	return max(time.Duration(-c.credit*int64(time.Second)/c.grant.Rate), time.Microsecond)
}

func (c *client) spend(n int) {
	if c.grant.Rate != 0 {
		c.credit -= int64(n)
	}
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
	return c != d && c.grant.Direct && d.grant.Direct && c.port.MTU() == d.port.MTU()
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

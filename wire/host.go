package wire

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// HostOptions are the choices of NewHost. The name is needed.
type HostOptions struct {
	// Name of the wire, 1 to 32 letters, digits, dots, dashes and underscores. It is this user's:
	// processes of other users have other wires of that name.
	Name string
	// MTU is the largest frame in bytes; as that of a shm wire if zero.
	MTU int
}

// HostStats says what has happened to a port.
type HostStats struct {
	Members uint64 `json:"members" help:"Ports that this one has memory in common with." kind:"gauge" unit:"ports"`
	Joined  uint64 `json:"joined" help:"Times that another port came." unit:"ports"`
	Left    uint64 `json:"left" help:"Times that another port went." unit:"ports"`
	Refused uint64 `json:"refused" help:"Processes that connected and broke the rules." unit:"processes"`
	Dropped uint64 `json:"dropped" help:"Frames that were lost: to no port, or to one that took none." unit:"frames"`
	Copied  uint64 `json:"copied" help:"Frames that were copied, since the frame before went to another port." unit:"frames"`
	Forged  uint64 `json:"forged" help:"Frames that said that they come from another port than they did, and were dropped." unit:"frames"`
}

// hostTries is how many calls of Reserve find no room, in a row, until a frame is made room for
// elsewhere: it may go to another port. A peer that polls has taken some frames by then.
const hostTries = 64

// host is a port of a wire that the processes of a host share.
type host struct {
	options HostOptions
	mtu     int

	// The data path's: one goroutine's at a time.
	scratch  []byte      // for a frame of which it is not known where it goes
	to       *hostMember // in whose memory the reserved frame is; nil: in scratch
	station  datasheet.MAC
	table    *[]*hostMember // as members was when frames to station went to "to"
	reserved []byte
	full     int         // calls of Reserve in a row without room
	held     *hostMember // whose frame Receive has returned
	turn     int         // of the members, to be asked for frames

	members atomic.Pointer[[]*hostMember]
	down    atomic.Bool // the plug is out, or the port is closed

	wake Hook
	link Hook

	joined, left, refused, dropped, copied, forged atomic.Uint64

	// join has the port meet the others, and returns what ends that.
	join     func(mac datasheet.MAC) (leave func() error, err error)
	checksum bool

	ctx     context.Context // over when the port is closed
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // of changes
	closed bool
	leave  func() error // nil until Claim
}

// hostMember is another port, or this one itself, and the memory on the way to it.
type hostMember struct {
	mac   datasheet.MAC
	wire  Port
	parts engine.Progressive // wire, if frames may come in parts
	leave func()             // has the other process know that this port is gone
	// many says that all stations without a member of their own are behind this one.
	many bool
	self bool // frames to it come back to this port
}

// NewHost makes one end of a wire that all processes of a user on this host can share. Each two of
// its ports have shared memory between them, as a shm wire; a frame goes to the port that its
// address names. A port that takes no frames loses them, so that it does not stop those to others.
// The port is a [Claimer], and joins the others with Claim; its [Stats] are [HostStats]. It fails
// with ErrOptions.
func NewHost(o HostOptions) (Port, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.MTU == 0 {
		o.MTU = shm.DefaultMTU
	}
	p := newHost(o)
	p.join = p.meetOthers
	return p, nil
}

func newHost(o HostOptions) *host {
	p := &host{options: o, mtu: o.MTU, scratch: alignedBytes(o.MTU)}
	p.members.Store(new([]*hostMember))
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// MTU returns the largest frame in bytes.
func (p *host) MTU() int { return p.mtu }

// Checksum returns false unless frames go on to a NIC: memory does not damage them.
func (p *host) Checksum() bool { return p.checksum }

// Reserve is described at engine.Port. The frame is written into the memory of the port to
// which the last one went: most go there too.
func (p *host) Reserve(n int) []byte {
	p.reserved = nil
	if uint(n) > uint(p.mtu) {
		return nil
	}
	if p.to != nil {
		if p.reserved = p.to.wire.Reserve(n); p.reserved != nil {
			p.full = 0
			return p.reserved
		}
		if p.full++; p.full < hostTries {
			return nil
		}
		p.full, p.to = 0, nil
	}
	p.reserved = p.scratch[:n]
	return p.reserved
}

// Commit is described at engine.Port.
func (p *host) Commit() {
	frame := p.reserved
	p.reserved = nil
	if len(frame) < ethernetHeader || p.down.Load() {
		return
	}
	to, members := datasheet.MAC(frame), p.members.Load()
	if p.to != nil && p.station == to && p.table == members {
		p.to.wire.Commit()
		return
	}
	// The frame may stand where a copy for the same port would go.
	if p.to != nil {
		frame = p.scratch[:copy(p.scratch, frame)]
	}
	sent, known, uplink := false, false, (*hostMember)(nil)
	for _, m := range *members {
		if m.many {
			uplink = m
		}
		known = known || m.mac == to
	}
	for _, m := range *members {
		// What is behind an uplink sees to it that a frame to a group gets to the others.
		if m.mac == to || m.many && !known || to.IsMulticast() && (uplink == nil || m.many || m.self) {
			sent = p.copyTo(m, frame) || sent
		}
	}
	if p.station, p.table = to, members; to.IsMulticast() {
		p.table = nil // the next one goes to all too
	}
	if !sent {
		p.dropped.Add(1)
	}
}

// copyTo sends a frame to a member, and reports whether that had room.
func (p *host) copyTo(m *hostMember, frame []byte) bool {
	b := m.wire.Reserve(len(frame))
	if b == nil {
		return false
	}
	copy(b, frame)
	m.wire.Commit()
	p.to = m
	p.copied.Add(1)
	return true
}

// Flush is described at engine.Port.
func (p *host) Flush() {
	for _, m := range *p.members.Load() {
		m.wire.Flush()
	}
}

// Receive is described at engine.Port. Ports take turns.
func (p *host) Receive() []byte {
	if p.held != nil {
		return receiveWhole(p.held.wire, p.held.parts)
	}
	members := *p.members.Load()
	for range members {
		if p.turn++; p.turn >= len(members) {
			p.turn = 0
		}
		m := members[p.turn]
		f := receiveWhole(m.wire, m.parts)
		if f != nil && p.down.Load() {
			m.wire.Release()
			continue
		}
		if f != nil && !m.many && (len(f) < ethernetHeader || datasheet.MAC(f[6:]) != m.mac) {
			p.forged.Add(1)
			m.wire.Release()
			continue
		}
		if f != nil {
			p.held = m
			return f
		}
	}
	return nil
}

// Release is described at engine.Port.
func (p *host) Release() {
	if p.held != nil {
		p.held.wire.Release()
		p.held = nil
	}
}

// LinkUp reports whether this end is plugged in: others may come at any time.
func (p *host) LinkUp() bool { return !p.down.Load() }

// SetWake is described at Port.
func (p *host) SetWake(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake.Set(f)
	for _, m := range *p.members.Load() {
		p.wakeWith(m)
	}
}

// wakeWith has frames of a member wake the owner of this port, if that wants to be woken.
func (p *host) wakeWith(m *hostMember) {
	if p.wake.IsSet() {
		m.wire.SetWake(p.wake.Call)
	} else {
		m.wire.SetWake(nil)
	}
}

// OnLink is described at Port.
func (p *host) OnLink(f func()) { p.link.Set(f) }

// SetLink is described at Port.
func (p *host) SetLink(up bool) {
	p.mu.Lock()
	p.down.Store(!up || p.closed)
	p.mu.Unlock()
	p.link.Call()
	p.wake.Call()
}

// Stats may be called from any goroutine.
func (p *host) Stats() HostStats {
	return HostStats{Members: uint64(len(*p.members.Load())), Joined: p.joined.Load(), Left: p.left.Load(),
		Refused: p.refused.Load(), Dropped: p.dropped.Load(), Copied: p.copied.Load(), Forged: p.forged.Load()}
}

// Close leaves the wire.
func (p *host) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.down.Store(true)
	members, leave := *p.members.Swap(new([]*hostMember)), p.leave
	p.mu.Unlock()
	p.wake.Set(nil)
	p.link.Set(nil)
	p.cancel()
	var err error
	if leave != nil {
		err = leave()
	}
	for _, m := range members {
		m.leave()
		err = errors.Join(err, m.wire.Close())
	}
	p.running.Wait()
	return err
}

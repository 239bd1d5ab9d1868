package wire

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
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

// hostMeets bounds the time for which connections to a station wait until memory is shared with it.
const hostMeets = 200 * time.Millisecond

// host is a port of a wire that the processes of a host share.
type host struct {
	ends.Base // frames that go on to a NIC may be damaged there
	options   HostOptions

	// The data path's: one goroutine's at a time.
	scratch  []byte                        // for a frame of which it is not known where it goes.
	station  datasheet.MAC                 // that SetDestination has selected
	to       *hostMember                   // in whose memory the next frame is reserved; nil: in scratch
	table    *[]*hostMember                // as members was then
	stations map[datasheet.MAC]*hostMember // of table
	uplink   *hostMember                   // of table, nil if there is none
	reserved []byte
	begun    []*hostMember // have frames that were not flushed
	looks    hostLooks

	members atomic.Pointer[[]*hostMember]
	pulled  atomic.Bool // the plug is out
	down    atomic.Bool // that, or the port is closed

	marks *shm.Marks // of other ports at this one; nil: there are none

	joined, left, refused, dropped, copied, forged atomic.Uint64

	// join has the port meet the others, and returns what ends that.
	join func(mac datasheet.MAC) (leave func() error, err error)

	ctx     context.Context // over when the port is closed
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // of changes
	closed  bool
	leave   func() error // nil until Claim
	meeting map[datasheet.MAC]time.Time
}

// hostMember is another port, or this one itself, and the memory on the way to it.
type hostMember struct {
	engine.Lossless // wire, nil if others are behind it
	host            *host
	mac             datasheet.MAC
	wire            Port
	parts           engine.Progressive // wire, if frames may come in parts
	shared          *shm.Port          // wire, if it is one
	mark            int                // at which the other port marks itself; negative: there is none
	// many says that all stations without a member of their own are behind this one.
	many bool
	self bool // frames to it come back to this port

	// drained is closed by the data path once it has all frames of a port that has gone.
	drained chan struct{}

	// The data path's.
	number    uint32 // of the wire, as it was last
	begun     bool   // has frames that were not flushed
	looked    bool   // is looked at
	held      bool   // Receive has returned a frame of it.
	over      bool   // it has gone
	idleLooks int    // looks in vain, in a row
}

// Wire of a port that has gone ends with its last frame, which may say why.
func (m *hostMember) Wire() uint32 {
	now := m.Lossless.Wire()
	if now == 0 && m.number != 0 && (m.held || m.shared != nil && m.shared.Left()) {
		return m.number
	}
	m.number = now
	return now
}

func (m *hostMember) Put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (mark uint32, ok bool) {
	if m.host.pulled.Load() {
		return 0, false
	}
	mark, ok = m.Lossless.Put(header, b, payload, last)
	m.sent(ok, last)
	return mark, ok
}

func (m *hostMember) PutPair(header uint64, b datasheet.ShortBeside, first, second []byte, last bool) (mark uint32, ok bool) {
	if m.host.pulled.Load() {
		return 0, false
	}
	mark, ok = m.Lossless.PutPair(header, b, first, second, last)
	m.sent(ok, last)
	return mark, ok
}

// sent notes that a frame was sent, which the other port may not see yet.
func (m *hostMember) sent(ok, shown bool) {
	switch {
	case !ok:
	case !shown:
		m.host.begin(m)
	case !m.looked:
		m.host.look(m) // it will say what it has taken
	default:
		m.idleLooks = 0
	}
}

// NewHost makes one end of a wire that all processes of a user on this host can share. Each two of
// its ports have shared memory between them, as a shm wire; a frame goes to the port that its
// address names. Frames to a port that takes none wait, and do not stop those to others, if
// engine.Peers has said where they go; else they are lost.
// The port is a [Claimer], and joins the others with Claim; its [Stats] are [HostStats]. It fails
// with ErrOptions.
func NewHost(o HostOptions) (Port, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.MTU = cmp.Or(o.MTU, shm.DefaultMTU)
	p := newHost(o)
	p.join = p.meetOthers
	return p, nil
}

func newHost(o HostOptions) *host {
	p := &host{Base: ends.Base{Longest: o.MTU}, options: o, scratch: line.Aligned(o.MTU), meeting: map[datasheet.MAC]time.Time{}}
	p.marks, _ = shm.NewMarks() // without, all are looked at
	p.members.Store(new([]*hostMember))
	p.looks.known = new([]*hostMember)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *host) SetDestination(station datasheet.MAC) {
	members := p.members.Load()
	if p.table == members && p.station == station {
		return
	}
	if p.table != members {
		p.table, p.uplink, p.stations = members, nil, map[datasheet.MAC]*hostMember{}
		for _, m := range *members {
			if m.many {
				p.uplink = m
			} else {
				p.stations[m.mac] = m
			}
		}
	}
	p.station, p.to = station, nil
	if !station.IsMulticast() {
		if p.to = p.stations[station]; p.to == nil {
			p.to = p.uplink
		}
	}
}

// Reserve gives memory where SetDestination has said; else the frame is copied, and is lost if there is no room.
func (p *host) Reserve(n int) []byte {
	p.reserved = nil
	switch {
	case uint(n) > uint(p.Longest) || p.pulled.Load():
	case p.to != nil:
		p.reserved = p.to.wire.Reserve(n)
	default:
		p.reserved = p.scratch[:n]
	}
	return p.reserved
}

func (p *host) Commit() {
	frame := p.reserved
	p.reserved = nil
	if len(frame) < ethernetHeader || p.down.Load() {
		return
	}
	to := datasheet.MAC(frame)
	if p.to != nil && p.station == to {
		p.commitTo(p.to)
		return
	}
	// The frame may stand where a copy for the same port would go.
	if p.to != nil {
		frame = p.scratch[:copy(p.scratch, frame)]
	}
	members := p.members.Load()
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
	if !sent {
		p.dropped.Add(1)
	}
}

// commitTo sends the frame that a member has reserved.
func (p *host) commitTo(m *hostMember) {
	m.wire.Commit()
	p.begin(m)
}

// begin notes that a member has frames that were not flushed.
func (p *host) begin(m *hostMember) {
	if !m.begun {
		m.begun = true
		p.begun = append(p.begun, m)
	}
}

// copyTo sends a frame to a member, and reports whether that had room.
func (p *host) copyTo(m *hostMember, frame []byte) bool {
	b := m.wire.Reserve(len(frame))
	if b == nil {
		return false
	}
	copy(b, frame)
	p.commitTo(m)
	p.copied.Add(1)
	return true
}

func (p *host) Flush() {
	for i, m := range p.begun {
		m.wire.Flush()
		m.begun, p.begun[i] = false, nil
		p.look(m) // it will say what it has taken
	}
	p.begun = p.begun[:0]
}

// LinkUp reports whether this end is plugged in: others may come at any time.
func (p *host) LinkUp() bool { return !p.down.Load() }

func (p *host) Peer(station datasheet.MAC) (way engine.Lossless, soon bool) {
	for _, m := range *p.members.Load() {
		if m.mac == station && m.Lossless != nil {
			return m, m.Wire() == 0 && p.meets(station)
		}
	}
	return nil, p.meets(station)
}

// meets reports whether a station is being met.
func (p *host) meets(station datasheet.MAC) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	began, ok := p.meeting[station]
	if ok && time.Since(began) > hostMeets {
		delete(p.meeting, station)
		return false
	}
	return ok
}

func (p *host) SetWake(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Wake.Set(f)
	for _, m := range *p.members.Load() {
		p.wakeWith(m)
	}
	p.looks.all.Store(true) // they do not mark themselves any more
}

// wakeWith has frames of a member wake the owner of this port, if that wants to be woken.
func (p *host) wakeWith(m *hostMember) {
	if p.Wake.IsSet() {
		m.wire.SetWake(p.Wake.Call)
	} else {
		m.wire.SetWake(nil)
	}
}

// SetLink pulls the plug or puts it in. While it is out frames wait.
func (p *host) SetLink(up bool) {
	p.mu.Lock()
	p.pulled.Store(!up)
	p.down.Store(!up || p.closed)
	p.mu.Unlock()
	p.Link.Call()
	p.Wake.Call()
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
	p.Wake.Set(nil)
	p.Link.Set(nil)
	p.cancel()
	var err error
	if leave != nil {
		err = leave()
	}
	for _, m := range members {
		err = errors.Join(err, m.wire.Close())
	}
	p.running.Wait()
	if p.marks != nil {
		p.marks.Close()
	}
	return err
}

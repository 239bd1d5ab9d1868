package wire

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// MaxSwitchPorts bounds the ports of a switch: it has a ring from each to each
// other.
const MaxSwitchPorts = 16

// SwitchOptions are the choices of NewSwitch. The zero value is good.
type SwitchOptions struct {
	MemoryOptions
	// Watchdog bounds the time that a sender may stall in the middle of a frame that has begun to
	// leave: 1 ms to 1 minute; half a second if zero.
	Watchdog time.Duration
}

// defaultWatchdog is a sixth of the time after which engines take a peer for dead: others still
// get through.
const defaultWatchdog = 500 * time.Millisecond

// switchPort is one port of a switch.
type switchPort struct {
	ends.Base
	fabric *fabric
	number int
	frame  []byte // reserved
	space  []byte
	tx     []line.Sender // to each port
	rx     []line.Receiver
	from   int // of rx: where the last frame came from, and the search goes on
	// source was heard at this port last, and table is the knowledge of that time: with both
	// the same there is nothing to learn.
	source datasheet.MAC
	table  *map[datasheet.MAC]place
	path   path
	output output
	counts switchCounts
	failed atomic.Pointer[PathError]
}

// fabric is the common state of a switch's ports.
type fabric struct {
	watchdog time.Duration
	ports    []*switchPort
	// up and open have a bit per port: plugged in, not closed.
	up, open atomic.Uint32
	mu       sync.Mutex // of writers of table
	table    atomic.Pointer[map[datasheet.MAC]place]
}

// place is where a station is.
type place struct {
	port    int
	claimed bool // it stays there, whatever comes from other ports
}

// NewSwitch makes an Ethernet switch in memory with n ports, 2 to MaxSwitchPorts. Frames go to the
// port that has claimed their destination, or else at which it was heard last, and to all others if
// it is not known or a group. What a station sends to itself comes back, if its port has claimed it
// (reflective relay, IEEE 802.1Qbg): programs that share a NIC reach each other so. No frame is dropped for want of room: a port whose ring is full holds
// its senders up, as Trapeze's fabric does. Ports may be used at the same time, each by one
// goroutine.
//
// A frame that comes in parts leaves while it still arrives (engine.Progressive) if its output is
// free. It holds the output until its end. Frames from other ports wait, and then have their turn
// one after the other. A watchdog ends a frame whose sender stalls: Broke of the output then says
// whose it was.
//
// A port has a [Claimer], and its [Stats] are [SwitchStats].
func NewSwitch(n int, o SwitchOptions) ([]Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	o.Watchdog = cmp.Or(o.Watchdog, defaultWatchdog)
	if o.Watchdog < time.Millisecond || o.Watchdog > time.Minute {
		return nil, fmt.Errorf("%w: a watchdog of %v is not in 1 ms to 1 minute", ErrOptions, o.Watchdog)
	}
	if n < 2 || n > MaxSwitchPorts {
		return nil, fmt.Errorf("%w: a switch of %d ports: it has 2..%d", ErrOptions, n, MaxSwitchPorts)
	}
	f := &fabric{watchdog: o.Watchdog}
	f.table.Store(&map[datasheet.MAC]place{})
	f.up.Store(1<<n - 1)
	f.open.Store(1<<n - 1)
	for i := range n {
		f.ports = append(f.ports, &switchPort{Base: ends.Base{Longest: o.MTU}, fabric: f, number: i, space: line.Aligned(o.MTU),
			tx: make([]line.Sender, n), rx: make([]line.Receiver, n)})
	}
	ports := make([]Port, n)
	for i, p := range f.ports {
		ports[i] = p
		for j, q := range f.ports {
			h := newHalf(o.Ring)
			p.tx[j].Half, q.rx[i] = h, line.NewReceiver(h, o.MTU)
		}
	}
	return ports, nil
}

// live returns the ports that carry frames, a bit each.
func (f *fabric) live() uint32 { return f.up.Load() & f.open.Load() }

// Reserve has room if there is some at every port, since where the frame goes is not known yet.
func (p *switchPort) Reserve(n int) []byte {
	p.Abort()
	if uint(n) > uint(len(p.space)) {
		return nil
	}
	live := p.fabric.live()
	for i := range p.tx {
		if live&(1<<i) != 0 && p.tx[i].Reserve(n) == nil {
			return nil
		}
	}
	p.frame = p.space[:n]
	return p.frame
}

func (p *switchPort) Commit() {
	frame := p.frame
	if frame == nil {
		return
	}
	if p.path.open {
		p.finish()
		return
	}
	p.frame = nil
	for to := range p.route(frame).all() {
		if b := p.tx[to].Reserve(len(frame)); b != nil {
			copy(b, frame)
			p.tx[to].Commit()
		}
	}
}

// route says to which ports a frame goes, of which at least the two addresses are there if it
// is long enough to have them.
func (p *switchPort) route(frame []byte) ports {
	live := p.fabric.live()
	if live&(1<<p.number) == 0 {
		return 0
	}
	targets := live &^ (1 << p.number)
	if len(frame) >= ethernetHeader {
		to, from := datasheet.MAC(frame), datasheet.MAC(frame[6:])
		p.learn(from)
		if at, ok := (*p.fabric.table.Load())[to]; ok && !to.IsMulticast() {
			if to == from && at.claimed && at.port == p.number {
				return ports(1 << p.number)
			}
			targets &= 1 << at.port
		}
	}
	return ports(targets)
}

// learn notes that a station is at this port, unless another has claimed it.
func (p *switchPort) learn(mac datasheet.MAC) {
	f := p.fabric
	if mac == p.source && p.table == f.table.Load() || mac.IsMulticast() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, known := (*f.table.Load())[mac]
	if known && at.port != p.number && !at.claimed || !known && len(*f.table.Load()) < maxStations {
		f.put(mac, place{port: p.number})
	}
	p.source, p.table = mac, f.table.Load()
}

// put changes the table. mu is held.
func (f *fabric) put(mac datasheet.MAC, at place) {
	table := maps.Clone(*f.table.Load())
	table[mac] = at
	f.table.Store(&table)
}

// Claim claims a station: frames from other ports do not move it, and it is known even if the table is
// full of others. The claim ends with Close.
func (p *switchPort) Claim(mac datasheet.MAC) error {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := (*f.table.Load())[mac]; ok && at.claimed && at.port != p.number {
		return fmt.Errorf("%w: station %v is at another port of the switch", ErrOptions, mac)
	}
	f.put(mac, place{p.number, true})
	return nil
}

// leave forgets the stations of a port.
func (p *switchPort) leave() {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	table := maps.Clone(*f.table.Load())
	maps.DeleteFunc(table, func(_ datasheet.MAC, at place) bool { return at.port == p.number })
	f.table.Store(&table)
}

func (p *switchPort) Flush() {
	for i := range p.tx {
		if p.tx[i].Flush() {
			p.wakes(i)
		}
	}
}

// wakes wakes a port for which there are news.
func (p *switchPort) wakes(to int) {
	line.Fence() // a port that goes to sleep has set its function, and looks once more
	p.fabric.ports[to].Wake.Call()
}

// Receive takes turns at the ports.
func (p *switchPort) Receive() []byte {
	down := p.fabric.live()&(1<<p.number) == 0
	if down {
		p.output = output{}
	}
	for range p.rx {
		r := &p.rx[p.from]
		if down {
			r.Discard()
		} else if b := r.Take(); b != nil {
			p.hold(r)
			return b
		}
		p.from = (p.from + 1) % len(p.rx)
	}
	return nil
}

func (p *switchPort) Release() {
	p.letGo()
	p.rx[p.from].Release()
	p.from = (p.from + 1) % len(p.rx)
}

// LinkUp reports whether this port and at least one other are plugged in.
func (p *switchPort) LinkUp() bool {
	live, me := p.fabric.live(), uint32(1)<<p.number
	return live&me != 0 && live&^me != 0
}

func (p *switchPort) SetLink(up bool) {
	if up {
		p.fabric.up.Or(1 << p.number)
	} else {
		p.fabric.up.And(^(uint32(1) << p.number))
	}
	p.tell()
}

func (p *switchPort) Close() error {
	p.fabric.open.And(^(uint32(1) << p.number))
	p.leave()
	p.SetWake(nil)
	p.OnLink(nil)
	p.tell()
	return nil
}

// tell lets every port see that a link has changed.
func (p *switchPort) tell() {
	for _, q := range p.fabric.ports {
		q.Wake.Call()
		q.Link.Call()
	}
}

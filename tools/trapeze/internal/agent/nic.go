package agent

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

const (
	// quantum bounds the bytes of a client of share 1 in a round: some frames of the largest
	// MTU that wires in memory have unless told otherwise.
	quantum = 64 << 10
	// frameCost is the cost of a frame beside its bytes: many small ones take as long as a large one.
	frameCost = 256
	// uplinkBurst bounds the frames from the port in a round.
	uplinkBurst = 64
	// spinLooks is the number of rounds without a frame before the agent sleeps: more than those
	// after which ports ask to be woken. yieldEvery of them give others the processor.
	spinLooks, yieldEvery = 600, 16
	// rest bounds a sleep, and portRest one while the port has no room.
	rest, portRest = 100 * time.Millisecond, time.Millisecond
	// localMTU is that of a NIC without a wire to elsewhere, as that of a shm wire.
	localMTU = datasheet.HeaderSize + 16<<10
	// rateBurst is the time for which a client with a rate may send at once.
	rateBurst = 2 * time.Millisecond
)

// nic is a NIC with the clients that share it. One goroutine passes their frames on.
type nic struct {
	NIC
	local    bool // clients have each other, and no more
	mac      datasheet.MAC
	mtu      int
	checksum bool

	port  atomic.Pointer[uplink] // nil: there is none, or it is lost
	table atomic.Pointer[table]
	wake  chan struct{}
	turns atomic.Uint64 // rounds so far: the watchdog looks whether it moves
	runs  atomic.Bool   // whether the goroutine is there

	received, unknown atomic.Uint64 // frames from the port, and those to no client

	mu sync.Mutex // of changes of table

	// The goroutine's.
	next int    // whose turn it is
	full bool   // the port has had no room in this round
	head []byte // a copy of the beginning of a frame
}

// table has the clients of a NIC. It is not changed: another one takes its place.
type table struct {
	list  []*client
	known map[datasheet.MAC]*client
}

// uplink is the port of a NIC.
type uplink struct{ wire.Port }

func newNIC(c NIC) *nic {
	n := &nic{NIC: c, mtu: localMTU, head: make([]byte, headSize), wake: make(chan struct{}, 1)}
	n.table.Store(&table{known: map[datasheet.MAC]*client{}})
	return n
}

// rouse wakes the goroutine if it sleeps.
func (n *nic) rouse() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// add lets a client in, whose station is no other's.
func (n *nic) add(c *client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.table.Load()
	now := &table{append(slices.Clone(old.list), c), maps.Clone(old.known)}
	now.known[c.mac] = c
	n.table.Store(now)
	n.rouse()
}

// remove makes a client leave.
func (n *nic) remove(c *client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.table.Load()
	if !slices.Contains(old.list, c) {
		return
	}
	now := &table{slices.DeleteFunc(slices.Clone(old.list), func(d *client) bool { return d == c }), maps.Clone(old.known)}
	delete(now.known, c.mac)
	n.table.Store(now)
	n.rouse()
}

// forgotten waits until the goroutine, if there is one, has no table from before. It reports whether that
// came soon.
func (n *nic) forgotten() bool {
	turn := n.turns.Load() + 2
	for end := time.Now().Add(time.Second); n.runs.Load() && n.turns.Load() < turn; time.Sleep(100 * time.Microsecond) {
		if n.rouse(); time.Now().After(end) {
			return false
		}
	}
	return true
}

// run passes frames on until ctx ends.
func (n *nic) run(ctx context.Context) {
	n.runs.Store(true)
	defer n.runs.Store(false)
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for idle := 0; ctx.Err() == nil; {
		busy, pause := n.round(time.Now())
		n.turns.Add(1)
		if busy {
			idle = 0
			continue
		}
		if idle++; idle < spinLooks {
			if idle%yieldEvery == 0 {
				runtime.Gosched()
			}
			continue
		}
		timer.Reset(pause)
		select {
		case <-n.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		idle = spinLooks / 2
	}
}

// round lets the port and each client have a turn. It reports whether a frame has passed, and for
// how long there may be nothing to do if not.
func (n *nic) round(now time.Time) (busy bool, pause time.Duration) {
	t, port := n.table.Load(), n.port.Load()
	pause = rest
	if port != nil {
		for range uplinkBurst {
			f := wire.ReceiveWhole(port.Port)
			if f == nil {
				break
			}
			busy = true
			n.arrived(t, f)
			port.Release()
		}
	}
	n.full = false
	first := -1 // that the port has had no room for: it goes on first
	for range t.list {
		if n.next++; n.next >= len(t.list) {
			n.next = 0
		}
		sent, wait := n.serve(t, port, t.list[n.next], now)
		busy = busy || sent
		if wait > 0 {
			pause = min(pause, wait)
		}
		if n.full && first < 0 {
			first = n.next
		}
	}
	if n.full {
		n.next, pause = first-1, min(pause, portRest)
	}
	for _, c := range t.list {
		c.port.Flush()
	}
	if port != nil {
		port.Flush()
	}
	return busy, pause
}

// serve passes on what a client may send in this round (deficit round robin, Shreedhar and
// Varghese 1995). wait is the time for which its rate keeps the next frame.
func (n *nic) serve(t *table, port *uplink, c *client, now time.Time) (sent bool, wait time.Duration) {
	if !c.pending {
		c.deficit += quantum * c.grant.Share
	}
	c.pending = false
	for {
		f := wire.ReceiveWhole(c.port)
		if f == nil {
			c.deficit = min(c.deficit, 0)
			return sent, 0
		}
		cost := len(f) + frameCost
		if cost > c.deficit {
			return true, 0
		}
		if wait := c.waits(now); wait > 0 {
			c.pending = true
			return sent, wait
		}
		copies, done := n.forward(t, port, c, f, now)
		if !done {
			c.pending = true
			return sent, 0
		}
		c.deficit -= cost * max(1, copies)
		c.port.Release()
		sent = true
	}
}

// arrived gives a frame from the port to the clients that it is for.
func (n *nic) arrived(t *table, f []byte) {
	n.received.Add(1)
	if len(f) < datasheet.EthernetHeaderSize {
		return
	}
	to := datasheet.MAC(f)
	if to.IsMulticast() {
		for _, c := range t.list {
			c.deliver(nil, f, nil)
		}
		return
	}
	c := t.known[to]
	if c == nil {
		n.unknown.Add(1)
		return
	}
	c.deliver(nil, f, nil)
}

// forward passes a client's frame on, and says how many clients it was copied for. It is not done if
// the port has no room. The client can change the frame meanwhile: a copy is checked, and that copy leaves.
func (n *nic) forward(t *table, port *uplink, c *client, f []byte, now time.Time) (copies int, done bool) {
	h := n.head[:copy(n.head, f)]
	if !c.may(h) {
		return 0, true
	}
	to := datasheet.MAC(h)
	other := t.known[to]
	if other == nil && port != nil && to != n.mac && !n.raise(port, f, h) {
		return 0, false
	}
	switch {
	case to.IsMulticast():
		for _, d := range t.list {
			if d != c {
				d.deliver(c, f, h)
			}
		}
		copies = len(t.list)
	case other != nil:
		other.deliver(c, f, h)
	case port == nil || to == n.mac:
		c.lost.Add(1)
	}
	c.frames.Add(1)
	c.bytes.Add(uint64(len(f)))
	c.spend(now, len(f))
	return copies, true
}

// raise gives the port a frame. It reports false if the port has no room now. Once it has had none,
// no client comes before the first that waits for it.
func (n *nic) raise(port *uplink, f, head []byte) bool {
	if n.full {
		return false
	}
	b := port.Reserve(len(f))
	if b == nil {
		n.full = port.LinkUp() && len(f) <= n.mtu
		return !n.full // else the frame is lost
	}
	copy(b, f)
	copy(b, head)
	port.Commit()
	return true
}

// state is one of those of agentlink.NIC.
func (n *nic) state() string {
	port := n.port.Load()
	switch {
	case n.local || port != nil && port.LinkUp():
		return agentlink.Up
	case port != nil:
		return agentlink.Down
	}
	return agentlink.Lost
}

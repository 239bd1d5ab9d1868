package sealed_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// parcel is a datagram under way.
type parcel struct {
	from, to netip.AddrPort
	bytes    []byte
}

// network carries datagrams between ends, in a time of its own. man, if there is
// one, gets each parcel and says what arrives instead.
type network struct {
	t    testing.TB
	now  time.Time
	ends map[netip.AddrPort]*end
	way  []parcel
	man  func(p parcel) []parcel
}

// end is a tunnel at an address, and the frames that it has delivered.
type end struct {
	net     *network
	address netip.AddrPort
	tunnel  *sealed.Tunnel
	sealer  *sealed.Sealer
	due     time.Time
	got     [][]byte
}

func newNetwork(t testing.TB) *network {
	return &network{t: t, now: time.Unix(1e9, 0), ends: map[netip.AddrPort]*end{}}
}

func address(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 9000)
}

func testKey(t testing.TB, digit string) *sealed.Key {
	t.Helper()
	return must.Get(sealed.ParseKey(bytes.Repeat([]byte(digit), 2*sealed.KeySize)))(t)
}

// start starts an end, in place of one that was at the address.
func (n *network) start(host byte, key string, l sealed.Limits, peers ...byte) *end {
	n.t.Helper()
	e := &end{net: n, address: address(host), sealer: sealed.NewSealer(1500), due: n.now}
	e.tunnel = sealed.New(testKey(n.t, key), l, e.write)
	for _, p := range peers {
		e.tunnel.Configure(address(p))
	}
	n.ends[e.address] = e
	return e
}

func (e *end) write(b []byte, to netip.AddrPort) {
	e.net.way = append(e.net.way, parcel{e.address, to, slices.Clone(b)})
}

// send sends a frame, which is lost if there is no session.
func (e *end) send(host byte, frame []byte) {
	l := e.tunnel.Link(address(host))
	if l == nil {
		return
	}
	b, wake := l.Seal(e.sealer, frame)
	if b != nil {
		e.write(b, address(host))
	}
	if wake {
		e.tend()
	}
}

func (e *end) tend() { e.due = e.tunnel.Tick(e.net.now) }

// take does what a wire does with a datagram.
func (e *end) take(b []byte, from netip.AddrPort) {
	n, ok := sealed.FrameSize(b)
	if !ok {
		e.tunnel.Handle(b, from, e.net.now)
	} else if frame := make([]byte, n); e.tunnel.Open(frame, b, from, e.net.now) {
		e.got = append(e.got, frame)
	}
}

// settle has all that is under way arrive.
func (n *network) settle() {
	for i := 0; len(n.way) > 0; i++ {
		must.Be(n.t, i > 1e6, false, "there is no end of datagrams")
		p := n.way[0]
		n.way = n.way[1:]
		arriving := []parcel{p}
		if n.man != nil {
			arriving = n.man(p)
		}
		for _, p := range arriving {
			if e := n.ends[p.to]; e != nil {
				e.take(p.bytes, p.from)
			}
		}
	}
}

// pass has time pass, in steps of at most 10 ms.
func (n *network) pass(d time.Duration) {
	for end := n.now.Add(d); n.now.Before(end); {
		n.settle()
		n.now = n.now.Add(10 * time.Millisecond)
		for _, e := range n.ends {
			if !n.now.Before(e.due) {
				e.tend()
			}
		}
	}
	n.settle()
}

// frame makes a frame that differs from all others.
func frame(from byte, serial uint64) []byte {
	b := make([]byte, 64)
	b[0] = from
	binary.LittleEndian.PutUint64(b[8:], serial)
	return b
}

// converse sends frames both ways until all that are sent at a time arrive; it
// fails if they do not within 20 s of the network's time.
func (n *network) converse(a, b *end) {
	n.t.Helper()
	for end := n.now.Add(20 * time.Second); ; {
		a.got, b.got = nil, nil
		a.send(b.address.Addr().As4()[3], frame(1, 0))
		b.send(a.address.Addr().As4()[3], frame(2, 0))
		n.pass(20 * time.Millisecond)
		if len(a.got) == 1 && len(b.got) == 1 {
			return
		}
		if n.now.After(end) {
			n.t.Fatalf("frames do not arrive: %d and %d, %+v, %+v", len(a.got), len(b.got), a.tunnel.Stats(), b.tunnel.Stats())
		}
	}
}

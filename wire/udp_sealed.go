package wire

import (
	"net/netip"
	"time"

	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// Key encrypts and authenticates the frames of a UDP wire.
type Key = sealed.Key

// ReadKey reads a key of 64 hexadecimal digits from a file that only its owner may read.
func ReadKey(file string) (*Key, error) { return sealed.ReadKey(file) }

// seal gives the wire a key, before it is used.
func (u *UDP) seal(key *sealed.Key, l sealed.Limits) (err error) {
	if u.tunnel, err = sealed.New(key, l, u.write); err != nil {
		return err
	}
	u.box, u.reply = sealed.NewSealer(u.mtu), sealed.NewSealer(len(u.queryFrame))
	for _, a := range u.peers {
		u.links = append(u.links, u.tunnel.Configure(a))
	}
	return nil
}

// unseal takes a datagram of a wire with a key.
func (u *UDP) unseal(p []byte, from netip.AddrPort) {
	now := time.Now()
	n, ok := sealed.FrameSize(p)
	if !ok {
		switch u.tunnel.Handle(p, from, now) {
		case sealed.NoKey:
			u.warn("the peer has no key, and this end has one: both need the same key=FILE", from)
		case sealed.OtherKey:
			u.warn("the peer has another key: both need the same key=FILE", from)
		}
		u.follow()
		return
	}
	var frame []byte
	if n > 0 {
		if frame = u.in.Reserve(n); frame == nil {
			u.overruns.Add(1)
			return
		}
	}
	delivered := u.tunnel.Open(frame, p, from, now)
	u.follow()
	switch {
	case !delivered:
	case n < ethernetHeader:
		u.runts.Add(1)
	case u.learn(frame, from):
	default:
		u.deliver(n)
	}
}

// follow notes that a session has begun, which has to be looked after, and maybe a
// link, which routes name.
func (u *UDP) follow() {
	if c := u.tunnel.Changes(); c != u.changes {
		u.changes = c
		u.version.Add(1)
		u.tend()
	}
}

// kick has the receiver look after the tunnel now.
func (u *UDP) kick() {
	u.kicked.Store(true)
	_ = u.conn.SetReadDeadline(time.Unix(1, 0))
}

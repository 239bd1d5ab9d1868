package wire

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// warnEvery keeps strangers from filling the log.
const warnEvery = 10 * time.Second

// receive brings datagrams into the ring until the socket is closed, and does what
// takes time: the handshakes of a wire with a key.
func (u *UDP) receive() {
	defer close(u.stopped)
	if u.tunnel != nil {
		u.tend()
	}
	spill := line.Aligned(maxDatagram)
	for {
		// Without a key the frame is read where it stays.
		var p []byte
		if u.tunnel == nil {
			p = u.in.Reserve(maxDatagram)
		}
		full := p == nil
		if full {
			p = spill
		}
		n, _, _, from, err := u.conn.ReadMsgUDPAddrPort(p, nil)
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			u.tend()
		case err != nil:
			u.receiveErrors.Add(1)
			time.Sleep(readRetry)
		case u.tunnel != nil:
			u.unseal(p[:n], from, time.Now())
		case sealed.IsSealed(p[:n]):
			u.keyed.Add(1)
			if sealed.IsHello(p[:n]) {
				u.warn("the peer has a key and this end has none: add key=FILE", from)
			}
		case u.hear(p[:n], from, time.Now()):
			if full {
				// There may be room by now.
				q := u.in.Reserve(n)
				if q == nil {
					u.overruns.Add(1)
					continue
				}
				copy(q, p)
			}
			u.deliver(n)
		}
	}
}

// hear notes where the station is whose frame has come, and reports whether the frame is delivered.
// One without a key is refused from others than the peers, if there are any, and from another address
// than that of its station.
func (u *UDP) hear(frame []byte, from netip.AddrPort, now time.Time) bool {
	trusted := u.tunnel != nil
	switch {
	case len(frame) < ethernetHeader:
		u.runts.Add(1)
		return false
	case !trusted && len(u.peers) > 0 && !slices.Contains(u.peers, from):
		u.strangers.Add(1)
		return false
	}
	source := datasheet.MAC(frame[6:])
	if [2]byte(frame[12:]) != datasheet.EtherType || source.IsMulticast() || source == (datasheet.MAC{}) {
		return true
	}
	there, moved := u.stations.hear(source, from, now, trusted)
	switch {
	case moved:
		u.moves.Add(1)
	case !there:
		u.strangers.Add(1)
	}
	return there
}

// deliver hands the frame over that stands in the space reserved last.
func (u *UDP) deliver(n int) {
	u.in.Shorten(n)
	u.in.Commit()
	u.in.Flush()
	line.Fence() // a receiver that goes to sleep has set its function, and looks once more
	u.Wake.Call()
}

// warn tells the log what is wrong with a peer.
func (u *UDP) warn(what string, from netip.AddrPort) {
	if now := time.Now(); u.warned.IsZero() || now.Sub(u.warned) >= warnEvery {
		u.warned = now
		u.log.Warn("UDP wire: "+what, "local", u.local, "peer", from)
	}
}

package wire

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/wire/internal/line"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// warnEvery keeps strangers from filling the log.
const warnEvery = 10 * time.Second

// receive brings datagrams into the ring until the socket is closed, and does what
// takes time: questions, and the handshakes of a wire with a key.
func (u *UDP) receive() {
	defer close(u.stopped)
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
			u.unseal(p[:n], from)
		case sealed.IsSealed(p[:n]):
			u.keyed.Add(1)
			if !sealed.IsHello(p[:n]) {
				continue
			}
			u.warn("the peer has a key and this end has none: add key=FILE", from)
		case n < ethernetHeader:
			u.runts.Add(1)
		case u.learn(p[:n], from):
		default:
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

// deliver hands the frame over that stands in the space reserved last.
func (u *UDP) deliver(n int) {
	u.in.Shorten(n)
	u.in.Commit()
	u.in.Flush()
	line.Fence() // who goes to sleep has set its function, and looks once more
	u.wake.Call()
}

// tend does what is due, and has the socket come back for what will be.
func (u *UDP) tend() {
	for more := true; more; more = u.kicked.Load() {
		u.kicked.Store(false)
		now := time.Now()
		next := u.pursue(now)
		if u.tunnel != nil {
			if at := u.tunnel.Tick(now); next.IsZero() || !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		// It fails if the socket is closed, which the next read notices.
		_ = u.conn.SetReadDeadline(next)
	}
}

// warn tells the log what is wrong with a peer.
func (u *UDP) warn(what string, from netip.AddrPort) {
	if now := time.Now(); u.warned.IsZero() || now.Sub(u.warned) >= warnEvery {
		u.warned = now
		u.log.Warn("UDP wire: "+what, "local", u.local, "peer", from)
	}
}

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

// unseal takes a datagram of a wire with a key.
func (u *UDP) unseal(p []byte, from netip.AddrPort, now time.Time) {
	n, ok := sealed.FrameSize(p)
	if !ok {
		if wrong := u.tunnel.Handle(p, from, now); wrong != "" {
			u.warn(wrong, from)
		}
		return
	}
	var frame []byte
	if n > 0 {
		if frame = u.in.Reserve(n); frame == nil {
			u.overruns.Add(1)
			return
		}
	}
	if u.tunnel.Open(frame, p, from, now) && u.hear(frame, from, now) {
		u.deliver(n)
	}
}

// tend does what is due, and has the socket come back for what will be.
func (u *UDP) tend() {
	for more := true; more; more = u.kicked.Load() {
		u.kicked.Store(false)
		// It fails if the socket is closed, which the next read notices.
		_ = u.conn.SetReadDeadline(u.tunnel.Tick(time.Now()))
	}
}

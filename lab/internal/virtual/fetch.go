package virtual

import (
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Request returns how long a control message that asks for a page takes one way, over an idle system, and its transfers. The
// host has put it into NIC memory by programmed I/O, so that no host transfer shows, and it needs no receive buffer. The
// page itself takes as long as an unasked one.
func (o *Options) Request() (profile.Time, []dmalog.Record) {
	p := o.Profile
	issued := p.Host/2 + p.NIC.Decision + p.NIC.Packet
	from := issued + p.Link.Pulse.Overhead
	left := from + p.Link.Pulse.Bytes(p.Link.Header)
	came := left + p.Link.Latency
	log := []dmalog.Record{
		{Engine: dmalog.NetTx, Start: int64(issued), End: int64(left), Bytes: p.Link.Header},
		{Engine: dmalog.NetRcv, Start: int64(from + p.Link.Latency), End: int64(came), Bytes: p.Link.Header},
	}
	taken := came + p.NIC.Packet
	if o.LogCosts {
		taken += p.NIC.LogReceive
	}
	return taken + p.Host - p.Host/2, log
}

package virtual

import (
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Flows of a fetch: pages go from the first host to the second, as the frames of other
// runs do, and requests the other way. One request is under way at a time.
const (
	answering = iota
	asking
)

// ask posts the next request, once the frame that was asked for before is there.
func (m *machine) ask() {
	k := len(m.flows[asking].postTime)
	if k == m.total {
		return
	}
	when := max(m.now, m.flows[answering].hostRcvFree)
	if k == m.o.Warmup {
		m.origin = when
	}
	m.postAt(asking, when)
}

// answer follows a delivery of flow i: the frame that was asked for is posted, or the next
// one is asked for.
func (m *machine) answer(i int) {
	if i == asking {
		m.postAt(answering, m.flows[asking].hostRcvFree+m.o.Server)
	} else {
		m.ask()
	}
}

// startControl sends a control message that has no payload. The host has put it into NIC
// memory by programmed I/O, so that no host transfer shows, and it needs no receive buffer.
func (m *machine) startControl(n, i int) {
	f := &m.flows[i]
	cost := m.cost(n, dmalog.NetTx, f.cost[dmalog.NetTx])
	cost.PerByte = m.cost(1-n, dmalog.NetRcv, profile.Cost{PerByte: cost.PerByte}).PerByte
	header, from := m.o.Profile.Link.Header, m.now+cost.Overhead
	f.netTx = move{active: true, issued: m.now, from: from, end: from + cost.Bytes(header), perByte: cost.PerByte, bytes: header}
	f.leaving = f.started
	f.started++
	f.receiveBegan = from + m.o.Profile.Link.Latency
	m.at[i*flowSlots+netTxEnd] = f.netTx.end
	m.at[i*flowSlots+headerIn] = f.netTx.end + m.o.Profile.Link.Latency
}

// endControl takes note that such a message has left.
func (m *machine) endControl(i int) {
	f := &m.flows[i]
	m.record(dmalog.Record{Packet: f.leaving, Flow: i, Engine: dmalog.NetTx,
		Start: int64(f.netTx.issued), End: int64(m.now), Bytes: f.netTx.bytes})
}

// controlArrived takes note that such a message has arrived.
func (m *machine) controlArrived(i int) {
	f := &m.flows[i]
	m.record(dmalog.Record{Packet: f.headersCame, Flow: i, Engine: dmalog.NetRcv,
		Start: int64(f.receiveBegan), End: int64(m.now), Bytes: m.o.Profile.Link.Header})
}

package virtual

import (
	"math"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// leastShare of a NIC's memory is left to the link's transfers, whatever the host's bus takes.
const leastShare = 1.0 / 8

// overBus is the cost of a transfer over the host's bus, which goes first at the NIC's memory.
func (m *machine) overBus(c profile.Cost) profile.Cost {
	c.PerByte = max(c.PerByte, m.o.Profile.NIC.Memory)
	return c
}

// left is the least time of a byte over the link, in femtoseconds, that the memory of a NIC allows: the host's bus leaves
// it something, which a netTx and a netRcv at once share.
func (m *machine) left(n int) int64 {
	c := &m.nics[n]
	all := 1e12 / float64(m.o.Profile.NIC.Memory) // bytes a millisecond
	left, users := all, 0
	if c.out < m.flowCount {
		f := &m.flows[c.out]
		left -= f.hostTx.mean(m.bus(n).Read)
		if f.netTx.flowing {
			users++
		}
	}
	if c.in < m.flowCount {
		f := &m.flows[c.in]
		left -= f.hostRcv.mean(m.bus(n).Write)
		if f.netTx.flowing {
			users++
		}
	}
	return int64(1e12 / max(left/float64(users), leastShare*all))
}

// mean is what a transfer over the bus takes of the memory, in bytes a millisecond: the bus's rate, also while the host holds
// the transfer up, but none during its overhead.
func (m *move) mean(bus profile.Cost) float64 {
	if !m.active {
		return 0
	}
	return 1e12 / float64(bus.PerByte) * float64(m.end-m.from) / float64(m.end-m.issued)
}

// share sets the rates of the link's transfers at a NIC, one of whose transfers has begun or ended.
func (m *machine) share(n int) {
	for _, i := range []int{m.nics[n].out, m.nics[n].in} {
		if i < m.flowCount && m.o.Profile.NIC.Memory != 0 && m.flows[i].netTx.flowing {
			m.pace(i)
		}
	}
}

// pace sets the rate of a netTx pulse that is under way, and of the same bytes at the receiver a latency later.
func (m *machine) pace(i int) {
	f := &m.flows[i]
	p := &f.netTx
	perByte := max(f.cost[dmalog.NetTx].PerByte, m.left(f.from), m.left(f.to))
	if perByte == p.perByte || p.end <= m.Now {
		return
	}
	p.turn(m.Now, perByte)
	m.Set(f.events[netTxEnd], p.end)
	slot := f.wire.last()
	m.At(m.Now+m.o.Profile.Link.Latency, i*kinds+headerIn, func() {
		f.wire.pulses[slot].turn(m.Now, perByte)
		if f.wire.first == slot {
			m.Set(f.events[pulseIn], f.wire.front().end)
		}
		m.look(f.to)
	})
}

// turn goes on with another rate: from becomes the time at which a transfer with this rate had begun.
func (m *move) turn(now profile.Time, perByte int64) {
	if now > m.from {
		m.from = now - profile.Time(math.Ceil(float64(now-m.from)*float64(perByte)/float64(m.perByte)))
	}
	m.perByte = perByte
	m.end = max(now, m.from+profile.Cost{PerByte: perByte}.Bytes(m.bytes))
}

package search

import (
	"math"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// pulse is a run of bytes that arrives at a steady rate: at the receiver a netTx
// pulse, at the sender the whole frame.
type pulse struct {
	from, end profile.Time // of its payload bytes
	offset    int
	bytes     int
}

// arrivals returns the pulses of a log of one frame.
func (s *searcher) arrivals(log []dmalog.Record) []pulse {
	var pulses []pulse
	offset := 0
	link := s.profile.Link
	for _, l := range log {
		if l.Engine != dmalog.NetTx {
			continue
		}
		end := profile.Time(l.End) + link.Latency
		pulses = append(pulses, pulse{from: end - link.Pulse.Bytes(l.Bytes), end: end, offset: offset, bytes: l.Bytes})
		offset += l.Bytes
	}
	return pulses
}

// fetched returns the bytes of a log of one frame as hostTx brings them.
func (s *searcher) fetched(log []dmalog.Record) []pulse {
	for _, l := range log {
		if l.Engine == dmalog.HostTx {
			end := profile.Time(l.End)
			return []pulse{{from: end - s.profile.Sender.Read.Bytes(l.Bytes), end: end, bytes: l.Bytes}}
		}
	}
	return nil
}

// answer returns the hostRcv steps that end earliest, by dynamic programming: the
// earliest time at which the first j bytes can have left is the least, over the
// byte i at which the last transfer begins, of when that transfer can end.
//
// Two i need to be looked at. While the engine becomes idle too late for i, an earlier i
// is better: the two transfers in between cost more than one. Once it is idle in time, an
// earlier i only makes the transfer longer. Where the one turns into the other moves on
// with j, because later bytes arrive later.
func (s *searcher) answer(log []dmalog.Record) []pipeline.Step {
	pulses := s.arrivals(log)
	bounds := s.bounds(pulses)
	n := len(bounds)
	arrival := make([]profile.Time, n)
	for j, k := 1, 0; j < n; j++ {
		for pulses[k].offset+pulses[k].bytes < bounds[j] {
			k++
		}
		p := pulses[k]
		arrival[j] = p.end - s.profile.Link.Pulse.Bytes(p.offset+p.bytes-bounds[j])
	}
	nic, cost := s.profile.NIC, s.profile.Receiver.Write
	idle := make([]profile.Time, n)
	from := make([]int, n)
	idle[0] = pulses[0].from + nic.Packet
	for j, last := 1, 0; j < n; j++ {
		for last+1 < j && idle[last+1] <= arrival[j]-nic.Decision {
			last++
		}
		idle[j] = math.MaxInt64
		for i := last; i <= min(last+1, j-1); i++ {
			decide := max(idle[i], arrival[j]-nic.Decision, 0)
			if end := decide + nic.Decision + cost.Transfer(bounds[j]-bounds[i]); end < idle[j] {
				idle[j], from[j] = end, i
			}
		}
	}
	return s.steps(bounds, from, pulses, arrival)
}

// steps turns the chosen boundaries into steps: each waits for the bytes that are
// there one decision before its last byte arrives.
func (s *searcher) steps(bounds, from []int, pulses []pulse, arrival []profile.Time) []pipeline.Step {
	var reversed []pipeline.Step
	for j := len(bounds) - 1; j > 0; j = from[j] {
		i := from[j]
		there := arrivedBy(pulses, arrival[j]-s.profile.NIC.Decision, s.profile.Link.Pulse)
		bytes := bounds[j] - bounds[i]
		reversed = append(reversed, pipeline.Step{Wait: min(max(there-bounds[i], 1), bytes), Bytes: bytes})
	}
	steps := make([]pipeline.Step, 0, len(reversed))
	for k := len(reversed) - 1; k >= 0; k-- {
		steps = append(steps, reversed[k])
	}
	return steps
}

// bounds returns the byte positions at which a transfer may end: a grid, and the
// ends of netTx pulses.
func (s *searcher) bounds(pulses []pulse) []int {
	bounds := []int{0}
	k := 0
	for at := s.grid; ; at += s.grid {
		for k < len(pulses) && pulses[k].offset+pulses[k].bytes <= min(at, s.payload) {
			if end := pulses[k].offset + pulses[k].bytes; end > bounds[len(bounds)-1] {
				bounds = append(bounds, end)
			}
			k++
		}
		if at >= s.payload {
			break
		}
		if at > bounds[len(bounds)-1] {
			bounds = append(bounds, at)
		}
	}
	if bounds[len(bounds)-1] < s.payload {
		bounds = append(bounds, s.payload)
	}
	return bounds
}

// arrivedBy returns the bytes that have arrived at a time.
func arrivedBy(pulses []pulse, now profile.Time, link profile.Cost) int {
	for k := len(pulses) - 1; k >= 0; k-- {
		p := pulses[k]
		if now >= p.from {
			return p.offset + min(int(int64(now-p.from)*1000/link.PerByte), p.bytes)
		}
	}
	return 0
}

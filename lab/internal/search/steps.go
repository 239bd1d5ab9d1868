package search

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// pulse is a run of bytes that arrives at a rate that is taken as steady: at the receiver a netTx
// pulse, at the sender the whole frame.
type pulse struct {
	from, end profile.Time // of its payload bytes
	offset    int
	bytes     int
}

// by returns how many of the bytes have arrived at a time.
func (p *pulse) by(now profile.Time) int {
	return min(int((now-p.from)*profile.Time(p.bytes)/max(p.end-p.from, 1)), p.bytes)
}

func (s *searcher) arrivals(log []dmalog.Record) []pulse {
	var pulses []pulse
	offset := 0
	link := s.profile.Link
	for _, l := range log {
		if l.Engine != dmalog.NetTx {
			continue
		}
		from, end := profile.Time(l.Start)+link.Latency, profile.Time(l.End)+link.Latency
		if offset > 0 {
			from += link.Pulse.Overhead // of the first it is ahead of the control message
		}
		pulses = append(pulses, pulse{from, end, offset, l.Bytes})
		offset += l.Bytes
	}
	return pulses
}

// fetched returns the bytes of a log of one frame as hostTx brings them.
func (s *searcher) fetched(log []dmalog.Record) []pulse {
	for _, l := range log {
		if l.Engine == dmalog.HostTx {
			return []pulse{{profile.Time(l.Start) + s.profile.Sender.Read.Overhead, profile.Time(l.End), 0, l.Bytes}}
		}
	}
	return nil
}

// arrivedBy returns the bytes that have arrived at a time.
func arrivedBy(pulses []pulse, now profile.Time) int {
	for _, p := range slices.Backward(pulses) {
		if now >= p.from {
			return p.offset + p.by(now)
		}
	}
	return 0
}

// stepsOf returns the transfers of one engine as steps. Each waits for the bytes
// that were there one decision before it started.
func (s *searcher) stepsOf(log []dmalog.Record, e dmalog.Engine) []pipeline.Step {
	pulses := s.arrivals(log)
	if e == dmalog.NetTx {
		pulses = s.fetched(log)
	}
	var steps []pipeline.Step
	sent := 0
	for _, l := range log {
		if l.Engine == e {
			there := arrivedBy(pulses, profile.Time(l.Start)-s.profile.NIC.Decision) - sent
			steps = append(steps, pipeline.Step{Wait: min(max(there, 1), l.Bytes), Bytes: l.Bytes})
			sent += l.Bytes
		}
	}
	return steps
}

// earlySteps returns the netTx transfers of a log as steps that count on all bytes
// which hostTx brings during a decision.
func (s *searcher) earlySteps(log []dmalog.Record) []pipeline.Step {
	early := int(int64(s.profile.NIC.Decision) * 1000 / s.profile.Sender.Read.PerByte)
	var steps []pipeline.Step
	for _, l := range log {
		if l.Engine == dmalog.NetTx {
			steps = append(steps, pipeline.Step{Wait: max(l.Bytes-early, 1), Bytes: l.Bytes})
		}
	}
	return steps
}

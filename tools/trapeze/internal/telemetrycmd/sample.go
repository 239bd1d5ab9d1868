package telemetrycmd

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// sample has what top shows of a NIC.
type sample struct {
	nic   *NIC
	rates map[string]float64
	// queued counts the descriptors of sends and receives in the queues; -1 if that was not
	// asked for.
	queued [2]int
	// latency is the worst of the NIC's endpoints, nil if none is measured.
	latency *telemetry.Latency
	rows    []endpointRow
	// policy is that of the chosen NIC, nil if it says none; decisions are how often it decides
	// in a second.
	policy    *policy
	decisions map[string]float64
}

// policy is what a NIC says of its delivery policy.
type policy struct {
	telemetry.Policy
	Counters map[string]uint64 `json:"counters"`
}

// endpointRow is an endpoint with the descriptors taken back in a second.
type endpointRow struct {
	telemetry.Endpoint
	sends, receives float64
}

// sampler asks all NICs again and again. One goroutine uses it at a time.
type sampler struct {
	host   *host
	looked time.Time
	gauges map[string]*gauge
	before map[string]telemetry.Endpoint // by NIC and number
	at     map[string]time.Time          // of the endpoints, by NIC
}

const (
	// lookAgain is the time from one search for processes to the next.
	lookAgain = 2 * time.Second
	// fewEndpoints bounds the NICs whose endpoints are all asked for without being chosen.
	fewEndpoints = telemetry.PageRows
)

func newSampler() *sampler {
	return &sampler{gauges: map[string]*gauge{}, before: map[string]telemetry.Endpoint{}, at: map[string]time.Time{}}
}

// name tells a NIC from all others, also if it is found again.
func (n *NIC) name() string { return fmt.Sprintf("%d,%d,%s", n.PID, n.Port, n.MAC) }

// next asks the NICs that there are. Those of processes that end meanwhile are left out. All
// endpoints are asked for of the chosen NIC, and of those with few.
func (s *sampler) next(ctx context.Context, chosen string) []sample {
	if s.host == nil || time.Since(s.looked) > lookAgain {
		s.close()
		s.host, s.looked = look(ctx), time.Now()
	}
	var list []sample
	for _, n := range s.host.nics {
		g, known := s.gauges[n.name()]
		if !known {
			first := newGauge(ctx, n)
			g = &first
			s.gauges[n.name()] = g
		}
		g.nic = n
		one := sample{nic: n, rates: g.next(ctx), queued: [2]int{-1, -1}}
		if g.err != nil {
			delete(s.gauges, n.name())
			continue
		}
		if n.VIs <= fewEndpoints || n.name() == chosen {
			s.endpoints(ctx, &one)
		}
		if n.name() == chosen {
			s.decisions(ctx, &one, g)
		}
		list = append(list, one)
	}
	return list
}

// endpoints adds those of a NIC.
func (s *sampler) endpoints(ctx context.Context, one *sample) {
	list, err := one.nic.endpoints(ctx)
	if err != nil {
		return
	}
	name, now := one.nic.name(), time.Now()
	seconds := now.Sub(s.at[name]).Seconds()
	s.at[name] = now
	one.queued = [2]int{}
	for _, e := range list {
		row := endpointRow{Endpoint: e}
		key := fmt.Sprintf("%s,%d", name, e.Number)
		if b, known := s.before[key]; known && seconds > 0 {
			row.sends, row.receives = float64(e.SendTaken-b.SendTaken)/seconds, float64(e.RecvTaken-b.RecvTaken)/seconds
		}
		s.before[key] = e
		one.queued[0] += int(e.SendQueued())
		one.queued[1] += int(e.RecvQueued())
		if l := e.Latency; l != nil && (one.latency == nil || l.P99 > one.latency.P99) {
			one.latency = l
		}
		one.rows = append(one.rows, row)
	}
}

// decisions adds the policy of a NIC.
func (s *sampler) decisions(ctx context.Context, one *sample, g *gauge) {
	var p policy
	if one.nic.ask(ctx, "/trapeze/policy", &p) != nil {
		return // it is too old
	}
	one.policy = &p
	if seconds := time.Since(g.decidedAt).Seconds(); g.decided != nil && seconds > 0 {
		one.decisions = map[string]float64{}
		for name, v := range p.Counters {
			if before := g.decided[name]; v > before {
				one.decisions[name] = float64(v-before) / seconds
			}
		}
	}
	g.decided, g.decidedAt = p.Counters, time.Now()
}

func (s *sampler) close() {
	if s.host != nil {
		s.host.close()
	}
}

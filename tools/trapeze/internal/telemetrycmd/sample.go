package telemetrycmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// sample has what top and the page show of a NIC.
type sample struct {
	nic   *NIC
	rates map[string]float64
	// queued counts the descriptors of sends and receives in the queues; -1 if that was not
	// asked for.
	queued [2]int
	// latency is the worst of the NIC's endpoints, nil if none is measured.
	latency *telemetry.Latency
	rows    []endpointRow
	// policy is that of the chosen NIC, nil if it says none; decisions are the times that it decides
	// in a second.
	policy    *policy
	decisions map[string]float64
}

// policy is a NIC's report about its delivery policy.
type policy struct {
	telemetry.Policy
	Counters map[string]uint64 `json:"counters"`
}

// endpointRow is an endpoint with the descriptors taken back in a second.
type endpointRow struct {
	telemetry.Endpoint
	Sends    float64 `json:"sends_per_second"`
	Receives float64 `json:"receives_per_second"`
}

// sampler asks all NICs again and again. One goroutine uses it at a time.
type sampler struct {
	ctx    context.Context // of searches
	cancel context.CancelFunc
	host   *host
	looked time.Time
	found  chan *host       // has the outcome of the search that runs; nil if none does
	seen   map[string]*seen // by the name of the NIC
}

// seen has what the next look at a NIC is compared with.
type seen struct {
	gauge
	rows map[uint64]telemetry.Endpoint
	at   time.Time // of rows
}

const (
	// lookAgain is the time from one search for processes to the next.
	lookAgain = 2 * time.Second
	// fewEndpoints bounds the NICs whose endpoints are all asked for without being chosen.
	fewEndpoints = telemetry.PageRows
)

func newSampler(ctx context.Context) *sampler {
	ctx, cancel := context.WithCancel(ctx)
	return &sampler{ctx: ctx, cancel: cancel, seen: map[string]*seen{}}
}

// name tells a NIC from all others, also if it is found again.
func (n *NIC) name() string { return fmt.Sprintf("%d,%d,%s", n.PID, n.Port, n.MAC) }

// next asks the NICs that there are. Those of processes that end meanwhile are left out. All
// endpoints are asked for of the chosen NICs, and of those with few.
func (s *sampler) next(ctx context.Context, chosen map[string]bool) []sample {
	s.search()
	var list []sample
	for _, n := range s.host.nics {
		before, known := s.seen[n.name()]
		if !known {
			before = &seen{gauge: newGauge(ctx, n)}
			s.seen[n.name()] = before
		}
		one := sample{nic: n, queued: [2]int{-1, -1}}
		if known {
			before.nic = n
			one.rates = before.next(ctx)
		}
		if before.err != nil {
			delete(s.seen, n.name())
			continue
		}
		if n.VIs <= fewEndpoints || chosen[n.name()] {
			before.endpoints(ctx, &one)
		}
		if chosen[n.name()] {
			before.decisions(ctx, &one)
		}
		list = append(list, one)
	}
	return list
}

// search looks for processes from time to time. It waits for the first search only: a process
// that does not answer delays what is shown of others no longer than that.
func (s *sampler) search() {
	if s.found == nil && (s.host == nil || time.Since(s.looked) > lookAgain) {
		found := make(chan *host, 1)
		go func() { found <- look(s.ctx) }()
		s.found = found
	}
	if s.host == nil {
		s.take(<-s.found)
		return
	}
	select {
	case h := <-s.found:
		s.take(h)
	default:
	}
}

// take has the outcome of a search replace that of the one before.
func (s *sampler) take(h *host) {
	if s.host != nil {
		s.host.close()
	}
	s.host, s.looked, s.found = h, time.Now(), nil
	maps.DeleteFunc(s.seen, func(name string, _ *seen) bool {
		return !slices.ContainsFunc(h.nics, func(n *NIC) bool { return n.name() == name })
	})
}

// endpoints adds those of the NIC.
func (s *seen) endpoints(ctx context.Context, one *sample) {
	list, err := one.nic.endpoints(ctx)
	if err != nil {
		return
	}
	now, rows := time.Now(), map[uint64]telemetry.Endpoint{}
	seconds := now.Sub(s.at).Seconds()
	one.queued = [2]int{}
	for _, e := range list {
		row := endpointRow{Endpoint: e}
		if b, known := s.rows[e.Number]; known && seconds > 0 {
			row.Sends, row.Receives = float64(e.SendTaken-b.SendTaken)/seconds, float64(e.RecvTaken-b.RecvTaken)/seconds
		}
		rows[e.Number] = e
		one.queued[0] += int(e.SendQueued())
		one.queued[1] += int(e.RecvQueued())
		if l := e.Latency; l != nil && (one.latency == nil || l.P99 > one.latency.P99) {
			one.latency = l
		}
		one.rows = append(one.rows, row)
	}
	s.rows, s.at = rows, now
}

// decisions adds the policy of the NIC.
func (s *seen) decisions(ctx context.Context, one *sample) {
	var p policy
	if one.nic.ask(ctx, "/trapeze/policy", &p) != nil {
		return // it is too old
	}
	one.policy = &p
	if seconds := time.Since(s.decidedAt).Seconds(); s.decided != nil && seconds > 0 {
		one.decisions = map[string]float64{}
		for name, v := range p.Counters {
			if before := s.decided[name]; v > before {
				one.decisions[name] = float64(v-before) / seconds
			}
		}
	}
	s.decided, s.decidedAt = p.Counters, time.Now()
}

func (s *sampler) close() {
	s.cancel()
	if s.found != nil {
		(<-s.found).close()
	}
	if s.host != nil {
		s.host.close()
	}
}

package telemetrycmd

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// sample has what a look found of a NIC, beside the look before.
type sample struct {
	nic *NIC
	// rates has the growth of each counter in a second; nothing at the first look.
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
	host *host            // of the last look
	seen map[string]*seen // by the name of the NIC
}

// seen has what the next look at a NIC is compared with.
type seen struct {
	at       time.Time
	counters map[string]uint64
	rows     map[uint64]telemetry.Endpoint
	decided  map[string]uint64 // counters of the policy
}

// fewEndpoints bounds the NICs whose endpoints are all asked for without being chosen.
const fewEndpoints = telemetry.PageRows

// next asks the NICs that there are. Those of processes that end meanwhile are left out. All
// endpoints are asked for of the chosen NICs, and of those with few. The connections stay open
// until the next look, or close.
func (s *sampler) next(ctx context.Context, chosen map[string]bool) (list []sample) {
	s.close()
	s.host = look(ctx)
	now := map[string]*seen{}
	for _, n := range s.host.nics {
		before, is := s.seen[n.name()], &seen{}
		if before == nil {
			before = &seen{}
		}
		var err error
		if is.counters, is.at, err = n.counters(ctx); err != nil {
			continue
		}
		one := sample{nic: n, queued: [2]int{-1, -1}}
		seconds := is.at.Sub(before.at).Seconds()
		if before.counters != nil {
			one.rates = growth(before.counters, is.counters, seconds)
		}
		if n.VIs <= fewEndpoints || chosen[n.name()] {
			is.endpoints(ctx, &one, before, seconds)
		}
		if chosen[n.name()] {
			is.decisions(ctx, &one, before, seconds)
		}
		now[n.name()] = is
		list = append(list, one)
	}
	s.seen = now
	return list
}

// growth returns the growth of each counter in a second. One that was reset meanwhile begins anew.
func growth(before, now map[string]uint64, seconds float64) map[string]float64 {
	rates := map[string]float64{}
	for name, v := range now {
		if b := before[name]; v >= b && seconds > 0 {
			rates[name] = float64(v-b) / seconds
		}
	}
	return rates
}

// endpoints adds those of the NIC.
func (s *seen) endpoints(ctx context.Context, one *sample, before *seen, seconds float64) {
	list, err := one.nic.endpoints(ctx)
	if err != nil {
		return
	}
	s.rows, one.queued = map[uint64]telemetry.Endpoint{}, [2]int{}
	for _, e := range list {
		row := endpointRow{Endpoint: e}
		if b, known := before.rows[e.Number]; known && seconds > 0 {
			row.Sends, row.Receives = float64(e.SendTaken-b.SendTaken)/seconds, float64(e.RecvTaken-b.RecvTaken)/seconds
		}
		s.rows[e.Number] = e
		one.queued[0] += int(e.SendQueued())
		one.queued[1] += int(e.RecvQueued())
		if l := e.Latency; l != nil && (one.latency == nil || l.P99 > one.latency.P99) {
			one.latency = l
		}
		one.rows = append(one.rows, row)
	}
}

// decisions adds the policy of the NIC.
func (s *seen) decisions(ctx context.Context, one *sample, before *seen, seconds float64) {
	var p policy
	if one.nic.ask(ctx, "/trapeze/policy", &p) != nil {
		return // it is too old
	}
	one.policy, s.decided = &p, p.Counters
	if before.decided != nil {
		one.decisions = growth(before.decided, p.Counters, seconds)
	}
}

func (s *sampler) close() {
	if s.host != nil {
		s.host.close()
	}
}

// Package metrics shows NICs to Prometheus: those of this process, or those of all processes of
// this host. It is a module of its own, so that programs that use NICs need no Prometheus;
// 'trapeze serve-metrics' needs none either.
//
// Names follow Prometheus' rules: counters of a NIC are trapeze_nic_…_total, with the labels nic,
// pid and port. No peer is a label. Reading costs the data path of the NICs nothing.
package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/exposition"
)

// timeout bounds a scrape.
const timeout = 5 * time.Second

// Options are choices of Collector and Handler.
type Options struct {
	// Host takes the NICs of all processes of this host that this user may look at, in place of
	// those of this process. A process that does not answer has trapeze_up 0.
	Host bool
	// VIs adds the queues of each endpoint: four series each, and its latencies if they are
	// measured.
	VIs bool
}

func (o Options) read(ctx context.Context) []*exposition.Target {
	if o.Host {
		return exposition.Host(ctx, o.VIs)
	}
	return exposition.Process(ctx, o.VIs)
}

// Handler serves what NICs count, and nothing else, to Prometheus. For thousands of VIs it is
// faster than a Collector.
func Handler(o Options) http.Handler {
	return exposition.Handler(exposition.Families(driver.Stats{}, o.VIs), o.read)
}

type collector struct {
	options  Options
	families []family
}

type family struct {
	*exposition.Family
	desc *prometheus.Desc
}

// Collector collects what NICs count, for a registry that has series of others too.
func Collector(o Options) prometheus.Collector {
	c := &collector{options: o}
	for _, f := range exposition.Families(driver.Stats{}, o.VIs) {
		c.families = append(c.families, family{f, prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)})
	}
	return c
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// kinds are Prometheus' names for types of values.
var kinds = map[exposition.Type]prometheus.ValueType{exposition.Counter: prometheus.CounterValue, exposition.Gauge: prometheus.GaugeValue}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, t := range c.options.read(ctx) {
		for _, f := range c.families {
			f.Each(t, func(v exposition.Value) {
				if l := v.Latency; l != nil {
					to <- prometheus.MustNewConstSummary(f.desc, l.Samples, float64(l.SumNS)/1e9,
						map[float64]float64{0.5: float64(l.P50) / 1e9, 0.99: float64(l.P99) / 1e9}, v.Labels...)
					return
				}
				to <- prometheus.MustNewConstMetric(f.desc, kinds[f.Type], v.Number, v.Labels...)
			})
		}
	}
}

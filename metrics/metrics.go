// Package metrics shows NICs to Prometheus: those of this process with [Process], those of all
// processes of this host with [Host]. It is a module of its own, so that programs that use NICs
// need no Prometheus.
//
// Names follow Prometheus' rules: counters of a NIC are trapeze_nic_…_total, with the labels nic,
// pid and port. No peer is a label. Reading costs the data path of the NICs nothing.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// patience bounds a scrape.
const patience = 5 * time.Second

// Options are choices of Process and Host.
type Options struct {
	// VIs adds the queues of each endpoint: five series each.
	VIs bool
}

// source is a process to ask.
type source struct {
	telemetry.Asker
	pid int
	end func()
}

type collector struct {
	options Options
	// sources finds the processes.
	sources func(context.Context) []source
}

// Process collects what the NICs of this process count.
func Process(o Options) prometheus.Collector {
	return &collector{o, func(context.Context) []source {
		return []source{{telemetry.Local{}, 0, func() {}}}
	}}
}

// Host collects what the NICs of all processes count that this user may look at. A process that
// does not answer is left out.
func Host(o Options) prometheus.Collector {
	return &collector{o, func(ctx context.Context) (list []source) {
		for _, path := range telemetry.Find() {
			c, err := telemetry.Dial(ctx, path)
			if err != nil {
				continue
			}
			if !strings.HasPrefix(c.Version, telemetry.Project) {
				_ = c.Close()
				continue
			}
			list = append(list, source{c, c.PID, func() { _ = c.Close() }})
		}
		return list
	}}
}

// Handler serves a collector, and nothing else, to Prometheus.
func Handler(c prometheus.Collector) (http.Handler, error) {
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		return nil, fmt.Errorf("register collector: %w", err)
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: 2 * patience}), nil
}

// labels are those of all series of a NIC.
var labels = []string{"nic", "pid", "port"}

// rdmaWords are the names of rdma(8), "statistic", for what a counter counts.
var rdmaWords = map[string]string{
	"frames_dropped":       "out_of_seq_request",
	"frames_duplicate":     "duplicate_request",
	"frames_retransmitted": "completer_retry_err",
	"receive_queue_empty":  "rcvd_rnr_err",
	"timeouts":             "local_ack_timeout_err",
	"dma_faults":           "send_err",
}

// series is a counter of a NIC as Prometheus has it.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// nicSeries are those of the counters of a NIC, by key.
var nicSeries = describe(telemetry.Values(driver.Stats{}))

func describe(values []telemetry.Value) map[string]series {
	all := map[string]series{}
	for _, v := range values {
		help, name, kind := v.Help, "trapeze_nic_"+v.Name(), prometheus.GaugeValue
		if word := rdmaWords[v.Key]; word != "" {
			help += " rdma statistic calls it " + word + "."
		}
		if !v.Gauge {
			name, kind = name+"_total", prometheus.CounterValue
		}
		all[v.Name()] = series{prometheus.NewDesc(name, help, labels, nil), kind}
	}
	return all
}

var (
	info   = prometheus.NewDesc("trapeze_nic_info", "A NIC that a process has open.", append(labels[:len(labels):len(labels)], "mac"), nil)
	linkUp = prometheus.NewDesc("trapeze_nic_link_up", "Whether the link is up.", labels, nil)
	vis    = prometheus.NewDesc("trapeze_nic_endpoints", "Endpoints that there are.", labels, nil)

	viLabels  = append(labels[:len(labels):len(labels)], "vi", "direction")
	viDone    = prometheus.NewDesc("trapeze_vi_descriptors_total", "Descriptors that the program has taken back.", viLabels, nil)
	viQueued  = prometheus.NewDesc("trapeze_vi_queued_descriptors", "Descriptors that are posted and not taken back.", viLabels, nil)
	viLatency = prometheus.NewDesc("trapeze_vi_send_latency_seconds", "Time of sends from post to completion, of those that were measured.", append(labels[:len(labels):len(labels)], "vi"), nil)
)

// Describe is described at prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range nicSeries {
		to <- s.desc
	}
	for _, d := range []*prometheus.Desc{info, linkUp, vis} {
		to <- d
	}
	if c.options.VIs {
		to <- viDone
		to <- viQueued
		to <- viLatency
	}
}

// Collect is described at prometheus.Collector. What does not answer is left out.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range c.sources(ctx) {
		var ports []int
		if s.Ask(ctx, "/ethdev/list", &ports) == nil {
			for _, port := range ports {
				c.nic(ctx, to, s, port)
			}
		}
		s.end()
	}
}

// nic collects one NIC.
func (c *collector) nic(ctx context.Context, to chan<- prometheus.Metric, s source, port int) {
	var about struct {
		Name string `json:"name"`
		MAC  string `json:"mac_addr"`
		VIs  int    `json:"nb_rx_queues"`
	}
	var link struct{ Status string }
	var counters map[string]uint64
	for command, into := range map[string]any{"/ethdev/info": &about, "/ethdev/link_status": &link, "/ethdev/xstats": &counters} {
		if s.Ask(ctx, fmt.Sprintf("%s,%d", command, port), into) != nil {
			return
		}
	}
	of := []string{telemetry.Printable(about.Name), strconv.Itoa(s.pid), strconv.Itoa(port)}
	to <- prometheus.MustNewConstMetric(info, prometheus.GaugeValue, 1, append(of[:len(of):len(of)], telemetry.Printable(about.MAC))...)
	up := 0.0
	if link.Status == "UP" {
		up = 1
	}
	to <- prometheus.MustNewConstMetric(linkUp, prometheus.GaugeValue, up, of...)
	to <- prometheus.MustNewConstMetric(vis, prometheus.GaugeValue, float64(about.VIs), of...)
	for key, series := range nicSeries {
		if v, ok := counters[key]; ok {
			to <- prometheus.MustNewConstMetric(series.desc, series.kind, float64(v), of...)
		}
	}
	if !c.options.VIs {
		return
	}
	list, err := telemetry.Endpoints(ctx, s, port)
	if err != nil {
		return
	}
	for i := range list {
		collectVI(to, &list[i], of)
	}
}

// collectVI collects one endpoint.
func collectVI(to chan<- prometheus.Metric, e *telemetry.Endpoint, of []string) {
	vi := append(of[:len(of):len(of)], strconv.FormatUint(e.Number, 10))
	for _, d := range []struct {
		direction   string
		done, queue uint32
	}{{"send", e.SendTaken, e.SendQueued()}, {"receive", e.RecvTaken, e.RecvQueued()}} {
		of := append(vi[:len(vi):len(vi)], d.direction)
		to <- prometheus.MustNewConstMetric(viDone, prometheus.CounterValue, float64(d.done), of...)
		to <- prometheus.MustNewConstMetric(viQueued, prometheus.GaugeValue, float64(d.queue), of...)
	}
	if l := e.Latency; l != nil {
		to <- prometheus.MustNewConstSummary(viLatency, l.Samples, float64(l.SumNS)/1e9,
			map[float64]float64{0.5: float64(l.P50) / 1e9, 0.99: float64(l.P99) / 1e9}, vi...)
	}
}

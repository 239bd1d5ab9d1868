// Package exposition says what NICs count in Prometheus' terms: which series there are, from the
// descriptions of counters, and which values they have. It writes them as text, format 0.0.4
// (prometheus.io/docs/instrumenting/exposition_formats).
//
// Names follow Prometheus' rules: counters of a NIC are trapeze_nic_…_total, with the labels nic,
// pid and port. No peer is a label.
package exposition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// Type is that of a family of series.
type Type string

// Types.
const (
	Counter Type = "counter"
	Gauge   Type = "gauge"
	Summary Type = "summary"
)

// Family is a family of series: those with one name.
type Family struct {
	Name, Help string
	Type       Type
	Labels     []string // in order
	// Each calls emit for each value of the family that a process has.
	Each func(t *Target, emit func(Value))
}

// Value is one of a family.
type Value struct {
	// Labels are the values of the family's labels.
	Labels []string
	Number float64
	// Latency is the value of a summary.
	Latency *telemetry.Latency
}

// ofNICs makes Each of a family from that of a NIC.
func ofNICs(each func(n *nic, emit func(Value))) func(*Target, func(Value)) {
	return func(t *Target, emit func(Value)) {
		for _, n := range t.nics {
			each(n, emit)
		}
	}
}

// truth is 1 for true.
func truth(b bool) (v float64) {
	if b {
		v = 1
	}
	return v
}

// labels are those of all series of a NIC.
var labels = []string{"nic", "pid", "port"}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }

// Families are those of NICs whose Stats are as a struct that telemetry.Values takes. With vis
// each endpoint has four series, and three of its latencies if those are measured.
func Families(stats any, vis bool) []*Family {
	all := []*Family{
		{"trapeze_up", "Whether a process that shows NICs answers.", Gauge, []string{"pid", "program"}, func(t *Target, emit func(Value)) {
			if t.labels != nil {
				emit(Value{Labels: t.labels, Number: truth(t.up)})
			}
		}},
		{"trapeze_nic_info", "A NIC that a process has open.", Gauge, with([]string{"mac"}, labels...), ofNICs(func(n *nic, emit func(Value)) {
			emit(Value{Labels: with([]string{n.mac}, n.labels...), Number: 1})
		})},
		{"trapeze_nic_link_up", "Whether the link is up.", Gauge, labels,
			ofNICs(func(n *nic, emit func(Value)) { emit(Value{Labels: n.labels, Number: truth(n.up)}) })},
		{"trapeze_nic_endpoints", "Endpoints that there are.", Gauge, labels,
			ofNICs(func(n *nic, emit func(Value)) { emit(Value{Labels: n.labels, Number: float64(n.endpoints)}) })},
	}
	for _, v := range telemetry.Values(stats) {
		all = append(all, counterFamily(v))
	}
	if vis {
		all = append(all, viFamilies()...)
	}
	return all
}

// counterFamily is that of a counter of NICs.
func counterFamily(v telemetry.Value) *Family {
	f := &Family{Name: "trapeze_nic_" + v.Name, Help: v.Help, Type: Gauge, Labels: labels}
	if !v.Gauge {
		f.Name, f.Type = f.Name+"_total", Counter
	}
	f.Each = ofNICs(func(n *nic, emit func(Value)) {
		if c, ok := n.counters[v.Name]; ok {
			emit(Value{Labels: n.labels, Number: float64(c)})
		}
	})
	return f
}

// viFamilies are those of endpoints.
func viFamilies() []*Family {
	both := func(of func(*telemetry.Endpoint) (sends, receives uint64)) func(*Target, func(Value)) {
		return ofNICs(func(n *nic, emit func(Value)) {
			at := append(with([]string{""}, n.labels...), "")
			for i := range n.vis {
				e := n.vis[i].Endpoint()
				sends, receives := of(&e)
				at[len(at)-1] = strconv.FormatUint(e.Number, 10)
				at[0] = "send"
				emit(Value{Labels: at, Number: float64(sends)})
				at[0] = "receive"
				emit(Value{Labels: at, Number: float64(receives)})
			}
		})
	}
	queues := append(with([]string{"direction"}, labels...), "vi")
	return []*Family{
		{"trapeze_vi_descriptors_total", "Descriptors that the program has taken back.", Counter, queues,
			both(func(e *telemetry.Endpoint) (uint64, uint64) { return e.SendTaken, e.RecvTaken })},
		{"trapeze_vi_queued_descriptors", "Descriptors that are posted and not taken back.", Gauge, queues,
			both(func(e *telemetry.Endpoint) (uint64, uint64) { return e.SendQueued(), e.RecvQueued() })},
		{"trapeze_vi_send_latency_seconds", "Time of sends from post to completion, of those that were measured.", Summary, with(labels, "vi"),
			ofNICs(func(n *nic, emit func(Value)) {
				for i := range n.vis {
					if e := n.vis[i].Endpoint(); e.Latency != nil {
						emit(Value{Labels: with(n.labels, strconv.FormatUint(e.Number, 10)), Latency: e.Latency})
					}
				}
			})},
	}
}

// Target has the samples of a process.
type Target struct {
	pid    int
	labels []string // pid and program; nil for this process
	up     bool
	nics   []*nic
}

// nic has the samples of a NIC.
type nic struct {
	labels    []string
	mac       string
	up        bool
	endpoints int
	counters  map[string]uint64
	vis       []telemetry.EndpointCounts
}

// Process reads the NICs of this process.
func Process(ctx context.Context, vis bool) []*Target {
	of, _ := nics(ctx, telemetry.Local{}, 0, vis) // it has none then
	return []*Target{{up: true, nics: of}}
}

// Host reads the NICs of all processes of this host that this user may look at, in the order of
// process numbers. A process that does not answer has no NICs.
func Host(ctx context.Context, vis bool) (list []*Target) {
	var mu sync.Mutex // guards list
	add := func(pid int, program string, up bool, of []*nic) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, &Target{pid, []string{strconv.Itoa(pid), program}, up, of})
	}
	unresponsive := telemetry.Each(ctx, func(ctx context.Context, c *telemetry.Client) error {
		of, err := nics(ctx, c, c.PID, vis)
		if err == nil {
			add(c.PID, c.Program, true, of)
		}
		return errors.Join(err, c.Close())
	})
	for _, s := range unresponsive {
		add(s.PID, s.Program, false, nil)
	}
	slices.SortStableFunc(list, func(a, b *Target) int { return cmp.Compare(a.pid, b.pid) })
	return list
}

// nics reads the NICs of a process.
func nics(ctx context.Context, a telemetry.Asker, pid int, vis bool) (list []*nic, err error) {
	shown, err := telemetry.NICs(ctx, a)
	for _, s := range shown {
		n, err := read(ctx, a, pid, s, vis)
		switch {
		case err == nil:
			list = append(list, n)
		case !errors.Is(err, telemetry.ErrNoAnswer): // else it was closed meanwhile
			return nil, err
		}
	}
	return list, err
}

// read reads one NIC.
func read(ctx context.Context, a telemetry.Asker, pid int, s telemetry.Shown, vis bool) (n *nic, err error) {
	var link struct{ Status string }
	n = &nic{labels: []string{s.Name, strconv.Itoa(pid), strconv.Itoa(s.Port)}, mac: s.MAC, endpoints: s.Endpoints}
	for command, into := range map[string]any{"/ethdev/link_status": &link, "/ethdev/xstats": &n.counters} {
		if err := a.Ask(ctx, fmt.Sprintf("%s,%d", command, s.Port), into); err != nil {
			return nil, err
		}
	}
	n.up = link.Status == "UP"
	if vis {
		n.vis, err = telemetry.Counted(ctx, a, s.Port)
	}
	return n, err
}

package published

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
)

// Kind says what a computed figure is worth.
type Kind string

// Kinds of rows.
const (
	Predicted   Kind = "computed"     // comes out of a run in virtual time
	Input       Kind = "input"        // a cost that the profile states; shown for completeness
	NotModelled Kind = "not modelled" // no computation stands for it
)

// dimension is a set of what a figure can be.
type dimension int

const (
	duration dimension = 1 << iota // computed in microseconds
	rate                           // computed in MB/s
	size                           // computed in bytes
	percent
	ratio
	count
	frequency // computed in MHz
)

// columns is a set of those that a computation needs beside the platforms.
type columns int

const (
	policy columns = 1 << iota
	payload
	celled           // the platform is one with cells
	bridged          // the platform is one with a bridge
	onSystem         // the platform is a memory system
	none     columns = 0
	frame            = policy | payload
)

// units are those that a figure can be stated in. A computed figure is multiplied by
// scale to be in the unit.
var units = map[string]struct {
	dimension
	scale float64
}{
	"ns": {duration, 1e3}, "us": {duration, 1}, "ms": {duration, 1e-3}, "s": {duration, 1e-6},
	"KB/s": {rate, 1e3}, "MB/s": {rate, 1}, "GB/s": {rate, 1e-3}, "Mb/s": {rate, 8}, "Gb/s": {rate, 8e-3},
	"Mbytes/s": {rate, 1}, "Gbps": {rate, 8e-3},
	"bits": {size, 8}, "B": {size, 1}, "bytes": {size, 1}, "KB": {size, 1.0 / 1024}, "MB": {size, 1.0 / (1 << 20)},
	"MHz": {frequency, 1}, "GHz": {frequency, 1e-3}, "count": {count, 1}, "way": {count, 1}, "cycle": {count, 1}, "cycles": {count, 1},
	"%": {percent, 1}, "ratio": {ratio, 1},
}

// computation is a way to come to a figure from the columns of a row.
type computation struct {
	kind Kind
	dimension
	needs columns
	fold  func(x, y float64) float64 // joins several platforms; nil = of one only
	of    func(*figure) float64      // on one platform
}

// Static pulses are tried at multiples of pulseStep bytes, and thresholds at the powers of
// two from leastThreshold, both up to greatestPulse. All three are choices of ours.
const (
	pulseStep      = 128
	greatestPulse  = 4096
	leastThreshold = 64
)

// computations by name. None knows a published value.
var computations = merged(map[string]computation{
	"latency":                                 {Predicted, duration, frame, nil, (*figure).latency},
	"greatest latency":                        {Predicted, duration, frame, math.Max, (*figure).latency},
	"twice the latency":                       {Predicted, duration, frame, nil, func(f *figure) float64 { return 2 * f.latency() }},
	"latency at the best pulse":               {Predicted, duration, frame, nil, func(f *figure) float64 { return f.best(f.Policy) }},
	"transfers without overheads":             {Predicted, duration, payload, nil, withoutOverheads},
	"page fetch":                              {Predicted, duration, frame, nil, (*figure).fetch},
	"reduction of latency":                    {Predicted, percent, frame, nil, func(f *figure) float64 { return less(f.latency(), f.whole()) }},
	"reduction of latency at the best pulse":  {Predicted, percent, frame, nil, func(f *figure) float64 { return less(f.best(f.Policy), f.whole()) }},
	"reduction against the best static pulse": {Predicted, percent, frame, nil, func(f *figure) float64 { return less(f.latency(), f.best("static")) }},
	"least reduction by cut-through":          {Predicted, percent, payload, math.Min, func(f *figure) float64 { return slices.Min(f.reductions()) }},
	"greatest reduction by cut-through":       {Predicted, percent, payload, math.Max, func(f *figure) float64 { return slices.Max(f.reductions()) }},
	"best threshold":                          {Predicted, size, frame, nil, bestThreshold},
	"middle of the near-optimal pulses":       {Predicted, size, frame, nil, nearOptimalPulse},
	"least payload that gains":                {Predicted, size, frame, nil, leastThatGains},
	"stream bandwidth":                        {Predicted, rate, frame, nil, func(f *figure) float64 { return f.bandwidth(false) }},
	"bandwidth of two streams":                {Predicted, rate, frame, nil, func(f *figure) float64 { return f.bandwidth(true) }},
	"bandwidth lost by a stream":              {Predicted, percent, frame, nil, func(f *figure) float64 { return less(f.bandwidth(false), f.Sender.Read.Bandwidth()) }},

	"hostTx":  {Predicted, duration | rate, payload, nil, func(f *figure) float64 { return f.transfer(f.Sender.Read) }},
	"netTx":   {Predicted, duration | rate, payload, nil, func(f *figure) float64 { return f.transfer(f.Link.Pulse) }},
	"hostRcv": {Predicted, duration | rate, payload, nil, func(f *figure) float64 { return f.transfer(f.Receiver.Write) }},

	"bus read bandwidth":   {Input, rate, none, nil, func(f *figure) float64 { return f.Sender.Read.Bandwidth() }},
	"lowest bus bandwidth": {Input, rate, none, math.Min, func(f *figure) float64 { return min(f.Sender.Read.Bandwidth(), f.Receiver.Write.Bandwidth()) }},
	"bus write over read":  {Input, ratio, none, nil, func(f *figure) float64 { return f.Receiver.Write.Bandwidth() / f.Sender.Read.Bandwidth() }},
	"link bandwidth":       {Input, rate, none, nil, func(f *figure) float64 { return f.Link.Pulse.Bandwidth() }},
	"link latency":         {Input, duration, none, nil, func(f *figure) float64 { return f.Link.Latency.Microseconds() }},
	"header":               {Input, size, none, nil, func(f *figure) float64 { return float64(f.Link.Header) }},

	"cell, one way":           {Predicted, duration, celled, nil, (*figure).lone},
	"cell interval":           {Predicted, duration, celled, nil, func(f *figure) float64 { return f.scenario("stream").Interval.Microseconds() }},
	"cell data rate":          {Predicted, rate, celled, nil, func(f *figure) float64 { return megabytes(f.scenario("stream").Data) }},
	"cell total rate":         {Predicted, rate, celled, nil, func(f *figure) float64 { return megabytes(f.scenario("stream").Total) }},
	"cell bounce":             {Predicted, duration, celled, nil, func(f *figure) float64 { return f.scenario("bounce").RoundTrip.Microseconds() }},
	"cell bounce rate":        {Predicted, rate, celled, nil, func(f *figure) float64 { return megabytes(f.scenario("bounce").Data) }},
	"message interval":        {Predicted, duration, celled | payload, nil, (*figure).messageInterval},
	"message, one way":        {Predicted, duration, celled | payload, nil, func(f *figure) float64 { return f.scenario("message").OneWay.Microseconds() }},
	"cells of a message":      {Predicted, count, celled | payload, nil, func(f *figure) float64 { return float64(cells.Count(f.Payload)) }},
	"barrier per participant": {Predicted, duration, celled, nil, (*figure).perParticipant},
	"multicast stores":        {Predicted, count, celled, nil, func(f *figure) float64 { return float64(f.scenario("multicast").Stores) }},
	"FIFO write":              {Input, duration, celled, nil, func(f *figure) float64 { return f.cells.Store.Microseconds() }},
	"cell send":               {Input, duration, celled, nil, func(f *figure) float64 { return f.cells.Send.Microseconds() }},
	"cell path":               {Input, duration, celled, nil, func(f *figure) float64 { return f.cells.Path.Microseconds() }},
	"programmed write rate":   {Predicted, rate, bridged, nil, programmed(coherence.PIOWrite)},
	"programmed read rate":    {Predicted, rate, bridged, nil, programmed(coherence.PIORead)},
	"programmed read burst":   {Predicted, size, bridged, nil, func(f *figure) float64 { return float64(f.atBridge(coherence.PIORead, coherence.NoDMA).Burst) }},
	"DMA beside a block copy": {Predicted, duration, bridged | payload, nil, func(f *figure) float64 {
		return f.atBridge(coherence.BlockCopy, coherence.SendDMA).Transfer.Microseconds()
	}},
	"block copy lost to DMA": {Predicted, percent, bridged | payload, nil, func(f *figure) float64 {
		return f.atBridge(coherence.BlockCopy, coherence.SendDMA).Processor.Less
	}},
	"DMA lost to a block copy": {Predicted, percent, bridged | payload, nil, func(f *figure) float64 { return f.atBridge(coherence.BlockCopy, coherence.SendDMA).DMA.Less }},
	"cell receive":             {Input, duration, celled, nil, func(f *figure) float64 { return f.cells.Receive.Microseconds() }},
}, onLogged(), comparisons(), onSystems)

func merged(sets ...map[string]computation) map[string]computation {
	all := map[string]computation{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}

// less is the difference of a base and a value, in percent of the base.
func less(value, base float64) float64 { return 100 * (1 - value/base) }

// Computations returns the names of the computations, sorted.
func Computations() []string {
	return slices.Sorted(maps.Keys(computations))
}

// Kind returns what the figure that is computed for a row is worth.
func (r *Row) Kind() Kind {
	if c, ok := computations[r.Compute]; ok {
		return c.kind
	}
	return NotModelled
}

// What says in words what is computed for a row, or why nothing is.
func (r *Row) What() string {
	if r.Note != "" {
		return r.Note
	}
	parts := slices.Clone(r.Platforms)
	if r.Policy != "" {
		parts = append(parts, r.Policy)
	}
	if r.Payload > 0 {
		parts = append(parts, fmt.Sprint(r.Payload, " B"))
	}
	if r.Send > 0 || r.Receive > 0 {
		parts = append(parts, "thresholds "+threshold(r.Send)+" and "+threshold(r.Receive))
	}
	return r.Compute + ": " + strings.Join(parts, ", ")
}

func threshold(n int) string {
	if n == 0 {
		return "default"
	}
	return fmt.Sprint(n, " B")
}

// Compute returns a row's figure in its unit, the lower end of one that has two; it is 0
// for a row that is not modelled.
func (m *Model) Compute(r Row) (float64, error) {
	v, err := m.span(r)
	return v.low, err
}

// span is a figure with two ends; a single one has both at the same place.
type span struct{ low, high float64 }

func (m *Model) span(r Row) (v span, err error) {
	c, ok := computations[r.Compute]
	if !ok {
		return v, nil
	}
	scale := units[r.Unit].scale
	v.low, err = m.onPlatforms(&r, c)
	v.high = v.low
	if of, ok := upper[r.Compute]; ok && err == nil {
		c.of = of
		v.high, err = m.onPlatforms(&r, c)
	}
	return span{v.low * scale, v.high * scale}, err
}

func (m *Model) onPlatforms(r *Row, c computation) (float64, error) {
	var v float64
	for i, name := range r.Platforms {
		f := figure{Row: r, m: m, name: name}
		var err error
		switch {
		case c.needs&celled != 0:
			f.cells, err = profile.CellHosts.Load(name)
		case c.needs&bridged != 0:
			f.bridge, err = profile.Bridges.Load(name)
		case c.needs&onSystem != 0:
			f.system, err = m.system(name)
		default:
			f.Profile, err = m.load(name)
		}
		if err != nil {
			return 0, err
		}
		one := c.of(&f)
		if f.err != nil {
			return 0, f.err
		}
		if i > 0 {
			one = c.fold(v, one)
		}
		v = one
	}
	return v, nil
}

// figure is a row that is computed on one platform. The first error stays.
type figure struct {
	*Row
	*profile.Profile
	cells  *profile.Cells        // instead of Profile, of a computation with cells
	bridge *profile.MemorySystem // the same of one with a bridge
	system *profile.MemorySystem // the same of one on a memory system
	m      *Model
	name   string // of the platform, for the model
	err    error
}

func (f *figure) run(policy string, send, receive, payload, count int, both bool) (latency, bandwidth float64) {
	r := f.result(key{platform: f.name, policy: policy, send: send, receive: receive, payload: payload, count: count, both: both})
	return r.Latency.Microseconds(), r.Bandwidth
}

func (f *figure) result(k key) *virtual.Result {
	return kept(f, k, func() (*virtual.Result, error) { return f.m.run(k) })
}

// one is the latency of the row's payload in microseconds under any policy, with one
// pulse or threshold for both sides, 0 for the policy's own.
func (f *figure) one(policy string, pulse int) float64 {
	l, _ := f.run(policy, pulse, pulse, f.Payload, 1, false)
	return l
}

func (f *figure) whole() float64 { return f.one("store-and-forward", 0) }

func (f *figure) latency() float64 {
	l, _ := f.run(f.Policy, f.Send, f.Receive, f.Payload, 1, false)
	return l
}

// fetch is the time of a page that is asked for, of a server that takes none.
func (f *figure) fetch() float64 {
	o := virtual.Options{Profile: f.Profile}
	request, _ := o.Request()
	return request.Microseconds() + f.latency()
}

// bandwidth of a stream or, if both hosts send one, of the two together.
func (f *figure) bandwidth(both bool) float64 {
	_, b := f.run(f.Policy, f.Send, f.Receive, f.Payload, streamFrames, both)
	return b
}

// transfer is the time of one transfer, or its bandwidth if the row's unit is a rate's.
func (f *figure) transfer(c profile.Cost) float64 {
	us := c.Transfer(f.Payload).Microseconds()
	if units[f.Unit].dimension == rate {
		return float64(f.Payload) / us
	}
	return us
}

// best is the lowest latency of a policy over its pulses.
func (f *figure) best(policy string) float64 {
	lowest := math.Inf(1)
	for n := min(pulseStep, f.Payload); n <= min(greatestPulse, f.Payload); n += pulseStep {
		lowest = min(lowest, f.one(policy, n))
	}
	return lowest
}

// reductions of latency against store and forward by each cut-through policy, in
// percent, static pulses at their best.
func (f *figure) reductions() []float64 {
	all := []float64{f.one("pure-cut-through", 0), f.one("amp", 0), f.best("static")}
	for i, l := range all {
		all[i] = less(l, f.whole())
	}
	return all
}

// gigabit is the link that the cut-through paper assumes for its lower bound (section 4.1).
var gigabit = profile.NewCost(0, 125)

// withoutOverheads is the time of the bytes alone over bus, a gigabit link and bus.
func withoutOverheads(f *figure) float64 {
	return (f.Sender.Read.Bytes(f.Payload) + gigabit.Bytes(f.Payload) + f.Receiver.Write.Bytes(f.Payload)).Microseconds()
}

func bestThreshold(f *figure) float64 {
	best, lowest := 0, 0.0
	for n := leastThreshold; n <= min(greatestPulse, f.Payload); n *= 2 {
		if l := f.one(f.Policy, n); best == 0 || l < lowest {
			best, lowest = n, l
		}
	}
	return float64(best)
}

// nearOptimalPulse returns the middle of the range of pulses whose latency is within
// 2 % of the best: the curve is flat and its very minimum means little.
func nearOptimalPulse(f *figure) float64 {
	low, high := 0, 0
	best := f.best(f.Policy)
	for n := pulseStep; n <= min(greatestPulse, f.Payload); n += pulseStep {
		if f.one(f.Policy, n) <= best*1.02 {
			if low == 0 {
				low = n
			}
			high = n
		}
	}
	return float64(low+high) / 2
}

// leastThatGains returns the least payload, in steps of 64 bytes up to the row's, that
// the policy makes 5 % faster than store and forward; 0 if there is none. Its threshold
// is 128 bytes, which the papers found to be the best.
func leastThatGains(f *figure) float64 {
	for n := 64; n <= f.Payload && f.err == nil; n += 64 {
		whole, _ := f.run("store-and-forward", 0, 0, n, 1, false)
		l, _ := f.run(f.Policy, min(128, n), min(128, n), n, 1, false)
		if l < 0.95*whole {
			return float64(n)
		}
	}
	return 0
}

// A disk of the cut-through paper: an average seek in microseconds, which is an assumption, and turns a
// minute. ATM over an OC-3 link: bytes of a cell with its header, and bits a microsecond (ITU-T I.432.2).
const (
	averageSeek = 8000
	turns       = 7200
	atmCell     = 53
	atmRate     = 155.52
)

// comparisons are the computations of what follows from latency and bandwidth: beside store and
// forward, and for each packet.
func comparisons() map[string]computation {
	all := map[string]computation{
		"latency saved": {Predicted, duration, frame, nil, func(f *figure) float64 { return f.whole() - f.latency() }},
		"speedup":       {Predicted, ratio, frame, nil, func(f *figure) float64 { return f.whole() / f.latency() }},
		"latency over that of store and forward": {Predicted, ratio | percent, frame, nil, func(f *figure) float64 {
			return f.share(f.latency() / f.whole())
		}},
		"bandwidth over that of store and forward": {Predicted, ratio | percent, frame, nil, func(f *figure) float64 {
			return f.share(f.bandwidth(false) / f.wholeBandwidth())
		}},
		"reduction of bandwidth":  {Predicted, percent, frame, nil, func(f *figure) float64 { return less(f.bandwidth(false), f.wholeBandwidth()) }},
		"bandwidth lost":          {Predicted, rate, frame, nil, func(f *figure) float64 { return f.wholeBandwidth() - f.bandwidth(false) }},
		"time between packets":    {Predicted, duration, frame, nil, func(f *figure) float64 { return float64(f.Payload) / f.bandwidth(false) }},
		"bandwidth of one packet": {Predicted, rate, frame, nil, func(f *figure) float64 { return float64(f.Payload) / f.latency() }},
	}
	all["disk access"] = computation{Predicted, duration, payload, nil, func(*figure) float64 { return averageSeek + 60e6/turns/2 }}
	all["cells at 155 Mb/s"] = computation{Predicted, duration, payload, nil, func(f *figure) float64 { return float64(8*atmCell*cells.Count(f.Payload)) / atmRate }}
	for e := range dmalog.Engines {
		all[e.String()+" transfers of a packet"] = computation{Predicted, count, frame, nil, func(f *figure) float64 { return f.transferCount(e) }}
	}
	return all
}

// share is a ratio, in percent if the row's unit is that.
func (f *figure) share(x float64) float64 {
	if units[f.Unit].dimension == percent {
		return 100 * x
	}
	return x
}

func (f *figure) wholeBandwidth() float64 {
	_, b := f.run("store-and-forward", 0, 0, f.Payload, streamFrames, false)
	return b
}

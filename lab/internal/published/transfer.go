package published

import (
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// The EDT paper's messages are from leastMessage to greatestMessage bytes (section 7.2). It
// names no others, so they are doubled from one to the next.
const (
	leastMessage    = 64
	greatestMessage = 4096
)

// tagBytes are those of an eager region's tag: start and end of host and NIC memory, and
// the access bit, of 4 bytes each as of a NIC of 32 bits.
const tagBytes = 5 * 4

type transferKey struct {
	system    string
	mechanism coherence.Mechanism
	bytes     int
}

// upper are the computations of figures that are ranges: each returns the upper end, and the one in computations the lower.
var upper = map[string]func(*figure) float64{
	"range of reductions by edt": greatest(coherence.EDT),
	"range of reductions by cni": greatest(coherence.CNI),
	"messages":                   func(*figure) float64 { return greatestMessage },
	firstRates:                   func(f *figure) float64 { _, high := f.firstRates(); return high },
}

// onSystems are the computations of the EDT paper's figures, by name.
var onSystems = map[string]computation{
	"range of reductions by edt": {Predicted, percent, policy | onSystem, nil, least(coherence.EDT)},
	"least reduction by edt":     {Predicted, percent, policy | onSystem, nil, least(coherence.EDT)},
	"greatest reduction by edt":  {Predicted, percent, policy | onSystem, nil, greatest(coherence.EDT)},
	"reduction by edt": {Predicted, percent, frame | onSystem, nil, func(f *figure) float64 {
		return less(f.by(coherence.EDT, f.Payload).Total().Microseconds(), f.message().Total().Microseconds())
	}},
	"latency of a message":           part(func(r *coherence.Result) coherence.Time { return r.Total() }),
	"user part":                      part(func(r *coherence.Result) coherence.Time { return r.User }),
	"data transfer part":             part(func(r *coherence.Result) coherence.Time { return r.Transfer }),
	"transport part":                 part(func(r *coherence.Result) coherence.Time { return r.Transport }),
	"initiation":                     part(func(r *coherence.Result) coherence.Time { return r.Initiation }),
	"execution":                      part(func(r *coherence.Result) coherence.Time { return r.Execution() }),
	"interrupt":                      part(func(r *coherence.Result) coherence.Time { return r.Interrupt }),
	"transport of the sender":        part(func(r *coherence.Result) coherence.Time { return r.SendTransport }),
	"transport of the receiver":      part(func(r *coherence.Result) coherence.Time { return r.Transport - r.SendTransport }),
	"range of reductions by cni":     {Predicted, percent, policy | onSystem, nil, least(coherence.CNI)},
	"transactions of a block":        {Predicted, count, frame | onSystem, nil, transactionsOfABlock},
	"invalidations of a queue pass":  {Predicted, count, payload | onSystem, nil, invalidationsOfAPass},
	"registrations":                  {Predicted, count, payload | onSystem, nil, registrations},
	"messages":                       {Input, size, onSystem, nil, func(*figure) float64 { return leastMessage }},
	"uncached access":                {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.Processor.Word) }},
	"processor clock":                {Input, frequency, onSystem, nil, func(f *figure) float64 { return megahertz(f.system.Processor.Cycle) }},
	"memory bus clock":               {Input, frequency, onSystem, nil, func(f *figure) float64 { return megahertz(f.system.Bus.Cycle) }},
	"memory bus width":               {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.Bus.Width) }},
	"memory bus bandwidth":           {Input, rate, onSystem, nil, func(f *figure) float64 { return f.system.Bus.Peak() }},
	"nic clock":                      {Input, frequency, onSystem, nil, func(f *figure) float64 { return megahertz(f.system.NIC.Cycle) }},
	"nic dma bandwidth":              {Input, rate, onSystem, nil, func(f *figure) float64 { return f.system.NIC.DMA }},
	"nic memory latency":             {Input, duration, onSystem, nil, func(f *figure) float64 { return f.system.NIC.Latency.Microseconds() }},
	"mtu":                            {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.NIC.MTU) }},
	"size of the first-level cache":  {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.L1.Size) }},
	"line of the first-level cache":  {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.L1.Line) }},
	"ways of the first-level cache":  {Input, count, onSystem, nil, func(f *figure) float64 { return float64(f.system.L1.Ways) }},
	"hit in the first-level cache":   {Input, count, onSystem, nil, func(f *figure) float64 { return float64(f.system.L1.Latency) }},
	"size of the second-level cache": {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.L2.Size) }},
	"line of the second-level cache": {Input, size, onSystem, nil, func(f *figure) float64 { return float64(f.system.L2.Line) }},
	"ways of the second-level cache": {Input, count, onSystem, nil, func(f *figure) float64 { return float64(f.system.L2.Ways) }},
	"hit in the second-level cache":  {Input, count, onSystem, nil, func(f *figure) float64 { return float64(f.system.L2.Latency) }},
}

// part is a span of one message's latency.
func part(of func(*coherence.Result) coherence.Time) computation {
	return computation{Predicted, duration, frame | onSystem, nil, func(f *figure) float64 { return of(f.message()).Microseconds() }}
}

func (f *figure) message() *coherence.Result {
	return f.by(coherence.Mechanism(f.Policy), f.Payload)
}

func megahertz(cycle profile.Time) float64 { return 1e6 / float64(cycle) }

func (f *figure) by(m coherence.Mechanism, bytes int) *coherence.Result {
	return kept(f, transferKey{f.name, m, bytes}, func() (*coherence.Result, error) {
		return coherence.Run(f.m.ctx, coherence.Options{System: f.system, Mechanism: m, Bytes: bytes})
	})
}

// reductionsBy are the least and the greatest by which a mechanism's latency is below that
// of the row's, over all sizes of messages, in percent of theirs.
func (f *figure) reductionsBy(m coherence.Mechanism) (low, high float64) {
	low, high = 100, -100
	for _, other := range strings.Fields(f.Policy) {
		for n := leastMessage; n <= greatestMessage && f.err == nil; n *= 2 {
			r := less(f.by(m, n).Total().Microseconds(), f.by(coherence.Mechanism(other), n).Total().Microseconds())
			low, high = min(low, r), max(high, r)
		}
	}
	return low, high
}

// least and greatest are the ends of the range of such reductions.
func least(m coherence.Mechanism) func(*figure) float64 {
	return func(f *figure) float64 { low, _ := f.reductionsBy(m); return low }
}

func greatest(m coherence.Mechanism) func(*figure) float64 {
	return func(f *figure) float64 { _, high := f.reductionsBy(m); return high }
}

// onSender counts the sender's transactions of a region.
func (f *figure) onSender(m coherence.Mechanism, region coherence.Region) float64 {
	n := 0
	for _, x := range f.by(m, f.Payload).Transactions {
		if x.Side == coherence.Sender && x.Region == region {
			n++
		}
	}
	return float64(n)
}

func transactionsOfABlock(f *figure) float64 {
	blocks := (f.Payload + f.system.NIC.Block - 1) / f.system.NIC.Block
	return f.onSender(coherence.Mechanism(f.Policy), coherence.Payload) / float64(blocks)
}

// invalidationsOfAPass are those of the pointers while a message passes the queue.
func invalidationsOfAPass(f *figure) float64 {
	passes := (f.Payload + f.system.NIC.Queue - 1) / f.system.NIC.Queue
	return f.onSender(coherence.CNI, coherence.Pointers) / float64(passes)
}

// registrations is the number of eager regions of the row's bytes that the NIC's memory holds:
// for each a buffer, a tag, and a status bit for each block.
func registrations(f *figure) float64 {
	bits := (f.Payload + f.system.NIC.Block - 1) / f.system.NIC.Block
	return float64(f.system.NIC.Memory / (f.Payload + tagBytes + (bits+7)/8))
}

// memorySystems are those that a row can name: with a bus on which all see everything,
// which the figures of the papers need.
func memorySystems() []string {
	return slices.DeleteFunc(profile.Systems.Names(), func(name string) bool {
		s, err := profile.Systems.Load(name)
		return err != nil || s.Bus == nil
	})
}

func mechanisms() []string {
	var names []string
	for _, m := range coherence.Mechanisms(nil) {
		names = append(names, string(m))
	}
	return names
}

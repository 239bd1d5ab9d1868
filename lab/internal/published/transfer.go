package published

import (
	"cmp"
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

// transfers is a row that is computed on one memory system. The first error stays.
type transfers struct {
	*Row
	*profile.MemorySystem
	m    *Model
	name string // of the system, for the model
	err  error
}

// transferKey is a transfer that was computed.
type transferKey struct {
	system    string
	mechanism coherence.Mechanism
	bytes     int
}

// span is a figure with two ends; a single one has both at the same place.
type span struct{ low, high float64 }

func single(of func(*transfers) float64) func(*transfers) span {
	return func(f *transfers) span {
		v := of(f)
		return span{v, v}
	}
}

// systemComputation is a computation on one memory system.
type systemComputation struct {
	computation
	span func(*transfers) span
}

func on(k Kind, d dimension, needs columns) computation {
	return computation{kind: k, dimension: d, needs: needs}
}

// onMemorySystem are the computations of the EDT paper's figures, by name.
var onMemorySystem = map[string]systemComputation{
	"range of reductions by edt": {on(Predicted, percent, policy), func(f *transfers) span { return f.reductions(coherence.EDT) }},
	"least reduction by edt":     {on(Predicted, percent, policy), single(func(f *transfers) float64 { return f.reductions(coherence.EDT).low })},
	"greatest reduction by edt":  {on(Predicted, percent, policy), single(func(f *transfers) float64 { return f.reductions(coherence.EDT).high })},
	"reduction by edt": {on(Predicted, percent, frame), single(func(f *transfers) float64 {
		return less(f.transfer(coherence.EDT, f.Payload).Total().Microseconds(), f.message().Total().Microseconds())
	})},
	"latency of a message":           part(func(r *coherence.Result) coherence.Time { return r.Total() }),
	"user part":                      part(func(r *coherence.Result) coherence.Time { return r.User }),
	"data transfer part":             part(func(r *coherence.Result) coherence.Time { return r.Transfer }),
	"transport part":                 part(func(r *coherence.Result) coherence.Time { return r.Transport }),
	"initiation":                     part(func(r *coherence.Result) coherence.Time { return r.Initiation }),
	"execution":                      part(func(r *coherence.Result) coherence.Time { return r.Execution() }),
	"interrupt":                      part(func(r *coherence.Result) coherence.Time { return r.Interrupt }),
	"transport of the sender":        part(func(r *coherence.Result) coherence.Time { return r.SendTransport }),
	"transport of the receiver":      part(func(r *coherence.Result) coherence.Time { return r.Transport - r.SendTransport }),
	"range of reductions by cni":     {on(Predicted, percent, policy), func(f *transfers) span { return f.reductions(coherence.CNI) }},
	"transactions of a block":        {on(Predicted, count, frame), single(transactionsOfABlock)},
	"invalidations of a queue pass":  {on(Predicted, count, payload), single(invalidationsOfAPass)},
	"registrations":                  {on(Predicted, count, payload), single(registrations)},
	"messages":                       {on(Input, size, none), func(*transfers) span { return span{leastMessage, greatestMessage} }},
	"uncached access":                {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.Processor.Word) })},
	"processor clock":                {on(Input, frequency, none), single(func(f *transfers) float64 { return megahertz(f.Processor.Cycle) })},
	"memory bus clock":               {on(Input, frequency, none), single(func(f *transfers) float64 { return megahertz(f.Bus.Cycle) })},
	"memory bus width":               {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.Bus.Width) })},
	"memory bus bandwidth":           {on(Input, rate, none), single(func(f *transfers) float64 { return f.Bus.Peak() })},
	"nic clock":                      {on(Input, frequency, none), single(func(f *transfers) float64 { return megahertz(f.NIC.Cycle) })},
	"nic dma bandwidth":              {on(Input, rate, none), single(func(f *transfers) float64 { return f.NIC.DMA })},
	"nic memory latency":             {on(Input, duration, none), single(func(f *transfers) float64 { return f.NIC.Latency.Microseconds() })},
	"mtu":                            {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.NIC.MTU) })},
	"size of the first-level cache":  {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.L1.Size) })},
	"line of the first-level cache":  {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.L1.Line) })},
	"ways of the first-level cache":  {on(Input, count, none), single(func(f *transfers) float64 { return float64(f.L1.Ways) })},
	"hit in the first-level cache":   {on(Input, count, none), single(func(f *transfers) float64 { return float64(f.L1.Latency) })},
	"size of the second-level cache": {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.L2.Size) })},
	"line of the second-level cache": {on(Input, size, none), single(func(f *transfers) float64 { return float64(f.L2.Line) })},
	"ways of the second-level cache": {on(Input, count, none), single(func(f *transfers) float64 { return float64(f.L2.Ways) })},
	"hit in the second-level cache":  {on(Input, count, none), single(func(f *transfers) float64 { return float64(f.L2.Latency) })},
}

// part is a span of one message's latency.
func part(of func(*coherence.Result) coherence.Time) systemComputation {
	return systemComputation{on(Predicted, duration, frame), single(func(f *transfers) float64 { return of(f.message()).Microseconds() })}
}

// message is one of the row's bytes by its mechanism.
func (f *transfers) message() *coherence.Result {
	return f.transfer(coherence.Mechanism(f.Policy), f.Payload)
}

// megahertz is the rate of a clock.
func megahertz(cycle profile.Time) float64 { return 1e6 / float64(cycle) }

// transfer is one message by a mechanism.
func (f *transfers) transfer(m coherence.Mechanism, bytes int) *coherence.Result {
	r := kept(f.m.transfers, transferKey{f.name, m, bytes}, &f.err, func() (*coherence.Result, error) {
		return coherence.Run(f.m.ctx, coherence.Options{System: f.MemorySystem, Mechanism: m, Bytes: bytes})
	})
	return cmp.Or(r, &coherence.Result{})
}

// reductions are the least and the greatest by which a mechanism's latency is below that
// of the row's, over all sizes of messages, in percent of theirs.
func (f *transfers) reductions(by coherence.Mechanism) span {
	all := span{100, -100}
	for _, other := range strings.Fields(f.Policy) {
		for n := leastMessage; n <= greatestMessage && f.err == nil; n *= 2 {
			r := less(f.transfer(by, n).Total().Microseconds(), f.transfer(coherence.Mechanism(other), n).Total().Microseconds())
			all = span{min(all.low, r), max(all.high, r)}
		}
	}
	return all
}

// onSender counts the sender's transactions of a region.
func (f *transfers) onSender(m coherence.Mechanism, region coherence.Region) float64 {
	n := 0
	for _, x := range f.transfer(m, f.Payload).Transactions {
		if x.Side == coherence.Sender && x.Region == region {
			n++
		}
	}
	return float64(n)
}

func transactionsOfABlock(f *transfers) float64 {
	blocks := (f.Payload + f.NIC.Block - 1) / f.NIC.Block
	return f.onSender(coherence.Mechanism(f.Policy), coherence.Payload) / float64(blocks)
}

// invalidationsOfAPass are those of the pointers while a message passes the queue.
func invalidationsOfAPass(f *transfers) float64 {
	passes := (f.Payload + f.NIC.Queue - 1) / f.NIC.Queue
	return f.onSender(coherence.CNI, coherence.Pointers) / float64(passes)
}

// registrations is the number of eager regions of the row's bytes that the NIC's memory holds:
// for each a buffer, a tag, and a status bit for each block.
func registrations(f *transfers) float64 {
	bits := (f.Payload + f.NIC.Block - 1) / f.NIC.Block
	return float64(f.NIC.Memory / (f.Payload + tagBytes + (bits+7)/8))
}

// memorySystems are those that a row can name: with a bus on which all see everything,
// which the figures of the papers need.
func memorySystems() []string {
	return slices.DeleteFunc(profile.Systems.Names(), func(name string) bool {
		s, err := profile.Systems.Load(name)
		return err != nil || s.Bus == nil
	})
}

// mechanisms are the names of all mechanisms.
func mechanisms() []string {
	var names []string
	for _, m := range coherence.Mechanisms(nil) {
		names = append(names, string(m))
	}
	return names
}

package coherence

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// complete checks the options and puts in what they leave open.
func (o *Options) complete() error {
	o.Until, o.Receiving = cmp.Or(o.Until, Delivered), cmp.Or(o.Receiving, WriteBack)
	o.Order, o.Initialising = cmp.Or(o.Order, Sequential), cmp.Or(o.Initialising, Flush)
	known := Mechanisms(o.System)
	switch highest := HighestRate(o.System); {
	case !slices.Contains(known, o.Mechanism):
		return refuse("mechanism", string(o.Mechanism), join(known)+" on "+o.System.Name)
	case o.Bytes < 1 || o.Bytes > MaxBytes:
		return refuse("bytes", strconv.Itoa(o.Bytes), fmt.Sprintf("1 to %d", MaxBytes))
	case !(o.DMARate == 0 || o.DMARate >= 1 && o.DMARate <= highest):
		return refuse("dma-rate", fmt.Sprint(o.DMARate), fmt.Sprintf("1 to %g MB/s", highest))
	case o.Until == Consumed && o.System.PCIe != nil:
		return refuse("until", string(o.Until), "wire, delivered on "+o.System.Name)
	case o.Receiving != WriteBack && (o.Receiving != Coherent || o.Mechanism != EDT):
		return refuse("receiving", string(o.Receiving), "write-back; coherent with edt")
	}
	o.DMARate = cmp.Or(o.DMARate, HighestRate(o.System))
	words := ceil(o.Bytes, o.System.Processor.Word)
	if o.Words == nil {
		o.Words = o.Order.words(words, o.System.NIC.Block/o.System.Processor.Word, o.Seed)
	}
	return nil
}

// HighestRate returns what the NIC's DMA engine moves at most, in MB/s.
func HighestRate(s *profile.MemorySystem) float64 {
	if s.PCIe != nil {
		return s.PCIe.Sender.Read.Bandwidth()
	}
	return min(s.NIC.DMA, s.Bus.Peak())
}

func refuse(field, value, allowed string) error {
	return &option.Error{Option: "--" + field, Value: value, Allowed: allowed}
}

func join[T ~string](names []T) string {
	text := make([]string, len(names))
	for i, n := range names {
		text[i] = string(n)
	}
	return strings.Join(text, ", ")
}

func ceil(a, b int) int { return (a + b - 1) / b }

// Mechanism is a way to bring a message from a program to the NIC and back.
type Mechanism string

// Mechanisms.
const (
	EDT       Mechanism = "edt"
	CCDMAIntv Mechanism = "cc-dma-intv"
	CCDMARetr Mechanism = "cc-dma-retry"
	DMA       Mechanism = "dma"
	CNI       Mechanism = "cni"
	PIO       Mechanism = "pio"
	PIOWC     Mechanism = "pio-wc"
	Inline    Mechanism = "inline"
)

type description struct {
	name   Mechanism
	pcie   bool   // there is such a thing on PCIe
	says   string // what it is
	onPCIe string // what it is there, if that differs
}

// about are the mechanisms in the order in which they are listed.
var about = []description{
	{EDT, true, "the NIC follows the program's writes block by block; written back on receipt", "the program pushes blocks, each with its status bit; written back on receipt"},
	{CCDMAIntv, false, "coherent DMA; the cache that owns a block supplies it", ""},
	{CCDMARetr, false, "coherent DMA; the cache that owns a block writes it back first", ""},
	{DMA, true, "DMA of memory; the program flushes its caches", "DMA of token, descriptor and payload, which the root complex keeps coherent"},
	{CNI, false, "a cacheable queue: lazy pointers, valid bits, sense reverse; first in, first out", ""},
	{PIO, true, "uncached words, at both ends", ""},
	{PIOWC, true, "write-combined blocks, and DMA on receipt", ""},
	{Inline, true, "the payload stands in the descriptor: one DMA transfer less", ""},
}

// Mechanisms returns those that a platform can have.
func Mechanisms(s *profile.MemorySystem) []Mechanism {
	var names []Mechanism
	for _, m := range about {
		if s == nil || s.PCIe == nil || m.pcie {
			names = append(names, m.name)
		}
	}
	return names
}

// Summary says what a mechanism is, on PCIe if that is asked for; empty if it is none.
func (m Mechanism) Summary(pcie bool) string {
	i := slices.IndexFunc(about, func(d description) bool { return d.name == m })
	switch {
	case i < 0:
		return ""
	case pcie && about[i].onPCIe != "":
		return about[i].onPCIe
	}
	return about[i].says
}

// Order is the order in which a program writes the words of its message.
type Order string

// Orders of writing.
const (
	Sequential Order = "sequential" // from the first word to the last
	Stride     Order = "stride"     // the first word of each block, then the second of each, and so on
	Random     Order = "random"     // each word once, shuffled
)

// words returns the order of n words, of which a block has perBlock.
func (o Order) words(n, perBlock int, seed uint64) []int {
	order := make([]int, 0, n)
	switch o {
	case Stride:
		for first := range perBlock {
			for w := first; w < n; w += perBlock {
				order = append(order, w)
			}
		}
	case Random:
		return rand.New(rand.NewPCG(seed, 0)).Perm(n)
	default:
		for w := range n {
			order = append(order, w)
		}
	}
	return order
}

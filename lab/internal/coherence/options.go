package coherence

import (
	"cmp"
	"fmt"
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

// ceil is a/b, rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

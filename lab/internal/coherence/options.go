package coherence

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// complete checks the options and puts in what they leave open.
func (o *Options) complete() error {
	if o.Until == "" {
		o.Until = Delivered
	}
	if o.Receiving == "" {
		o.Receiving = WriteBack
	}
	if o.Order == "" {
		o.Order = Sequential
	}
	known := Mechanisms(o.System)
	switch highest := HighestRate(o.System); {
	case !slices.Contains(known, o.Mechanism):
		return refuse("mechanism", string(o.Mechanism), join(known)+" on "+o.System.Name)
	case o.Bytes < 1 || o.Bytes > MaxBytes:
		return refuse("bytes", strconv.Itoa(o.Bytes), fmt.Sprintf("1 to %d", MaxBytes))
	case !(o.DMARate == 0 || o.DMARate >= 1 && o.DMARate <= highest):
		return refuse("dma-rate", fmt.Sprint(o.DMARate), fmt.Sprintf("1 to %g MB/s", highest))
	case !slices.Contains(Orders, o.Order):
		return refuse("order", string(o.Order), join(Orders))
	case !slices.Contains([]Until{Wire, Delivered, Consumed}, o.Until):
		return refuse("until", string(o.Until), join([]Until{Wire, Delivered, Consumed}))
	case o.Until == Consumed && o.System.PCIe != nil:
		return refuse("until", string(o.Until), "wire, delivered on "+o.System.Name)
	case o.Receiving != WriteBack && (o.Receiving != Coherent || o.Mechanism != EDT || o.System.PCIe != nil):
		return refuse("receiving", string(o.Receiving), "write-back; coherent with edt on a memory bus")
	}
	if o.DMARate == 0 {
		o.DMARate = HighestRate(o.System)
	}
	words := ceil(o.Bytes, o.System.Processor.Word)
	for _, w := range o.Words {
		if w < 0 || w >= words {
			return refuse("words", strconv.Itoa(w), fmt.Sprintf("0 to %d", words-1))
		}
	}
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
	return &Error{Field: field, Value: value, Allowed: allowed, Err: ErrOption}
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

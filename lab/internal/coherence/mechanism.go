package coherence

import (
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

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

// description of a mechanism.
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

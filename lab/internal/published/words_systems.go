package published

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// systemWords are words for memory systems, those of a slower DMA first; mechanismWords those of what
// EDT is compared with.
var (
	systemWords = [][2]string{
		{"sonic-via-1200", "sonic-via-1200"}, {"1200 mb/s", "sonic-via-1200"}, {"75%", "sonic-via-1200"}, {"75 %", "sonic-via-1200"},
		{"sonic-via-800", "sonic-via-800"}, {"800 mb/s", "sonic-via-800"}, {"50%", "sonic-via-800"}, {"50 %", "sonic-via-800"},
		{"sonic-via", "sonic-via"},
	}
	mechanismWords = [][2]string{
		{"cc-dma-intv", "cc-dma-intv"}, {"cc-dmaintv", "cc-dma-intv"}, {"intervention", "cc-dma-intv"},
		{"cc-dma-retry", "cc-dma-retry"}, {"cc-dmaretry", "cc-dma-retry"}, {"retry", "cc-dma-retry"},
		{"cni", "cni"}, {"pio-wc", "pio-wc"}, {"pio", "pio"}, {"inline", "inline"},
	}
)

// systemIn finds a memory system.
func systemIn(text string) string { return named(text, systemWords) }

// parts of a message's latency, by their words; see coherence.Result.
var parts = [][2]string{
	{"initiation", "initiation"}, {"execution", "execution"}, {"interrupt", "interrupt"},
	{"transport send", "transport of the sender"}, {"send transport", "transport of the sender"},
	{"transport receive", "transport of the receiver"}, {"receive transport", "transport of the receiver"},
	{"user data", "user part"}, {"user", "user part"}, {"data transfer", "data transfer part"}, {"transport", "transport part"},
}

// describedTransfer says what to compute for a row of the EDT paper's kind.
func describedTransfer(r *Row, text string) Task {
	t := Task{Platforms: []string{cmp.Or(systemIn(text), "sonic-via")}}
	other := named(text, mechanismWords)
	if other == "" && slices.ContainsFunc([]string{"against dma", "over dma", "vs dma", "than dma", "; dma;"}, func(w string) bool { return strings.Contains(text, w) }) {
		other = "dma"
	}
	bytes, others := payloadIn(text)
	if others {
		return Task{Note: "names more than one number of bytes"}
	}
	t.Payload = bytes
	dimension := units[r.Unit].dimension
	quantity := strings.ToLower(r.Quantity)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return wordIn(quantity, w) })
	}
	switch {
	case dimension == percent && has("reduction", "improvement", "lower", "less", "faster"):
		// The paper compares with coherent DMA and intervention where it names nothing.
		t.Policy = cmp.Or(other, "cc-dma-intv")
		has = func(words ...string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return wordIn(text, w) })
		}
		switch {
		case bytes != 0:
			t.Compute = "reduction by edt"
		case has("least", "lowest", "minimum", "smallest"):
			t.Compute = "least reduction by edt"
		case has("greatest", "highest", "maximum", "largest"):
			t.Compute = "greatest reduction by edt"
		default:
			t.Compute = "range of reductions by edt"
		}
		return t
	case dimension == duration:
		t.Policy = cmp.Or(other, "edt")
		t.Compute = named(quantity, parts)
		if t.Compute == "" && has("latency", "one-way") {
			t.Compute = "latency of a message"
		}
	}
	switch {
	case t.Compute == "":
		return Task{Note: fmt.Sprintf("its quantity and its unit %q name no latency of a message, no part of one and no reduction", r.Unit)}
	case bytes < 1 || bytes > coherence.MaxBytes:
		return Task{Note: fmt.Sprintf("names no message of 1 to %d bytes", coherence.MaxBytes)}
	}
	return t
}

// describedCells says what to compute for a row of the MINI paper's kind.
func describedCells(r *Row, text string) Task {
	t := Task{Platforms: profile.CellHosts.Names()[:1]}
	bytes, others := payloadIn(text)
	if others || bytes > cells.MaxPDU {
		return Task{Note: fmt.Sprintf("names no single message of 1 to %d bytes", cells.MaxPDU)}
	}
	t.Payload = bytes
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return wordIn(text, w) })
	}
	switch units[r.Unit].dimension {
	case duration:
		switch {
		case has("bounce", "round trip", "ping-pong"):
			t.Compute = "cell bounce"
		case has("barrier") && has("participant", "per participant"):
			t.Compute, t.Payload = "barrier per participant", 0
		case has("interval") && bytes != 0:
			t.Compute = "message interval"
		case has("interval"):
			t.Compute = "cell interval"
		case has("latency", "one-way", "host-to-host") && bytes != 0:
			t.Compute = "message, one way"
		case has("latency", "one-way", "host-to-host") && has("cell", "single-cell", "single cell"):
			t.Compute = "cell, one way"
		}
	case rate:
		switch {
		case has("bounce", "round trip"):
			t.Compute = "cell bounce rate"
		case has("headers", "total"):
			t.Compute = "cell total rate"
		case has("data rate", "bandwidth", "throughput"):
			t.Compute = "cell data rate"
		}
	case count:
		if has("cells") && bytes != 0 {
			t.Compute = "cells of a message"
		}
	}
	if t.Compute == "" {
		return Task{Note: fmt.Sprintf("its quantity and its unit %q name no time or rate of cells", r.Unit)}
	}
	return t
}

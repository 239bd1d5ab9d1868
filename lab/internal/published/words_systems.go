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

// rule names a computation by the words that a text has: one of each list.
type rule struct {
	dimension
	words   [][]string
	payload bool // a message's length, too
	compute string
}

// ruled returns the computation of the first rule that a text follows.
func ruled(rules []rule, d dimension, text string, bytes int) string {
	for _, r := range rules {
		if r.dimension == d && (bytes != 0 || !r.payload) && !slices.ContainsFunc(r.words, func(list []string) bool { return !wordsIn(text, list...) }) {
			return r.compute
		}
	}
	return ""
}

// reductionRules are of reductions by EDT, and cellRules of the MINI paper's figures.
var (
	reductionRules = []rule{
		{percent, nil, true, "reduction by edt"},
		{percent, [][]string{{"least", "lowest", "minimum", "smallest"}}, false, "least reduction by edt"},
		{percent, [][]string{{"greatest", "highest", "maximum", "largest"}}, false, "greatest reduction by edt"},
		{percent, nil, false, "range of reductions by edt"},
	}
	oneWay    = []string{"latency", "one-way", "host-to-host"}
	cellRules = []rule{
		{duration, [][]string{{"bounce", "round trip", "ping-pong"}}, false, "cell bounce"},
		{duration, [][]string{{"barrier"}, {"participant", "per participant"}}, false, "barrier per participant"},
		{duration, [][]string{{"interval"}}, true, "message interval"},
		{duration, [][]string{{"interval"}}, false, "cell interval"},
		{duration, [][]string{oneWay}, true, "message, one way"},
		{duration, [][]string{oneWay, {"cell", "single-cell", "single cell"}}, false, "cell, one way"},
		{rate, [][]string{{"bounce", "round trip"}}, false, "cell bounce rate"},
		{rate, [][]string{{"headers", "total"}}, false, "cell total rate"},
		{rate, [][]string{{"data rate", "bandwidth", "throughput"}}, false, "cell data rate"},
		{count, [][]string{{"cells"}}, true, "cells of a message"},
	}
)

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
	quantity := strings.ToLower(r.Quantity)
	switch dimension := units[r.Unit].dimension; {
	case dimension == percent && wordsIn(quantity, "reduction", "improvement", "lower", "less", "faster"):
		// The paper compares with coherent DMA and intervention where it names nothing.
		t.Policy, t.Compute = cmp.Or(other, "cc-dma-intv"), ruled(reductionRules, percent, text, bytes)
		return t
	case dimension == duration:
		t.Policy = cmp.Or(other, "edt")
		t.Compute = named(quantity, parts)
		if t.Compute == "" && wordsIn(quantity, "latency", "one-way") {
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
	t.Compute, t.Payload = ruled(cellRules, units[r.Unit].dimension, text, bytes), bytes
	switch t.Compute {
	case "":
		return Task{Note: fmt.Sprintf("its quantity and its unit %q name no time or rate of cells", r.Unit)}
	case "barrier per participant":
		t.Payload = 0
	}
	return t
}

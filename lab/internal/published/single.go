package published

import (
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Platforms and sizes that the single figures speak of.
const (
	p6     = "p6-natoma"
	pii    = "pii-440lx"
	alcor  = "alcor"
	miata  = "alcor-miata"
	hpdc97 = "alcor-hpdc97" // the earlier paper's Alcor: other firmware, other figures
	page   = 8192
)

// figure is one that a paper mentions once, known by what it is called.
type figure struct {
	paper     paper
	quantity  string // in lower case, whole
	condition string // part of the condition in lower case, if the quantity is not enough
	Computation
}

// figures say how the model comes to each figure; none knows the published value.
var figures = []figure{
	{cs1997, "4k transfer time upper bound", "", Computation{Kind: Predicted, What: "slowest 4 KiB AMP latency of P6/Natoma, 440LX and Alcor to Miata", compute: slowest4K}},
	{cs1997, "32-bit 33 mhz pci peak bandwidth", "", Computation{Kind: Input, What: "P6/Natoma bus read bandwidth", compute: busOf(p6, readBandwidth)}},
	{cs1997, "myrinet link (named rate)", "", Computation{Kind: Input, What: "link rate", compute: linkBandwidth(8.0 / 1000)}},
	{cs1997, "myrinet link bandwidth", "", Computation{Kind: Input, What: "link bandwidth", compute: linkBandwidth(1)}},
	{cs1997, "single switch latency", "", Computation{Kind: Input, What: "link latency", compute: busOf(p6, linkLatency)}},
	{cs1997, "pci dma bandwidth", "both directions", Computation{Kind: Input, What: "lowest bus bandwidth of P6/Natoma and 440LX", compute: lowestBus}},
	{cs1997, "control message size", "", Computation{Kind: Input, What: "bytes ahead of each payload", compute: busOf(p6, headerBytes)}},
	{cs1997, "best minpulse", "", Computation{Kind: Predicted, What: "eager threshold (64, 128, 256, ... 4096) of lowest P6/Natoma latency", compute: bestMinPulse}},
	{cs1997, "latency reduction", "range low", Computation{Kind: Predicted, What: "least reduction of 8 KiB latency by any cut-through policy, pulses at their best, 440LX left out", compute: leastReduction}},
	{cs1997, "latency reduction", "range high", Computation{Kind: Predicted, What: "greatest reduction of 8 KiB latency, 440LX left out", compute: greatestReduction}},
	{cs1997, "second 8k hosttx duration", "", Computation{Kind: Predicted, Platform: p6, What: "hostTx of 8 KiB, P6/Natoma", compute: busTime(p6, readCost, page)}},
	{cs1997, "second 8k hosttx bandwidth", "", Computation{Kind: Predicted, What: "its bandwidth", compute: busRate(p6, readCost, page)}},
	{cs1997, "first hostrcv duration", "368 bytes", Computation{Kind: Predicted, Platform: p6, What: "hostRcv of 368 bytes, P6/Natoma", compute: busTime(p6, writeCost, 368)}},
	{cs1997, "first hostrcv bandwidth", "368 bytes", Computation{Kind: Predicted, What: "its bandwidth", compute: busRate(p6, writeCost, 368)}},
	{cs1997, "hosttx spike bandwidth", "", Computation{Kind: Predicted, What: "hostTx of 8 KiB, P6/Natoma", compute: busRate(p6, readCost, page)}},
	{cs1997, "average bandwidth all engines, steady state", "", Computation{Kind: Predicted, What: "8 KiB AMP stream, P6/Natoma (without logging)", compute: stream(p6, "amp")}},
	{cs1997, "bus bandwidth lost to overheads and lanai occupancy", "", Computation{Kind: Predicted, What: "share of the bus's bandwidth that an 8 KiB AMP stream leaves", compute: lostBandwidth}},
	{cs1997, "bandwidth without logging", "", Computation{Kind: Predicted, Platform: p6, What: "8 KiB AMP stream, P6/Natoma", compute: stream(p6, "amp")}},
	{cutThrough, "8kb latency reduction by cut-through", "", Computation{Kind: Predicted, What: "8 KiB latency, eager against store and forward", compute: reduction(hpdc97, "eager", 0)}},
	{cutThrough, "8kb page latency with cut-through", "", Computation{Kind: Predicted, Platform: hpdc97, What: "8 KiB latency, eager", compute: latency(hpdc97, "eager")}},
	{cutThrough, "control message", "", Computation{Kind: Input, What: "bytes ahead of each payload", compute: busOf(hpdc97, headerBytes)}},
	{cutThrough, "one-way 8k latency, store-and-forward", "", Computation{Kind: Predicted, Platform: hpdc97, What: "8 KiB latency, store and forward", compute: latency(hpdc97, "store-and-forward")}},
	{cutThrough, "one-way 8k latency, best static pulse", "", Computation{Kind: Predicted, Platform: hpdc97, What: "8 KiB latency, best static pulse", compute: bestStatic}},
	{cutThrough, "improvement of best static pulse", "", Computation{Kind: Predicted, What: "reduction by the best static pulse", compute: bestStaticReduction}},
	{cutThrough, "near-optimal single pulse size", "", Computation{Kind: Predicted, What: "middle of the pulses within 2 % of the best", compute: nearOptimalPulse}},
	{cutThrough, "peak dma read bandwidth", "", Computation{Kind: Input, What: "bus read bandwidth", compute: busOf(hpdc97, readBandwidth)}},
	{cutThrough, "dma write bandwidth relative to read", "", Computation{Kind: Input, What: "bus write bandwidth over read bandwidth", compute: busOf(hpdc97, func(p *profile.Profile) float64 {
		return p.Receiver.Write.Bandwidth() / p.Sender.Read.Bandwidth()
	})}},
	{cutThrough, "lower bound on store-and-forward 8k", "", Computation{Kind: Predicted, What: "8 KiB over bus, link and bus, without overheads", compute: busOf(hpdc97, func(p *profile.Profile) float64 {
		return (p.Sender.Read.Bytes(page) + p.Link.Pulse.Bytes(page) + p.Receiver.Write.Bytes(page)).Microseconds()
	})}},
	{cutThrough, "additional improvement eager over best static", "", Computation{Kind: Predicted, What: "8 KiB latency, eager against best static pulse", compute: eagerOverStatic}},
	{cutThrough, "payload size where cut-through benefit starts", "", Computation{Kind: Predicted, What: "first payload (steps of 64 B) that eager makes 5 % faster, in KB", compute: benefitStarts}},
	{cutThrough, "latency reduction 8kb", "", Computation{Kind: Predicted, What: "8 KiB latency, eager against store and forward", compute: reduction(hpdc97, "eager", 0)}},
}

func single(w *words) (Computation, bool) {
	for _, f := range figures {
		if f.paper == w.paper && f.quantity == strings.TrimSpace(w.quantity) && strings.Contains(w.condition, f.condition) {
			return f.Computation, true
		}
	}
	return Computation{}, false
}

package published

import (
	"github.com/trapeze-nic/trapeze/pipeline/profile"
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

// figures are the rows that are mentioned once, by id. Each entry says how the
// model comes to the figure; none of them knows the published value.
var figures = map[string]Computation{
	"002-035": {Kind: Predicted, What: "slowest 4 KiB AMP latency of P6/Natoma, 440LX and Alcor to Miata", compute: slowest4K},
	"002-036": {Kind: Input, What: "P6/Natoma bus read bandwidth", compute: busOf(p6, readBandwidth)},
	"002-037": {Kind: Input, What: "link rate", compute: linkBandwidth(8.0 / 1000)},
	"002-038": {Kind: Input, What: "link bandwidth", compute: linkBandwidth(1)},
	"002-039": {Kind: Input, What: "link latency", compute: func(m *Model) (float64, error) {
		p, err := m.Platform(p6)
		if err != nil {
			return 0, err
		}
		return p.Link.Latency.Microseconds(), nil
	}},
	"002-040": {Kind: Input, What: "lowest bus bandwidth of P6/Natoma and 440LX", compute: lowestBus},
	"002-045": {Kind: Input, What: "bytes ahead of each payload", compute: func(m *Model) (float64, error) {
		p, err := m.Platform(p6)
		if err != nil {
			return 0, err
		}
		return float64(p.Link.Header), nil
	}},
	"002-047": {Kind: Predicted, What: "eager threshold (64, 128, 256, ... 4096) of lowest P6/Natoma latency", compute: bestMinPulse},
	"002-048": {Kind: Predicted, What: "least reduction of 8 KiB latency by any cut-through policy, pulses at their best, 440LX left out", compute: leastReduction},
	"002-049": {Kind: Predicted, What: "greatest reduction of 8 KiB latency, 440LX left out", compute: greatestReduction},
	"002-051": {Kind: Predicted, Platform: p6, What: "hostTx of 8 KiB, P6/Natoma", compute: busTime(p6, readCost, page)},
	"002-052": {Kind: Predicted, What: "its bandwidth", compute: busRate(p6, readCost, page)},
	"002-065": {Kind: Predicted, Platform: p6, What: "hostRcv of 368 bytes, P6/Natoma", compute: busTime(p6, writeCost, 368)},
	"002-066": {Kind: Predicted, What: "its bandwidth", compute: busRate(p6, writeCost, 368)},
	"002-067": {Kind: Predicted, What: "hostTx of 8 KiB, P6/Natoma", compute: busRate(p6, readCost, page)},
	"002-069": {Kind: Predicted, What: "8 KiB AMP stream, P6/Natoma (without logging)", compute: stream(p6, "amp")},
	"002-070": {Kind: Predicted, What: "share of the bus's bandwidth that an 8 KiB AMP stream leaves", compute: lostBandwidth},
	"002-072": {Kind: Predicted, Platform: p6, What: "8 KiB AMP stream, P6/Natoma", compute: stream(p6, "amp")},
	"000-002": {Kind: Predicted, What: "8 KiB latency, eager against store and forward", compute: reduction(hpdc97, "eager", 0)},
	"000-003": {Kind: Predicted, Platform: hpdc97, What: "8 KiB latency, eager", compute: latency(hpdc97, "eager")},
	"000-011": {Kind: Input, What: "bytes ahead of each payload", compute: func(m *Model) (float64, error) {
		p, err := m.Platform(hpdc97)
		if err != nil {
			return 0, err
		}
		return float64(p.Link.Header), nil
	}},
	"000-013": {Kind: Predicted, Platform: hpdc97, What: "8 KiB latency, store and forward", compute: latency(hpdc97, "store-and-forward")},
	"000-014": {Kind: Predicted, Platform: hpdc97, What: "8 KiB latency, best static pulse", compute: bestStatic},
	"000-015": {Kind: Predicted, What: "reduction by the best static pulse", compute: func(m *Model) (float64, error) {
		best, err := bestStatic(m)
		if err != nil {
			return 0, err
		}
		whole, err := m.Latency(hpdc97, "store-and-forward", 0, page)
		return 100 * (1 - best/whole), err
	}},
	"000-016": {Kind: Predicted, What: "middle of the pulses within 2 % of the best", compute: nearOptimalPulse},
	"000-017": {Kind: Input, What: "bus read bandwidth", compute: busOf(hpdc97, readBandwidth)},
	"000-018": {Kind: Input, What: "bus write bandwidth over read bandwidth", compute: busOf(hpdc97, func(p *profile.Profile) float64 {
		return p.Receiver.Write.Bandwidth() / p.Sender.Read.Bandwidth()
	})},
	"000-019": {Kind: Predicted, What: "8 KiB over bus, link and bus, without overheads", compute: busOf(hpdc97, func(p *profile.Profile) float64 {
		return (p.Sender.Read.Bytes(page) + p.Link.Pulse.Bytes(page) + p.Receiver.Write.Bytes(page)).Microseconds()
	})},
	"000-023": {Kind: Predicted, What: "8 KiB latency, eager against best static pulse", compute: func(m *Model) (float64, error) {
		best, err := bestStatic(m)
		if err != nil {
			return 0, err
		}
		eager, err := m.Latency(hpdc97, "eager", 0, page)
		return 100 * (1 - eager/best), err
	}},
	"000-026": {Kind: Predicted, What: "first payload (steps of 64 B) that eager makes 5 % faster, in KB", compute: benefitStarts},
	"000-027": {Kind: Predicted, What: "8 KiB latency, eager against store and forward", compute: reduction(hpdc97, "eager", 0)},
}

// reasons tell why some rows are not modelled.
var reasons = map[string]string{
	"002-041": "TCP and its checksums are not modelled",
	"002-042": "another system",
	"002-043": "programmed I/O is not modelled",
	"002-044": "programmed I/O is not modelled",
	"002-046": "measured with the DMA log on; its cost is not published",
	"002-050": "measured under contention with the CPU and with the log on",
	"002-063": "measured under contention with the CPU and with the log on",
	"002-064": "measured under contention with the CPU and with the log on",
	"002-068": "measured under contention with the CPU and with the log on",
	"002-071": "measured with the DMA log on",
	"002-073": "contention with the CPU is not modelled",
	"000-001": "includes the page fault and the server's time",
	"003-001": "a definition: the cell size of policy static with pulse 48",
	"003-002": "a definition: the frame size of the snapshot",
	"003-003": "a definition: netRcv and netTx run in lock step",
	"003-004": "the end of a drawing's axis, not a measurement",
	"003-005": "the end of a drawing's axis, not a measurement",
	"003-006": "the end of a drawing's axis, not a measurement",
}

func single(r Row) (Computation, bool) {
	c, ok := figures[r.ID]
	return c, ok
}

func notModelled(r Row) (Computation, bool) {
	why, ok := reasons[r.ID]
	return Computation{Kind: NotModelled, What: why}, ok
}

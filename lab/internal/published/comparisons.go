package published

import (
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// A disk of the cut-through paper: an average seek in microseconds, which is an assumption, and turns a
// minute. ATM over an OC-3 link: bytes of a cell with its header, and bits a microsecond (ITU-T I.432.2).
const (
	averageSeek = 8000
	turns       = 7200
	atmCell     = 53
	atmRate     = 155.52
)

// comparisons are the computations of what follows from latency and bandwidth: beside store and
// forward, and for each packet.
func comparisons() map[string]computation {
	all := map[string]computation{
		"latency saved": {Predicted, duration, frame, nil, func(f *figure) float64 { return f.whole() - f.latency() }},
		"speedup":       {Predicted, ratio, frame, nil, func(f *figure) float64 { return f.whole() / f.latency() }},
		"latency over that of store and forward": {Predicted, ratio | percent, frame, nil, func(f *figure) float64 {
			return f.share(f.latency() / f.whole())
		}},
		"bandwidth over that of store and forward": {Predicted, ratio | percent, frame, nil, func(f *figure) float64 {
			return f.share(f.bandwidth(false) / f.wholeBandwidth())
		}},
		"reduction of bandwidth":  {Predicted, percent, frame, nil, func(f *figure) float64 { return less(f.bandwidth(false), f.wholeBandwidth()) }},
		"bandwidth lost":          {Predicted, rate, frame, nil, func(f *figure) float64 { return f.wholeBandwidth() - f.bandwidth(false) }},
		"time between packets":    {Predicted, duration, frame, nil, func(f *figure) float64 { return float64(f.Payload) / f.bandwidth(false) }},
		"bandwidth of one packet": {Predicted, rate, frame, nil, func(f *figure) float64 { return float64(f.Payload) / f.latency() }},
	}
	all["disk access"] = computation{Predicted, duration, payload, nil, func(*figure) float64 { return averageSeek + 60e6/turns/2 }}
	all["cells at 155 Mb/s"] = computation{Predicted, duration, payload, nil, func(f *figure) float64 { return float64(8*atmCell*cells.Count(f.Payload)) / atmRate }}
	for e := range dmalog.Engines {
		all[e.String()+" transfers of a packet"] = computation{Predicted, count, frame, nil, func(f *figure) float64 { return f.transferCount(e) }}
	}
	return all
}

// share is a ratio, in percent if the row's unit is that.
func (f *figure) share(x float64) float64 {
	if units[f.Unit].dimension == percent {
		return 100 * x
	}
	return x
}

// wholeBandwidth is that of a stream under store and forward.
func (f *figure) wholeBandwidth() float64 {
	_, b := f.run("store-and-forward", 0, 0, f.Payload, streamFrames, false)
	return b
}

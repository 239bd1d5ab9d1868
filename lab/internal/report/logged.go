package report

import (
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
)

// Moved are the transfers of live NICs, by their logs.
type Moved []dmalog.Record

// Bandwidths draws the bandwidth of DMA between host memory and NIC against the size of a transfer, in both directions: medians.
func (m Moved) Bandwidths(context.Context) ([]byte, error) {
	took := map[dmalog.Engine]map[int][]float64{dmalog.HostTx: {}, dmalog.HostRcv: {}}
	for _, r := range m {
		if of := took[r.Engine]; of != nil && r.End > r.Start {
			of[r.Bytes] = append(of[r.Bytes], dmalog.Microseconds(r.End-r.Start))
		}
	}
	ch := plot.Chart{Title: "Bandwidth of live DMA against the size of a transfer", Note: fmt.Sprintf("medians, by logs of %d transfers", len(m)),
		X: plot.Axis{Label: "transfer, bytes", Log2: true, Bytes: true}, Y: plot.Axis{Label: "bandwidth, MB/s", Zero: true}}
	for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.HostRcv} {
		s := plot.Series{Name: e.String()}
		for bytes, all := range took[e] {
			slices.Sort(all)
			s.Points = append(s.Points, plot.Point{X: float64(bytes), Y: float64(bytes) / all[len(all)/2]})
		}
		slices.SortFunc(s.Points, func(a, b plot.Point) int { return int(a.X - b.X) })
		if len(s.Points) > 0 {
			ch.Series = append(ch.Series, s)
		}
	}
	return ch.SVG()
}

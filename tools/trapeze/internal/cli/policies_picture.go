package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
)

// shownFrames is about how many frames a picture shows of a policy under load.
const shownFrames = 5

// drawPolicies draws packet flow graphs: a row for each policy, a column for each load.
func drawPolicies(r *policiesReport) ([]byte, error) {
	p := plot.Panels{
		Title: "Delivery policies on live NICs",
		Notes: []string{
			"A stripe is a transfer, a colour a frame. hostTx fills the sender's NIC, netTx the wire; netRcv arrives, hostRcv fills memory.",
			fmt.Sprintf("Frames of %s in bursts of %d bytes; wire %g MB/s and %g us, buses %g and %g MB/s, %g us for each transfer beside its bytes.",
				units.Size(r.Bytes), r.Burst, r.Rate, r.Delay, r.SendBus, r.ReceiveBus, r.Setup),
		},
		Columns: []plot.Column{{Name: "Idle: one frame after the other"}, {Name: "Loaded: frames behind each other",
			Span: int64(shownFrames * float64(r.Bytes) / min(r.Rate, r.ReceiveBus) * 1e6)}},
	}
	for _, one := range r.Policies {
		p.Rows = append(p.Rows, plot.PanelRow{Name: one.Policy, Panels: []plot.Panel{
			one.Idle.lone(), one.Loaded.stream(p.Columns[1].Span),
		}})
	}
	for _, row := range p.Rows {
		for _, record := range row.Panels[0].Records {
			p.Columns[0].Span = max(p.Columns[0].Span, record.End-row.Panels[0].From)
		}
	}
	p.Columns[0].Span += p.Columns[0].Span / 50
	return p.SVG()
}

// lone is a graph of the frame that took as long as half of them.
func (l *loadReport) lone() plot.Panel {
	all := ways(l.log.Records)
	shown := all[len(all)/2]
	panel := plot.Panel{From: shown.start, Note: fmt.Sprintf("%.0f us; transfers: %s", l.Way, l.Transfers)}
	for _, r := range l.log.Records {
		if r.Packet == shown.packet {
			r.Packet = 0 // lone frames have one colour
			panel.Records = append(panel.Records, r)
		}
	}
	return panel
}

// stream is a graph of some frames in the middle: those of a stretch that has gone faster than three
// quarters of the others.
func (l *loadReport) stream(span int64) plot.Panel {
	all := ways(l.log.Records)
	slices.SortFunc(all, func(a, b frameWay) int { return cmp.Compare(a.packet, b.packet) })
	from := all[len(all)/4 : max(len(all)*3/4, len(all)/4+1)]
	slices.SortFunc(from, func(a, b frameWay) int {
		return cmp.Or(cmp.Compare(l.took(all, a.packet), l.took(all, b.packet)), cmp.Compare(a.packet, b.packet))
	})
	return plot.Panel{From: from[len(from)/4].start, Note: fmt.Sprintf("%.1f MB/s; transfers: %s", l.Rate, l.Transfers), Records: l.log.Records}
}

// took is the time from the start of a frame to that of one some frames behind it.
func (l *loadReport) took(all []frameWay, packet int) int64 {
	return all[min(packet+shownFrames, len(all)-1)].start - all[packet].start
}

// String has the transfers of the two engines about which policies decide.
func (t transfersReport) String() string {
	return fmt.Sprintf("netTx %s, hostRcv %s", plot.Figure(t.NetTx), plot.Figure(t.HostRcv))
}

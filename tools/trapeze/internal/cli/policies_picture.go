package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
)

// shownFrames is about how many frames a picture shows of a policy under load.
const shownFrames = 5

// drawPolicies draws packet flow graphs of all policies, idle and loaded.
func drawPolicies(r *policiesReport) ([]byte, error) {
	idle := plot.Bands{Narrow: true, Headings: map[int]string{}, Title: "Idle: one frame after the other",
		Note:   "A stripe is a transfer. hostTx fills the sender's NIC, netTx the wire; netRcv arrives, hostRcv fills memory.",
		Legend: "Lone frames have one colour."}
	loaded := plot.Bands{Narrow: true, Headings: map[int]string{}, Title: "Loaded: frames behind each other",
		Note: fmt.Sprintf("Frames of %s in bursts of %d bytes; wire %g MB/s and %g us, buses %g and %g MB/s, %g us for each transfer beside its bytes.",
			units.Size(r.Bytes), r.Burst, r.Rate, r.Delay, r.SendBus, r.ReceiveBus, r.Setup),
		Legend: "A colour is a frame.", To: int64(shownFrames * float64(r.Bytes) / min(r.Rate, r.ReceiveBus) * 1e6)}
	for n, one := range r.Idle {
		shown, behind := one.median(), r.Loaded[n]
		lone := slices.DeleteFunc(slices.Clone(one.log.Records), func(r dmalog.Record) bool { return r.Packet != shown.packet })
		for i := range lone {
			lone[i].Packet = 0
		}
		addBands(&idle, fmt.Sprintf("%s: %.0f us; transfers: %s", one.Policy, one.Way, one.told()), lone, shown.start)
		addBands(&loaded, fmt.Sprintf("%s: %.1f MB/s; transfers: %s", one.Policy, behind.Rate, behind.told()), behind.log.Records, behind.stretch())
	}
	return plot.Stack("Delivery policies on live NICs", idle, loaded)
}

// addBands adds the bands of a policy: its transfers from a time on.
func addBands(b *plot.Bands, heading string, records []dmalog.Record, from int64) {
	first := len(b.Names)
	b.Headings[first] = heading
	for e := range dmalog.Engines {
		b.Names = append(b.Names, e.String())
	}
	for _, r := range records {
		b.Stripes = append(b.Stripes, plot.Stripe{Band: first + int(r.Engine), Number: r.Packet, Start: r.Start - from, End: r.End - from})
	}
}

// median is the frame that took as long as half of them.
func (l *loadReport) median() frameWay {
	all := ways(l.log.Records)
	return all[len(all)/2]
}

// stretch is the start of some frames in the middle: those of a stretch that has gone faster than three
// quarters of the others.
func (l *loadReport) stretch() int64 {
	all := ways(l.log.Records)
	slices.SortFunc(all, func(a, b frameWay) int { return cmp.Compare(a.packet, b.packet) })
	from := all[len(all)/4 : max(len(all)*3/4, len(all)/4+1)]
	slices.SortFunc(from, func(a, b frameWay) int {
		return cmp.Or(cmp.Compare(took(all, a.packet), took(all, b.packet)), cmp.Compare(a.packet, b.packet))
	})
	return from[len(from)/4].start
}

// took is the time from the start of a frame to that of one some frames behind it.
func took(all []frameWay, packet int) int64 {
	return all[min(packet+shownFrames, len(all)-1)].start - all[packet].start
}

// told has the transfers of the two engines about which policies decide.
func (t transfersReport) told() string {
	decimal := func(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
	return fmt.Sprintf("netTx %s, hostRcv %s", decimal(t.NetTx), decimal(t.HostRcv))
}

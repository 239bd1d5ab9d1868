package telemetrycmd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// What a browser gets of a NIC at most: endpoints, histograms, and transfers.
const (
	shownRows       = 64
	shownHistograms = 8
	shownTransfers  = 256
	// logPages bounds the parts of the DMA log that are taken at a look: more than it has
	// room for, of a NIC that is quicker than this program.
	logPages = 16
	// detailsEvery is the time between two questions for what changes slowly.
	detailsEvery = 2 * time.Second
)

// view is a NIC as browsers show it in detail.
type view struct {
	flow  flow
	asked time.Time // when details were asked for
}

// shownDetails has what changes slowly. What the NIC does not have is null.
type shownDetails struct {
	Report     *telemetry.Report      `json:"report"`
	Policy     *policy                `json:"policy"`
	Wire       map[string]uint64      `json:"wire"`
	Maps       []telemetry.ProgramMap `json:"maps"`
	Histograms []shownHistogram       `json:"histograms"`
}

type shownHistogram struct {
	Number uint64 `json:"vi"`
	telemetry.Histogram
}

// shownView has what changes with each look.
type shownView struct {
	Name  string             `json:"name"`
	Rates map[string]float64 `json:"rates"`
	Rows  []endpointRow      `json:"rows"`
	// Endpoints counts the endpoints that there are.
	Endpoints int   `json:"endpoints"`
	Flow      *flow `json:"flow"`
}

// next looks at the NIC, and returns the events.
func (v *view) next(ctx context.Context, s *sample) []byte {
	v.flow.next(ctx, s.nic)
	rows := slices.Clone(s.rows)
	slices.SortStableFunc(rows, func(a, b endpointRow) int { return cmp.Compare(b.Sends+b.Receives, a.Sends+a.Receives) })
	shown := shownView{s.nic.name(), s.rates, rows[:min(len(rows), shownRows)], len(rows), &v.flow}
	slices.SortFunc(shown.Rows, func(a, b endpointRow) int { return cmp.Compare(a.Number, b.Number) })
	events := event("nic", shown)
	if time.Since(v.asked) > detailsEvery {
		v.asked = time.Now()
		events = append(events, event("details", details(ctx, s))...)
	}
	return events
}

// details asks the NIC for what changes slowly.
func details(ctx context.Context, s *sample) *shownDetails {
	d := &shownDetails{Policy: s.policy, Maps: []telemetry.ProgramMap{}, Histograms: []shownHistogram{}}
	var r telemetry.Report
	if s.nic.ask(ctx, "/trapeze/nic", &r) == nil {
		d.Report = &r
	}
	_ = s.nic.ask(ctx, "/trapeze/wire", &d.Wire) // only emulated NICs have a wire here
	if d.Report != nil && d.Report.Program != nil && d.Report.Program.Slot != nil {
		for count := 1; len(d.Maps) < count && count <= abi.MaxMaps; {
			var m telemetry.ProgramMap
			if s.nic.ask(ctx, "/trapeze/map", &m, uint64(len(d.Maps))) != nil {
				break
			}
			d.Maps, count = append(d.Maps, m), m.Maps
		}
	}
	for _, e := range s.rows {
		if e.Latency != nil && len(d.Histograms) < shownHistograms {
			h := shownHistogram{Number: e.Number}
			if s.nic.ask(ctx, "/trapeze/latency", &h.Histogram, e.Number) == nil {
				d.Histograms = append(d.Histograms, h)
			}
		}
	}
	return d
}

// flow has the last transfers of a NIC's engines.
type flow struct {
	// Records are those of telemetry.Transfers, oldest first.
	Records [][5]int64 `json:"records"`
	// Count counts the transfers since the NIC is shown, Lost those that are not among them.
	Count uint64 `json:"count"`
	Lost  uint32 `json:"lost"`
	// Busy is the part of the time, 0 to 1, in which each engine has moved something: of the time
	// since the look before, or of that which the records cover if some were lost.
	Busy [dmalog.Engines]float64 `json:"busy"`
	// Missing says that the NIC's log cannot be had.
	Missing bool `json:"missing"`

	looked time.Time
}

// next takes what the log has.
func (f *flow) next(ctx context.Context, n *NIC) {
	since, lost := f.looked, f.Lost
	f.looked = time.Now()
	var taken [][5]int64
	full := true
	for range logPages {
		var t telemetry.Transfers
		if err := n.ask(ctx, "/trapeze/log", &t); err != nil {
			f.Missing = errors.Is(err, telemetry.ErrNoAnswer)
			return
		}
		f.Lost = t.Lost
		taken = append(taken, t.Records...)
		if full = len(t.Records) > 0; !full {
			break
		}
	}
	f.Missing = false
	f.Count += uint64(len(taken))
	f.Records = append(f.Records, taken...)
	f.Records = f.Records[max(len(f.Records)-shownTransfers, 0):]
	f.measure(taken, since, full || f.Lost != lost)
}

// measure has Busy follow from records; partial says that there were more.
func (f *flow) measure(records [][5]int64, since time.Time, partial bool) {
	f.Busy = [dmalog.Engines]float64{}
	span := f.looked.Sub(since).Nanoseconds()
	if partial && len(records) > 0 {
		from, to := records[0][2], records[0][3]
		for _, r := range records {
			from, to = min(from, r[2]), max(to, r[3])
		}
		span = to - from
	}
	if since.IsZero() || span <= 0 {
		return
	}
	var until [dmalog.Engines]int64
	for _, r := range records {
		if engine, start, end := r[1], r[2], r[3]; engine >= 0 && engine < int64(dmalog.Engines) {
			f.Busy[engine] += float64(max(end-max(start, until[engine]), 0)) / float64(span)
			until[engine] = max(until[engine], end)
		}
	}
	for i := range f.Busy {
		f.Busy[i] = min(f.Busy[i], 1)
	}
}

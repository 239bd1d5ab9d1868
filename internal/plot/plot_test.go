package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares a picture with its file, and checks that it is well-formed XML.
func golden(t *testing.T, name string, got []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(got))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%s is not XML: %v", name, err)
		}
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from its golden file (go test ./internal/plot -update writes it anew; look at the picture)", name)
	}
}

const us = 1_000_000

var records = []dmalog.Record{
	{Packet: 0, Engine: dmalog.HostTx, Start: 2 * us, End: 40 * us, Bytes: 4096},
	{Packet: 0, Engine: dmalog.NetTx, Start: 10 * us, End: 24 * us, Bytes: 1500},
	{Packet: 0, Engine: dmalog.NetTx, Start: 25 * us, End: 50 * us, Bytes: 2596},
	{Packet: 0, Engine: dmalog.NetRcv, Start: 11 * us, End: 51 * us, Bytes: 4096},
	{Packet: 0, Engine: dmalog.HostRcv, Start: 52 * us, End: 91*us + us/2, Bytes: 4096},
	{Packet: 1, Engine: dmalog.HostTx, Start: 41 * us, End: 80 * us, Bytes: 4096},
	{Packet: 1, Flow: 1, Engine: dmalog.NetTx, Start: 60 * us, End: 70 * us, Bytes: 4096},
}

func TestFlow(t *testing.T) {
	svg, err := plot.Flow{Title: "Two packets", Note: `a "live" log & more`, Records: records}.SVG()
	golden(t, "flow.svg", svg, err)
	svg, err = plot.Flow{Title: "Ten microseconds", Records: records, From: 20 * us, To: 30 * us}.SVG()
	golden(t, "flow-span.svg", svg, err)
	if n := strings.Count(string(svg), `height="38"`); n != 4 {
		t.Errorf("%d stripes between 20 and 30 us, want 4", n)
	}
}

// TestOneStyle: a transfer looks the same in both packet flow graphs, no outline hides a narrow one, and a control
// message does not look like its packet.
func TestOneStyle(t *testing.T) {
	rects := func(svg []byte, err error) map[string]bool {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		styles := map[string]bool{}
		for _, m := range regexp.MustCompile(`<rect .* height="(?:38|13|10)" (.*)/>`).FindAllStringSubmatch(string(svg), -1) {
			styles[m[1]] = true
		}
		return styles
	}
	one := []dmalog.Record{{Engine: dmalog.NetTx, Start: us, End: us + 1}, {Packet: 1, Engine: dmalog.NetTx, Start: 90 * us, End: 99 * us}}
	graph := rects(plot.Flow{Records: one}.SVG())
	panels := rects(plot.Panels{Columns: []plot.Column{{"", 100 * us}}, Rows: []plot.PanelRow{{"", []plot.Panel{{"", one, 0}}}}}.SVG())
	if delete(panels, `fill="#f4f4f4"`); len(graph) != 2 || !maps.Equal(graph, panels) { // behind the stripes
		t.Errorf("%v in one, %v in the other", graph, panels)
	}
	controlled := rects(plot.Flow{Records: one, Control: one[:1]}.SVG())
	if len(controlled) != 3 {
		t.Errorf("a control message looks like a packet: %v", controlled)
	}
	for style := range controlled {
		if strings.Contains(style, "stroke") {
			t.Errorf("an outline: %s", style)
		}
	}
}

// TestBands: bands of anybody's, and stripes that touch but are kept apart if they are wide
// enough.
func TestBands(t *testing.T) {
	svg, err := plot.Bands{Title: "Three bands", Note: "one is empty", Legend: "what a stripe is", Names: []string{"first", "second", "third"},
		Stripes: []plot.Stripe{{Band: 0, Number: 4, End: 2 * us}, {Band: 0, Number: 4, Start: 2 * us, End: 4 * us}, {Band: 2, Number: 5, Start: 4 * us, End: 4*us + 1000}}}.SVG()
	golden(t, "bands.svg", svg, err)
}

// TestBothDirections: each direction of a run has bands of its own.
func TestBothDirections(t *testing.T) {
	one, err := plot.Flow{Records: records[:6]}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	both, err := plot.Flow{Records: records}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	rates, err := plot.Rate{Records: records, Window: 10 * us}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">hostTx, there<", ">netTx, back<"} {
		if strings.Contains(string(one), want) || !strings.Contains(string(both), want) || !strings.Contains(string(rates), want) {
			t.Errorf("%q: bands of both directions are in the pictures of both, and in no other", want)
		}
	}
	if a, b := strings.Count(string(one), `height="38"`), strings.Count(string(both), `height="38"`); a != 6 || b != 7 {
		t.Errorf("%d and %d stripes of 6 and 7 transfers", a, b)
	}
}

// TestCoveredCurve: a curve under another one stays visible, and the legend says so.
func TestCoveredCurve(t *testing.T) {
	points := []plot.Point{{X: 1, Y: 10}, {X: 2, Y: 20}, {X: 3, Y: 35}}
	apart := []plot.Point{{X: 1, Y: 10}, {X: 2, Y: 20}, {X: 3, Y: 60}}
	ch := plot.Chart{Title: "Covered", X: plot.Axis{Label: "n", Zero: true}, Y: plot.Axis{Label: "us", Zero: true},
		Series: []plot.Series{{Name: "apart", Points: apart}, {Name: "below", Points: points, Says: "grows"}, {Name: "above", Points: points}}}
	svg, err := ch.SVG()
	golden(t, "chart-covered.svg", svg, err)
	if n := strings.Count(string(svg), "stroke-opacity"); n != 2 { // the curve, and its line in the legend
		t.Errorf("%d broad and pale lines, want 2", n)
	}
	if !strings.Contains(string(svg), "grows; the same as above") || strings.Contains(string(svg), "the same as below") {
		t.Error("the legend does not say which curve lies under which")
	}
}

// TestAxes: one way of writing the numbers of an axis, and units for times.
func TestAxes(t *testing.T) {
	ch := plot.Chart{Title: "Axes", X: plot.Axis{Label: "regions", Log2: true}, Y: plot.Axis{Label: "p50", Log10: true, Time: true},
		Series: []plot.Series{{Name: "a", Points: []plot.Point{{X: 1, Y: 300}, {X: 100_000, Y: 4e6}}}}}
	svg, err := ch.SVG()
	golden(t, "chart-log10.svg", svg, err)
	for _, want := range []string{">1,024<", ">16,384<", ">65,536<", ">100 ns<", ">1 us<", ">10 ms<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no tick is %s", want)
		}
	}
	for _, never := range []string{"k<", "e+", "0.1 us"} {
		if strings.Contains(string(svg), never) {
			t.Errorf("a tick has %q", never)
		}
	}
	ch.Series[0].Points[0].Y = 0
	if _, err := ch.SVG(); err != nil {
		t.Errorf("a zero on a logarithmic axis: %v", err)
	}
}

func TestRate(t *testing.T) {
	svg, err := plot.Rate{Title: "Rates", Note: "windows of 10 us", Records: records, Window: 10 * us}.SVG()
	golden(t, "rate.svg", svg, err)
}

func TestChart(t *testing.T) {
	ch := plot.Chart{Title: "Latency", Note: "two policies and a bus", X: plot.Axis{Label: "payload, bytes", Log2: true, Bytes: true},
		Y: plot.Axis{Label: "latency, us", Zero: true}, Series: []plot.Series{
			{Name: "bus", Behind: true, Points: []plot.Point{{X: 512, Y: 10}, {X: 65536, Y: 400}}},
			{Name: "a < b", Points: []plot.Point{{X: 512, Y: 30}, {X: 4096, Y: 70}, {X: 65536, Y: 600}}},
			{Name: "c", Points: []plot.Point{{X: 512, Y: 35}, {X: 4096, Y: 90}, {X: 65536, Y: 900}}},
		}}
	svg, err := ch.SVG()
	golden(t, "chart.svg", svg, err)
	ch.X.Log2, ch.X.Zero = false, true
	svg, err = ch.SVG()
	golden(t, "chart-linear.svg", svg, err)
}

// TestStack draws two charts in one picture, with axes of so many powers of two
// that not each is marked.
func TestStack(t *testing.T) {
	wide := plot.Chart{Title: "Wide", X: plot.Axis{Label: "bytes", Log2: true, Bytes: true}, Y: plot.Axis{Label: "ns", Log2: true},
		Series: []plot.Series{{Name: "a", Points: []plot.Point{{X: 1, Y: 200}, {X: 1 << 24, Y: 4e6}}}}}
	narrow := plot.Chart{Title: "Narrow", X: plot.Axis{Label: "VIs", Log2: true}, Y: plot.Axis{Label: "ns", Zero: true},
		Series: []plot.Series{{Name: "b", Points: []plot.Point{{X: 1, Y: 900}, {X: 4096, Y: 1200}}}}}
	svg, err := plot.Stack("Both", narrow, wide)
	golden(t, "stack.svg", svg, err)
	for _, charts := range [][]plot.Chart{nil, {narrow, {Title: "nothing"}}} {
		if _, err := plot.Stack("Empty", charts...); !errors.Is(err, plot.ErrEmpty) {
			t.Errorf("%d charts: %v", len(charts), err)
		}
	}
}

func TestPage(t *testing.T) {
	svg, err := plot.Flow{Title: "Two packets", Records: records}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	page := string(plot.HTML("A & B", "intro", []plot.Section{{Title: "One", Text: "<text>",
		Tables:   []plot.Table{{Caption: "figures", Header: []string{"id", "value"}, Rows: [][]string{{"a", "1.5"}, {"b", "x<y"}, {"c", "<80"}, {"d", "4K"}, {"e", "%"}}}},
		Pictures: []plot.Picture{{Caption: "flow", SVG: svg}}}}))
	for _, want := range []string{"<title>A &amp; B</title>", "&lt;text&gt;", `<td class="n">1.5</td>`, "x&lt;y", `<td class="n">&lt;80</td>`, `<td class="n">4K</td>`, "<td>%</td>", "td.n{text-align:right;white-space:nowrap}", "<svg ", "</html>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	self := func(page string) {
		t.Helper()
		// Links into the page itself are none to anywhere else.
		page = strings.ReplaceAll(page, `href="#`, "")
		for _, never := range []string{"<script", "src=", "href="} {
			if strings.Contains(page, never) {
				t.Errorf("the page has %q and is not self-contained", never)
			}
		}
	}
	self(page)
	if strings.Contains(page, "Contents") {
		t.Error("a page of one section has a list of contents")
	}
	page = string(plot.HTML("T", "intro", []plot.Section{{Title: "One & only"},
		{Title: "Two", Tables: []plot.Table{{Caption: "figures"}}, Pictures: []plot.Picture{{Caption: "flow", SVG: svg}, {Caption: "rate", SVG: svg}}}}))
	self(page)
	links := regexp.MustCompile(`href="#([^"]+)">([^<]*)<`).FindAllStringSubmatch(page, -1)
	var names []string
	for _, l := range links {
		names = append(names, l[2])
		if strings.Count(page, `id="`+l[1]+`"`) != 1 {
			t.Errorf("%d places for the link to %q", strings.Count(page, `id="`+l[1]+`"`), l[2])
		}
	}
	if want := []string{"One &amp; only", "Two", "figures", "flow", "rate"}; !slices.Equal(names, want) {
		t.Errorf("contents %q, want %q", names, want)
	}
}

// TestBars: parts are stacked on each other, and the sum stands above them.
func TestBars(t *testing.T) {
	b := plot.Bars{Title: "Bars", Note: "two sizes & three mechanisms", X: "bytes", Y: plot.Axis{Label: "latency, us"},
		Parts: []string{"user", "transfer", "transport"}, Groups: []plot.Group{
			{Name: "64", Bars: []plot.Bar{{Name: "a", Parts: []float64{1, 2, 3}}, {Name: "b<c", Parts: []float64{0.5, 0, 0.14}}}},
			{Name: "4096", Bars: []plot.Bar{{Name: "a", Parts: []float64{10, 0, 33}}, {Name: "b<c", Parts: []float64{100, 20, 3.4}}}},
		}}
	svg, err := b.SVG()
	golden(t, "bars.svg", svg, err)
	for _, want := range []string{">6.00<", ">0.640<", ">43.0<", ">123<", ">b&lt;c<", ">4096<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s", want)
		}
	}
	two, err := plot.StackBars("Both", b, b)
	if err != nil || strings.Count(string(two), ">123<") != 2 {
		t.Errorf("two pictures: %v", err)
	}
}

func TestNothingToDraw(t *testing.T) {
	many := make([]dmalog.Record, plot.MaxStripes+1)
	for i := range many {
		many[i] = dmalog.Record{Start: int64(i), End: int64(i) + 1}
	}
	for name, c := range map[string]struct {
		draw func() ([]byte, error)
		want error
	}{
		"empty flow":      {plot.Flow{}.SVG, plot.ErrEmpty},
		"span without":    {plot.Flow{Records: records, From: 500 * us}.SVG, plot.ErrEmpty},
		"too many":        {plot.Flow{Records: many}.SVG, plot.ErrTooMany},
		"empty rate":      {plot.Rate{Window: 1}.SVG, plot.ErrEmpty},
		"no window":       {plot.Rate{Records: records}.SVG, plot.ErrEmpty},
		"too many rates":  {plot.Rate{Records: records, Window: 1}.SVG, plot.ErrTooMany},
		"empty chart":     {plot.Chart{}.SVG, plot.ErrEmpty},
		"no bars":         {plot.Bars{Parts: []string{"a"}}.SVG, plot.ErrEmpty},
		"bars of nothing": {plot.Bars{Parts: []string{"a"}, Groups: []plot.Group{{Bars: []plot.Bar{{Parts: []float64{0}}}}}}.SVG, plot.ErrEmpty},
		"negative bar":    {plot.Bars{Parts: []string{"a"}, Groups: []plot.Group{{Bars: []plot.Bar{{Parts: []float64{-1}}}}}}.SVG, plot.ErrEmpty},
		"unnamed part":    {plot.Bars{Parts: []string{"a"}, Groups: []plot.Group{{Bars: []plot.Bar{{Parts: []float64{1, 2}}}}}}.SVG, plot.ErrEmpty},
		"too many parts":  {plot.Bars{Parts: make([]string, 8), Groups: []plot.Group{{Bars: []plot.Bar{{Parts: []float64{1, 2, 3, 4, 5, 6, 7, 8}}}}}}.SVG, plot.ErrEmpty},
		"no stacked bars": {func() ([]byte, error) { return plot.StackBars("none") }, plot.ErrEmpty},
		"one point":       {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}}}}}.SVG, plot.ErrEmpty},
		"not a number":    {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}, {X: 2, Y: math.NaN()}}}}}.SVG, plot.ErrEmpty},
		"infinite points": {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}, {X: math.Inf(1), Y: 2}}}}}.SVG, plot.ErrEmpty},
	} {
		if svg, err := c.draw(); !errors.Is(err, c.want) || svg != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestPanels: a panel for each row and column, which holds the stripes of its span and no others.
func TestPanels(t *testing.T) {
	records := []dmalog.Record{{Engine: dmalog.HostTx, Start: 0, End: 5e6, Bytes: 1}, {Engine: dmalog.NetTx, Start: 5e6, End: 9e6, Bytes: 1},
		{Packet: 1, Engine: dmalog.NetRcv, Start: 20e6, End: 30e6, Bytes: 1}}
	p := plot.Panels{Title: "a & b", Notes: []string{"note"}, Columns: []plot.Column{{"idle", 10e6}, {"loaded", 10e6}}, Rows: []plot.PanelRow{
		{"one", []plot.Panel{{"left", records, 0}, {"right", records, 15e6}}},
	}}
	svg, err := p.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a &amp; b", ">idle<", ">loaded<", ">one<", ">left<", ">right<", ">hostRcv<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(string(svg), `fill="#1b4f8a"`) + strings.Count(string(svg), `fill="#e69f00"`); n != 3 {
		t.Errorf("%d stripes, two on the left and one on the right", n)
	}
	for name, change := range map[string]func(p *plot.Panels){
		"no rows":      func(p *plot.Panels) { p.Rows = nil },
		"a panel less": func(p *plot.Panels) { p.Rows[0].Panels = p.Rows[0].Panels[:1] },
		"nothing":      func(p *plot.Panels) { p.Columns[0].Span = 0 },
		"none shown":   func(p *plot.Panels) { p.Rows[0].Panels[0].From = 50e6 },
	} {
		bad := p
		bad.Columns = slices.Clone(p.Columns)
		bad.Rows = []plot.PanelRow{{"one", slices.Clone(p.Rows[0].Panels)}}
		change(&bad)
		if svg, err := bad.SVG(); !errors.Is(err, plot.ErrEmpty) || svg != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

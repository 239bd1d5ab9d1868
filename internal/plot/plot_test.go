package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares a picture with its file, and checks that it is well-formed XML.
func golden(t *testing.T, name string, draw func() ([]byte, error)) {
	t.Helper()
	got := must.Get(draw())(t)
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
		must.OK(t, os.WriteFile(file, got, 0o600))
		return
	}
	want := must.Get(os.ReadFile(file))(t)
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
	golden(t, "flow.svg", plot.Flow{Title: "Two packets", Note: `a "live" log & more`, Records: records}.SVG)
	golden(t, "flow-span.svg", plot.Flow{Title: "Ten microseconds", Records: records, From: 20 * us, To: 30 * us}.SVG)
}

// TestBands: bands of anybody's, and stripes that touch but are kept apart if they are wide
// enough.
func TestBands(t *testing.T) {
	golden(t, "bands.svg", plot.Bands{Title: "Three bands", Note: "one is empty", Legend: "what a stripe is", Names: []string{"first", "second", "third"},
		Stripes: []plot.Stripe{{Band: 0, Number: 4, End: 2 * us}, {Band: 0, Number: 4, Start: 2 * us, End: 4 * us}, {Band: 2, Number: 5, Start: 4 * us, End: 4*us + 1000}}}.SVG)
}

// TestCoveredCurve: a curve under another one stays visible, and the legend says so.
func TestCoveredCurve(t *testing.T) {
	points := []plot.Point{{X: 1, Y: 10}, {X: 2, Y: 20}, {X: 3, Y: 35}}
	apart := []plot.Point{{X: 1, Y: 10}, {X: 2, Y: 20}, {X: 3, Y: 60}}
	ch := plot.Chart{Title: "Covered", X: plot.Axis{Label: "n", Zero: true}, Y: plot.Axis{Label: "us", Zero: true},
		Series: []plot.Series{{Name: "apart", Points: apart}, {Name: "below", Points: points, Says: "grows"}, {Name: "above", Points: points}}}
	golden(t, "chart-covered.svg", ch.SVG)
}

// TestAxes: one way of writing the numbers of an axis, and units for times.
func TestAxes(t *testing.T) {
	ch := plot.Chart{Title: "Axes", X: plot.Axis{Label: "regions", Log2: true}, Y: plot.Axis{Label: "p50", Log10: true, Time: true},
		Series: []plot.Series{{Name: "a", Points: []plot.Point{{X: 1, Y: 300}, {X: 100_000, Y: 4e6}}}}}
	golden(t, "chart-log10.svg", ch.SVG)
	ch.Series[0].Points[0].Y = 0
	must.Get(ch.SVG())(t) // a zero on a logarithmic axis
}

func TestRate(t *testing.T) {
	golden(t, "rate.svg", plot.Rate{Title: "Rates", Note: "windows of 10 us", Records: records, Window: 10 * us}.SVG)
}

func TestChart(t *testing.T) {
	ch := plot.Chart{Title: "Latency", Note: "two policies and a bus", X: plot.Axis{Label: "payload, bytes", Log2: true, Bytes: true},
		Y: plot.Axis{Label: "latency, us", Zero: true}, Series: []plot.Series{
			{Name: "bus", Behind: true, Points: []plot.Point{{X: 512, Y: 10}, {X: 65536, Y: 400}}},
			{Name: "a < b", Points: []plot.Point{{X: 512, Y: 30}, {X: 4096, Y: 70}, {X: 65536, Y: 600}}},
			{Name: "c", Points: []plot.Point{{X: 512, Y: 35}, {X: 4096, Y: 90}, {X: 65536, Y: 900}}},
		}}
	golden(t, "chart.svg", ch.SVG)
	ch.X.Log2, ch.X.Zero = false, true
	golden(t, "chart-linear.svg", ch.SVG)
}

// TestStack draws two charts in one picture, with axes of so many powers of two
// that not each is marked.
func TestStack(t *testing.T) {
	wide := plot.Chart{Title: "Wide", X: plot.Axis{Label: "bytes", Log2: true, Bytes: true}, Y: plot.Axis{Label: "ns", Log2: true},
		Series: []plot.Series{{Name: "a", Points: []plot.Point{{X: 1, Y: 200}, {X: 1 << 24, Y: 4e6}}}}}
	narrow := plot.Chart{Title: "Narrow", X: plot.Axis{Label: "VIs", Log2: true}, Y: plot.Axis{Label: "ns", Zero: true},
		Series: []plot.Series{{Name: "b", Points: []plot.Point{{X: 1, Y: 900}, {X: 4096, Y: 1200}}}}}
	golden(t, "stack.svg", func() ([]byte, error) { return plot.Stack("Both", narrow, wide) })
	for _, charts := range [][]plot.Chart{nil, {narrow, {Title: "nothing"}}} {
		should.Refuse(plot.Stack("Empty", charts...))(t, plot.ErrEmpty, "%d charts", len(charts))
	}
}

func TestPage(t *testing.T) {
	svg := must.Get(plot.Flow{Title: "Two packets", Records: records}.SVG())(t)
	page := string(plot.HTML("A & B", "intro", []plot.Section{{Title: "One", Text: "<text>",
		Tables:   []plot.Table{{Caption: "figures", Header: []string{"id", "value"}, Rows: [][]string{{"a", "1.5"}, {"b", "x<y"}, {"c", "<80"}, {"d", "4K"}, {"e", "%"}}}},
		Pictures: []plot.Picture{{Caption: "flow", SVG: svg}}}}))
	for _, want := range []string{"<title>A &amp; B</title>", "&lt;text&gt;", `<td class="n">1.5</td>`, "x&lt;y", `<td class="n">&lt;80</td>`, `<td class="n">4K</td>`, "<td>%</td>", "td.n{text-align:right;white-space:nowrap}", "<svg ", "</html>"} {
		should.Contain(t, page, want, "the page has no")
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
		should.Be(t, strings.Count(page, `id="`+l[1]+`"`), 1, "places for the link to %q", l[2])
	}
	should.Same(t, names, []string{"One &amp; only", "Two", "figures", "flow", "rate"}, "contents")
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
		"nothing stacked": {func() ([]byte, error) { return plot.Stack[plot.Chart]("none") }, plot.ErrEmpty},
		"one point":       {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}}}}}.SVG, plot.ErrEmpty},
		"not a number":    {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}, {X: 2, Y: math.NaN()}}}}}.SVG, plot.ErrEmpty},
		"infinite points": {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}, {X: math.Inf(1), Y: 2}}}}}.SVG, plot.ErrEmpty},
	} {
		if svg, err := c.draw(); !errors.Is(err, c.want) || svg != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestNarrow: narrow bands have headings, and stripes without numbers; what began before is cut off.
func TestNarrow(t *testing.T) {
	golden(t, "narrow.svg", plot.Bands{Title: "a & b", Narrow: true, Names: []string{"hostTx", "netTx"}, Headings: map[int]string{0: "one", 1: "other"}, To: 10 * us,
		Stripes: []plot.Stripe{{Number: 7, Start: -5 * us, End: 5 * us}, {Band: 1, Number: 8, Start: 5 * us, End: 90 * us}, {Band: 1, Start: 20 * us, End: 30 * us}}}.SVG)
}

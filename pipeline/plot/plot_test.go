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
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/pipeline/dmalog"
	"github.com/trapeze-nic/trapeze/pipeline/plot"
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
		t.Errorf("%s differs from its golden file (go test ./pipeline/plot -update writes it anew; look at the picture)", name)
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
	if n := strings.Count(string(svg), `stroke-width="0.5"`); n != 4 {
		t.Errorf("%d stripes between 20 and 30 us, want 4", n)
	}
}

func TestRate(t *testing.T) {
	svg, err := plot.Rate{Title: "Rates", Note: "windows of 10 us", Records: records, Window: 10 * us}.SVG()
	golden(t, "rate.svg", svg, err)
}

func TestChart(t *testing.T) {
	ch := plot.Chart{Title: "Latency", Note: "two policies and a bus", X: plot.Axis{Label: "payload, bytes", Log2: true, Bytes: true},
		Y: plot.Axis{Label: "microseconds", Zero: true}, Series: []plot.Series{
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
		Tables:   []plot.Table{{Caption: "figures", Header: []string{"id", "value"}, Rows: [][]string{{"a", "1.5"}, {"b", "x<y"}}}},
		Pictures: []plot.Picture{{Caption: "flow", SVG: svg}}}}))
	for _, want := range []string{"<title>A &amp; B</title>", "&lt;text&gt;", `<td class="n">1.5</td>`, "x&lt;y", "<svg ", "</html>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, never := range []string{"<script", "src=", "href="} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q and is not self-contained", never)
		}
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
		"another flow":    {plot.Flow{Records: records[:2], Flow: 1}.SVG, plot.ErrEmpty},
		"too many":        {plot.Flow{Records: many}.SVG, plot.ErrTooMany},
		"empty rate":      {plot.Rate{Window: 1}.SVG, plot.ErrEmpty},
		"no window":       {plot.Rate{Records: records}.SVG, plot.ErrEmpty},
		"too many rates":  {plot.Rate{Records: records, Window: 1}.SVG, plot.ErrTooMany},
		"empty chart":     {plot.Chart{}.SVG, plot.ErrEmpty},
		"one point":       {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}}}}}.SVG, plot.ErrEmpty},
		"not a number":    {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}, {X: 2, Y: math.NaN()}}}}}.SVG, plot.ErrEmpty},
		"infinite points": {plot.Chart{Series: []plot.Series{{Points: []plot.Point{{X: 1, Y: 1}, {X: math.Inf(1), Y: 2}}}}}.SVG, plot.ErrEmpty},
	} {
		if svg, err := c.draw(); !errors.Is(err, c.want) || svg != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

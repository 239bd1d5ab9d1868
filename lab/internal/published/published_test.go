package published_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

func rows(t testing.TB) []published.Row {
	t.Helper()
	text, err := os.ReadFile("testdata/published.csv")
	if err != nil {
		t.Fatal(err)
	}
	r, err := published.Read(bytes.NewReader(text), "published.csv")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFidelity: with the built-in profiles the rows of Table 1 are off by at most
// 4.5 % and 2 % in the mean, the Alcor latencies of the cut-through paper by 5 %.
func TestFidelity(t *testing.T) {
	lines, err := published.Compare(published.NewModel(context.Background(), profile.Load), rows(t))
	if err != nil {
		t.Fatal(err)
	}
	table := published.Summarise(lines, func(l published.Line) bool { return strings.HasPrefix(l.Source, "CS-1997-20, Table 1") })
	if table.Rows != 16 || table.Mean > 0.02 || table.Maximum > 0.045 {
		t.Errorf("Table 1: %+v", table)
	}
	earlier := published.Summarise(lines, func(l published.Line) bool { return strings.HasPrefix(l.Source, "Trapeze cut-through paper") })
	if earlier.Rows < 3 || earlier.Maximum > 0.05 {
		t.Errorf("cut-through paper: %+v", earlier)
	}
	for _, l := range lines {
		if l.Kind == published.Predicted && l.Figure.Relation != published.Equal && l.Error != 0 {
			t.Errorf("%s: %v is outside %s %s", l.ID, l.Computed, l.Value, l.Unit)
		}
	}
}

// TestValuesTakeNoPart: a table with other values gives the same computed figures.
func TestValuesTakeNoPart(t *testing.T) {
	original := rows(t)
	changed := append([]published.Row(nil), original...)
	for i := range changed {
		changed[i].Value = "1"
	}
	a, err := published.Compare(published.NewModel(context.Background(), profile.Load), original)
	if err != nil {
		t.Fatal(err)
	}
	b, err := published.Compare(published.NewModel(context.Background(), profile.Load), changed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if a[i].Computed != b[i].Computed || a[i].Kind != b[i].Kind {
			t.Errorf("%s: %v and %v", a[i].ID, a[i].Computed, b[i].Computed)
		}
	}
}

// TestIDsTakeNoPart: what a row stands for follows from its words.
func TestIDsTakeNoPart(t *testing.T) {
	for _, r := range rows(t) {
		other := r
		other.ID = "x" + r.ID
		if a, b := published.Find(r), published.Find(other); a.Kind != b.Kind || a.What != b.What || a.Platform != b.Platform {
			t.Errorf("%s: %+v, under another id %+v", r.ID, a, b)
		}
	}
}

// TestRowsThatTheTableDoesNotHave: other payloads, policies, thresholds, platforms and
// units are recognised, in several spellings.
func TestRowsThatTheTableDoesNotHave(t *testing.T) {
	const table, hpdc = "CS-1997-20, Table 1", "Trapeze cut-through paper, S4.2"
	m := published.NewModel(context.Background(), profile.Load)
	for _, c := range []struct{ source, quantity, condition, unit, what string }{
		{table, "one-way latency", "P6/Natoma; 4K payload; store-and-forward", "us", "latency: p6-natoma, store-and-forward, 4096 B"},
		{table, "bandwidth", "P6/Natoma; 4K payload; pure cut-through", "MB/s", "stream bandwidth: p6-natoma, pure-cut-through, 4096 B"},
		{table, "one-way latency", "Pentium II/440LX; 4K payload; pure cut-through", "us", "latency: pii-440lx, pure-cut-through, 4096 B"},
		{table, "one-way latency", "P6/Natoma; 8K payload; eager adaptive cut-through", "us", "latency: p6-natoma, amp, 8192 B"},
		{table, "bandwidth", "Pentium II/440LX; 8K payload; adaptive", "MB/s", "stream bandwidth: pii-440lx, amp, 8192 B"},
		{table, "one-way latency", "Alcor; 8K payload; static cut-through", "us", "latency: alcor, static, 8192 B"},
		{table, "one-way latency", "Alcor/Miata; 8 KB payload; eager cut-through", "us", "latency: alcor-miata, eager, 8192 B"},
		{table, "one-way latency", "Alcor to Miata; 8192-byte packets; AMP", "us", "latency: alcor-miata, amp, 8192 B"},
		{table, "one-way latency", "Alcor; 8K payload; cut-through", "us", "latency: alcor, pure-cut-through, 8192 B"},
		{table, "one-way latency", "Alcor; 8K payload; S&F", "ms", "latency: alcor, store-and-forward, 8192 B"},
		{table, "round-trip latency", "Alcor; 8K payload; adaptive", "us", "twice the latency: alcor, amp, 8192 B"},
		{table, "bandwidth", "Alcor; 8K payload; adaptive; logging off", "Mbytes/s", "stream bandwidth: alcor, amp, 8192 B"},
		{table, "bidirectional bandwidth", "Alcor; 8K payload; adaptive", "MB/s", "bandwidth of two streams: alcor, amp, 8192 B"},
		{"CS-1997-20, S3", "8K latency, store and forward", "Pentium Pro", "us", "latency: p6-natoma, store-and-forward, 8192 B"},
		{"CS-1997-20, S3.1", "latency", "8K; P6/Natoma; eager cut-through; minpulse 256", "us", "latency: p6-natoma, eager, 8192 B, thresholds 256 B and 256 B"},
		{"CS-1997-20, S3.1", "latency", "8K; P6/Natoma; eager (minpulse = 1K)", "us", "latency: p6-natoma, eager, 8192 B, thresholds 1024 B and 1024 B"},
		{"CS-1997-20, S3.1", "latency", "P6/Natoma; eager; 8K payload; send minpulse 128; receive minpulse 1024", "us", "latency: p6-natoma, eager, 8192 B, thresholds 128 B and 1024 B"},
		{"CS-1997-20, S3.1", "latency", "P6/Natoma; eager; 8K payload; minpulse-recv 512", "us", "latency: p6-natoma, eager, 8192 B, thresholds default and 512 B"},
		{"CS-1997-20, S3", "one-way latency", "P6/Natoma; 8K payload; static cut-through 1280", "us", "latency: p6-natoma, static, 8192 B, thresholds 1280 B and 1280 B"},
		{"CS-1997-20, S3", "one-way latency", "P6/Natoma; 8K payload; static pulses of 1,024 bytes", "us", "latency: p6-natoma, static, 8192 B, thresholds 1024 B and 1024 B"},
		{"CS-1997-20, S3", "one-way latency", "P6/Natoma; 8K payload; 48-byte cells", "us", "latency: p6-natoma, static, 8192 B, thresholds 48 B and 48 B"},
		{"CS-1997-20, S3", "one-way latency", "P6/Natoma; 8K payload; best static pulse", "us", "latency: p6-natoma, static, 8192 B, pulse at its best"},
		{"CS-1997-20, S3", "throughput", "8K stream; adaptive; Pentium II/440LX", "Mb/s", "stream bandwidth: pii-440lx, amp, 8192 B"},
		{"CS-1997-20, S3", "latency", "P6/Natoma; 1.5K packets; adaptive", "us", "latency: p6-natoma, amp, 1536 B"},
		{"CS-1997-20, S3", "latency", "P6/Natoma; packets of 1M; adaptive", "us", "latency: p6-natoma, amp, 1048576 B"},
		{"CS-1997-20, S3", "latency", "AMP, payload 4096 measured on P6/Natoma", "us", "latency: p6-natoma, amp, 4096 B"},
		{"CS-1997-20, S3", "latency", "P6/Natoma; 1500-byte packets; adaptive", "us", "latency: p6-natoma, amp, 1500 B"},
		{"CS-1997-20, Fig4 text", "second hostRcv duration", "1200 bytes", "us", "time of a hostRcv of 1200 B, p6-natoma"},
		{"CS-1997-20, Fig4 text", "third hostRcv bandwidth", "1,460 bytes", "MB/s", "bandwidth of a hostRcv of 1460 B, p6-natoma"},
		{hpdc, "one-way 8K latency, eager", "Alcor; minpulse 64", "us", "latency: alcor-hpdc97, eager, 8192 B, thresholds 64 B and 64 B"},
		{hpdc, "one-way latency", "4K; store-and-forward", "us", "latency: alcor-hpdc97, store-and-forward, 4096 B"},
		{hpdc, "one-way latency", "2KB page; cut-through", "us", "latency: alcor-hpdc97, eager, 2048 B"},
		{hpdc, "one-way 8K latency, static", "pulse 512", "us", "latency: alcor-hpdc97, static, 8192 B, thresholds 512 B and 512 B"},
		{hpdc, "latency reduction", "4K payload; eager", "%", "reduction of latency: alcor-hpdc97, eager, 4096 B"},
		{hpdc, "DMA read bandwidth", "1024 bytes", "MB/s", "bandwidth of a hostTx of 1024 B, alcor-hpdc97"},
		{"ours", "latency", "pcie4-x16-100g; auto; 64K payload", "us", "latency: pcie4-x16-100g, auto, 65536 B"},
		{"ours", "latency", "pcie3-x8-10g; optimal; 2K payload", "ns", "latency: pcie3-x8-10g, optimal, 2048 B"},
	} {
		r := published.Row{ID: "x", Source: c.source, Quantity: c.quantity, Condition: c.condition, Value: "9", Unit: c.unit}
		found := published.Find(r)
		if found.Kind != published.Predicted || found.What != c.what {
			t.Errorf("%s of %s: %s, %q, want %q", c.quantity, c.condition, found.Kind, found.What, c.what)
			continue
		}
		if v, err := found.Compute(m); err != nil || v <= 0 {
			t.Errorf("%s of %s: %v, %v", c.quantity, c.condition, v, err)
		}
	}
}

// TestUnits: the same figure in other units.
func TestUnits(t *testing.T) {
	m := published.NewModel(context.Background(), profile.Load)
	figure := func(quantity, unit string) float64 {
		r := published.Row{ID: "x", Source: "CS-1997-20, Table 1", Quantity: quantity, Condition: "Alcor; 8K payload; adaptive", Value: "1", Unit: unit}
		v, err := published.Find(r).Compute(m)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	us, mbs := figure("one-way latency", "us"), figure("bandwidth", "MB/s")
	for unit, want := range map[string]float64{"ms": us / 1000, "ns": us * 1000, "µs": us, "s": us / 1e6} {
		if got := figure("one-way latency", unit); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%v us is %v %s", us, got, unit)
		}
	}
	for unit, want := range map[string]float64{"Mb/s": 8 * mbs, "Mbps": 8 * mbs, "Gb/s": mbs / 125, "GB/s": mbs / 1000, "Mbytes/s": mbs, "KB/s": 1000 * mbs} {
		if got := figure("bandwidth", unit); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%v MB/s is %v %s", mbs, got, unit)
		}
	}
}

// TestReasons: rows that are not computed say plainly why.
func TestReasons(t *testing.T) {
	for _, r := range rows(t) {
		if c := published.Find(r); c.Kind == published.NotModelled && len(c.What) < 10 {
			t.Errorf("%s: %q", r.ID, c.What)
		}
	}
	for _, c := range []struct{ source, quantity, condition, unit, why string }{
		{"CS-1997-20, Table 1", "bandwidth", "PDP-11; 8K payload; adaptive", "MB/s", "names no platform"},
		{"CS-1997-20, Table 1", "bandwidth", "Miata to Alcor; 8K payload; adaptive", "MB/s", "names no platform"},
		{"CS-1997-20, Table 1", "bandwidth", "Alcor; 8K payload; telepathy", "MB/s", "no delivery policy"},
		{"CS-1997-20, Table 1", "bandwidth", "Alcor; 8K payload; adaptive", "furlongs", "the unit"},
		{"CS-1997-20, Table 1", "colour", "Alcor; 8K payload; adaptive", "us", "not a latency"},
		{"CS-1997-20, Table 1", "latency", "Alcor; 128-byte payload; eager; minpulse 4096", "us", "above the payload"},
		{"CS-1997-20, Table 1", "latency", "Alcor; 9000K payload; eager", "us", "above 1048576 bytes"},
		{"CS-1997-20, Table 1", "latency", "Alcor; 0-byte payload; eager", "us", "none of 1 to 1048576 bytes"},
		{"CS-1997-20, Table 1", "latency", "Alcor; 1.3K payload; eager", "us", "none of 1 to 1048576 bytes"},
		{"CS-1997-20, Table 1", "latency", "Alcor; 64 MB payload; eager", "us", "none of 1 to 1048576 bytes"},
		{"CS-1997-20, Table 1", "latency", "Alcor; 8K payload; eager; minpulse 0", "us", "from 1 to the payload"},
		{"CS-1997-20, Fig4 text", "third hostRcv duration", "0 bytes", "us", ""},
		{"CS-1997-20, Fig5 text", "third hostRcv initiated", "T", "us", "log"},
		{"MINI, Latency", "cell send", "", "ns", "MINI"},
		{"EDT, Table 1", "L2", "", "MB", "EDT"},
	} {
		found := published.Find(published.Row{ID: "y", Source: c.source, Quantity: c.quantity, Condition: c.condition, Unit: c.unit})
		if found.Kind != published.NotModelled || !strings.Contains(found.What, c.why) {
			t.Errorf("%s of %q: %s, %q", c.quantity, c.condition, found.Kind, found.What)
		}
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		value, condition string
		computed, want   float64
	}{
		{"200", "", 210, 0.05}, {"200", "", 190, -0.05},
		{"<80", "", 70, 0}, {"<80", "", 84, 0.05}, {"80", "under", 70, 0},
		{">120", "", 130, 0}, {">120", "", 114, -0.05}, {"100", "above; logging on", 101, 0},
		{"120-132", "", 121, 0}, {"100-120", "", 126, 0.05}, {"4K", "", 4096, 0},
		{"~200", "", 210, 0.05}, {"about 200", "", 210, 0.05}, {"1,280", "", 1280, 0}, {"<=80", "", 80, 0}, {"≥ 120", "", 108, -0.1},
	} {
		f, err := published.Row{Value: c.value, Condition: c.condition}.Figure()
		if err != nil {
			t.Error(err)
			continue
		}
		if got := f.Error(c.computed); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s (%s) against %v: %v, want %v", c.value, c.condition, c.computed, got, c.want)
		}
	}
	for _, value := range []string{"", "fast", "9-1", "<", "1-2-3", "NaN", "inf", "1e999", "0", "-5", "0x10", "1_0"} {
		if _, err := (published.Row{Value: value}).Figure(); !errors.Is(err, published.ErrFigure) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestByteOrderMark: what spreadsheets write before the first line is none of it.
func TestByteOrderMark(t *testing.T) {
	r, err := published.Read(strings.NewReader("\ufeffid,source,quantity,condition,value,unit\r\n1,s,q,c,5,us\r\n"), "sheet.csv")
	if err != nil || len(r) != 1 || r[0].ID != "1" || r[0].Line != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestBadTables(t *testing.T) {
	const header = "id,source,quantity,condition,value,unit\n"
	for name, text := range map[string]string{
		"empty": "", "another header": "a,b,c,d,e,f\n", "five columns": header + "1,2,3,4,5\n",
		"same id twice": header + "1,s,q,c,5,us\n1,s,q,c,5,us\n", "no id": header + ",s,q,c,5,us\n", "open quote": header + "\"1,s,q,c,5,us\n",
	} {
		r, err := published.Read(strings.NewReader(text), "bad.csv")
		var e *published.Error
		if !errors.As(err, &e) || e.File != "bad.csv" || e.Line < 1 || r != nil {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
}

// FuzzRead: any table is read or refused with an *Error, and its rows can be looked
// up.
func FuzzRead(f *testing.F) {
	f.Add("id,source,quantity,condition,value,unit\n002-005,\"CS-1997-20, Table 1\",bandwidth,Alcor; 8K payload; static 99999,1,MB/s\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := published.Read(strings.NewReader(text), "fuzz.csv")
		var e *published.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%T %v", err, err)
		}
		for _, row := range r {
			published.Find(row)
			if f, err := row.Figure(); err == nil && f.Low > f.High {
				t.Fatalf("%q: from %v to %v", row.Value, f.Low, f.High)
			}
		}
	})
}

func BenchmarkCompare(b *testing.B) {
	r := rows(b)
	for b.Loop() {
		if _, err := published.Compare(published.NewModel(context.Background(), profile.Load), r); err != nil {
			b.Fatal(err)
		}
	}
}

package published_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/pipeline/profile"
	"github.com/trapeze-nic/trapeze/pipeline/published"
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
	lines, err := published.Compare(published.NewModel(profile.Load), rows(t))
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
	a, err := published.Compare(published.NewModel(profile.Load), original)
	if err != nil {
		t.Fatal(err)
	}
	b, err := published.Compare(published.NewModel(profile.Load), changed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if a[i].Computed != b[i].Computed || a[i].Kind != b[i].Kind {
			t.Errorf("%s: %v and %v", a[i].ID, a[i].Computed, b[i].Computed)
		}
	}
}

// TestRowsThatTheTableDoesNotHave: other policies and platforms of Table 1 are
// recognised by their words, whatever their ids.
func TestRowsThatTheTableDoesNotHave(t *testing.T) {
	m := published.NewModel(profile.Load)
	for _, c := range []struct{ condition, platform, policy string }{
		{"P6/Natoma; 8K payload; eager adaptive cut-through", "p6-natoma", "amp"},
		{"Pentium II/440LX; 8K payload; adaptive", "pii-440lx", "amp"},
		{"Alcor; 8K payload; static cut-through", "alcor", "static"},
		{"Alcor to Miata; 8K payload; eager cut-through", "alcor-miata", "eager"},
		{"Alcor to Miata; 4K payload; store-and-forward", "alcor-miata", "store-and-forward"},
	} {
		for quantity, unit := range map[string]string{"one-way latency": "us", "bandwidth": "MB/s"} {
			found := published.Find(published.Row{ID: "x", Source: "CS-1997-20, Table 1", Quantity: quantity, Condition: c.condition, Value: "9", Unit: unit})
			if found.Kind != published.Predicted || found.Platform != c.platform || !strings.Contains(found.What, c.policy) {
				t.Errorf("%s of %s: %+v", quantity, c.condition, found)
				continue
			}
			if v, err := found.Compute(m); err != nil || v <= 0 {
				t.Errorf("%s of %s: %v, %v", quantity, c.condition, v, err)
			}
		}
	}
	for _, condition := range []string{"", "PDP-11; 8K payload; adaptive", "Alcor; 8K payload; telepathy", "Alcor; many payloads; adaptive", "Alcor; 0K payload; adaptive"} {
		if c := published.Find(published.Row{ID: "y", Source: "CS-1997-20, Table 1", Quantity: "bandwidth", Condition: condition, Unit: "MB/s"}); c.Kind != published.NotModelled {
			t.Errorf("%q: %+v", condition, c)
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
	for _, value := range []string{"", "fast", "9-1", "<", "1-2-3"} {
		if _, err := (published.Row{Value: value}).Figure(); !errors.Is(err, published.ErrFigure) {
			t.Errorf("%q: %v", value, err)
		}
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
		if _, err := published.Compare(published.NewModel(profile.Load), r); err != nil {
			b.Fatal(err)
		}
	}
}

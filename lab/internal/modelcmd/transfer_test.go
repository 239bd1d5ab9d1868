package modelcmd_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func TestTransferJSON(t *testing.T) {
	args := []string{"model", "transfer", "--platform", "sonic-via", "--mechanism", "edt", "--bytes", "1024", "--dma-rate", "1600", "--order", "stride", "--json"}
	out := ok(t, args...)
	if again := ok(t, args...); again != out {
		t.Error("two runs print different bytes")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(keys)), []string{"bus_transactions", "total_us", "transactions", "transfer_us", "transport_us", "user_us"}; !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	var r struct {
		User      float64 `json:"user_us"`
		Transfer  float64 `json:"transfer_us"`
		Transport float64 `json:"transport_us"`
		Total     float64 `json:"total_us"`
		Count     int     `json:"bus_transactions"`
		List      []struct {
			Side, Agent, Kind, Region string
			Block, Bytes              *int
			Start                     float64 `json:"start_us"`
			End                       float64 `json:"end_us"`
		} `json:"transactions"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.Total-r.User-r.Transfer-r.Transport) > 1e-9 || r.Count != len(r.List) {
		t.Errorf("%v is not %v + %v + %v, or %d is not %d", r.Total, r.User, r.Transfer, r.Transport, r.Count, len(r.List))
	}
	payload := 0
	for _, x := range r.List {
		if x.Side == "sender" && x.Region == "payload" {
			payload++
		}
		if x.Agent == "" || x.Kind == "" || x.Block == nil || x.Bytes == nil || x.End <= x.Start {
			t.Fatalf("%+v", x)
		}
	}
	if payload != 2*1024/8 {
		t.Errorf("%d transactions of the payload for %d words with a stride", payload, 1024/8)
	}
}

// TestEveryTransfer runs each mechanism on each platform through the command, and draws each platform.
func TestEveryTransfer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bars.svg")
	for _, p := range profile.Systems.Names() {
		s, err := profile.Systems.Load(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range coherence.Mechanisms(s) {
			if out := ok(t, "model", "transfer", "--platform", p, "--mechanism", string(m), "--order", "random", "--seed", "3", "--until", "wire"); !strings.Contains(out, "data transfer") || !strings.Contains(out, p+", "+string(m)) {
				t.Errorf("%s, %s: %s", p, m, out)
			}
		}
		ok(t, "plot", "transfer", "--force", "--platform", p, "--output", file)
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{">edt<", ">4096<", ">data transfer<", "256 bytes"} {
			if !strings.Contains(string(svg), want) {
				t.Errorf("%s: the picture has no %s", p, want)
			}
		}
	}
	ok(t, "plot", "transfer", "--force", "--mechanisms", "cni,pio-wc", "--output", file)
	if svg, err := os.ReadFile(file); err != nil || strings.Contains(string(svg), ">edt<") || strings.Count(string(svg), ">cni<") != 8 {
		t.Errorf("two mechanisms at seven sizes and in the breakdown: %v", err)
	}
}

func TestBadTransfers(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "out.svg")
	refused(t, []badCase{
		{"model transfer --platform vax", option.ErrBad, "sonic-via"},
		{"model transfer --platform EMPTY", option.ErrBad, "--platform"},
		{"model transfer --platform none.toml", profile.ErrUnreadable, "none.toml"},
		{"model transfer --mechanism pigeon", option.ErrBad, "cc-dma-retry"},
		{"model transfer --platform pcie4-x16-100g --mechanism cni", option.ErrBad, "edt, dma, pio"},
		{"model transfer --bytes 0", option.ErrBad, "--bytes 0"},
		{"model transfer --bytes 65537", option.ErrBad, "1 to 65536"},
		{"model transfer --dma-rate 0", option.ErrBad, "--dma-rate"},
		{"model transfer --dma-rate -5", option.ErrBad, "1 to 1600 MB/s"},
		{"model transfer --dma-rate NaN", option.ErrBad, "1 to 1600 MB/s"},
		{"model transfer --dma-rate inf", option.ErrBad, "1 to 1600 MB/s"},
		{"model transfer --platform sonic-via-800 --dma-rate 801", option.ErrBad, "1 to 800 MB/s"},
		{"model transfer --order backwards", option.ErrBad, "sequential, stride, random"},
		{"model transfer --order EMPTY --until never", option.ErrBad, "wire, delivered, consumed"},
		{"model transfer --receiving coherent --mechanism dma", option.ErrBad, "--receiving"},
		{"model platforms vax", option.ErrBad, "sonic-via"},
		{"plot transfer", option.ErrBad, "--output"},
		{"plot transfer --mechanisms edt,pigeon --output " + svg, option.ErrBad, "--mechanisms pigeon"},
		{"plot transfer --mechanisms EMPTY --output " + svg, option.ErrBad, "--mechanisms"},
		{"plot transfer --platform vax --output " + svg, option.ErrBad, "sonic-via"},
	})
	if _, err := os.Stat(svg); err == nil {
		t.Error("a failed command wrote its output")
	}
}

func TestPlatforms(t *testing.T) {
	if out := ok(t, "model", "platforms"); !strings.Contains(out, "pcie5-x16-400g") {
		t.Errorf("%s", out)
	}
	var list []struct {
		Name       string
		Mechanisms []string
	}
	if err := json.Unmarshal([]byte(ok(t, "model", "platforms", "--json")), &list); err != nil || len(list) != len(profile.Systems.Names()) || len(list[0].Mechanisms) == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	// What is printed can be used, and serves as a base.
	dir := t.TempDir()
	mine, slower := filepath.Join(dir, "mine.toml"), filepath.Join(dir, "slower.toml")
	if err := os.WriteFile(mine, []byte(ok(t, "model", "platforms", "sonic-via")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(slower, []byte("base = \"sonic-via\"\n[bus]\nclock = \"50 MHz\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b, c := ok(t, "model", "transfer", "--json"), ok(t, "model", "transfer", "--platform", mine, "--json"), ok(t, "model", "transfer", "--platform", slower, "--json")
	if a != b || a == c {
		t.Error("a printed platform gives other figures, or a changed one the same")
	}
}

// TestCompareRanges: of a figure that is a range, compare shows both ends, in text and in JSON.
func TestCompareRanges(t *testing.T) {
	var c struct {
		Rows []struct {
			ID       string
			Computed *float64
			Highest  *float64 `json:"computed_highest"`
		}
	}
	if err := json.Unmarshal([]byte(ok(t, "model", "compare", "--published", table, "--json")), &c); err != nil {
		t.Fatal(err)
	}
	ranges := 0
	for _, r := range c.Rows {
		if r.Highest == nil {
			continue
		}
		if ranges++; r.Computed == nil || *r.Highest <= *r.Computed {
			t.Errorf("%s: from %v to %v", r.ID, r.Computed, *r.Highest)
		}
	}
	if ranges < 5 {
		t.Errorf("%d ranges", ranges)
	}
	if out := ok(t, "model", "compare", "--published", table); !strings.Contains(out, "64.00-4096.00") {
		t.Error("the text has no range")
	}
}

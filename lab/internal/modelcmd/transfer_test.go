package modelcmd_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
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
	must.OK(t, json.Unmarshal([]byte(out), &keys))
	if got, want := slices.Sorted(maps.Keys(keys)), []string{"bus_transactions", "execution_us", "initiation_us", "interrupt_us", "kinds", "registration_transactions", "registration_us", "total_us", "transactions", "transfer_us", "transport_receiving_us", "transport_sending_us", "transport_us", "user_sending_us", "user_us"}; !slices.Equal(got, want) {
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
	must.OK(t, json.Unmarshal([]byte(out), &r))
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

// TestEveryTransfer runs each mechanism on each platform through the command.
func TestEveryTransfer(t *testing.T) {
	for _, p := range profile.Systems.Names() {
		s := must.Get(profile.Systems.Load(p))(t)
		for _, m := range coherence.Mechanisms(s) {
			if out := ok(t, "model", "transfer", "--platform", p, "--mechanism", string(m), "--order", "random", "--seed", "3", "--until", "wire"); !strings.Contains(out, "transport_us") || !strings.Contains(out, "sender") {
				t.Errorf("%s, %s: %s", p, m, out)
			}
		}
	}
}

func TestBadTransfers(t *testing.T) {
	refused(t, []badCase{
		{"model transfer --platform vax", option.ErrBad, "sonic-via"},
		{"model transfer --platform none.toml", profile.ErrUnreadable, "none.toml"},
		{"model transfer --mechanism pigeon", option.ErrBad, "cc-dma-retry"},
		{"model transfer --platform pcie4-x16-100g --mechanism cni", option.ErrBad, "edt, dma, pio"},
		{"model transfer --bytes 0", option.ErrBad, "--bytes 0"},
		{"model transfer --dma-rate 0", option.ErrBad, "--dma-rate"},
		{"model transfer --platform sonic-via-800 --dma-rate 801", option.ErrBad, "1 to 800 MB/s"},
		{"model transfer --dma-rate NaN", option.ErrBad, "1 to 1600"},
		{"model transfer --bytes 65537", option.ErrBad, "1 to 65536"},
		{"model transfer --until doomsday", option.ErrBad, "wire, delivered or consumed"},
		{"model transfer --platform pcie4-x16-100g --until consumed", option.ErrBad, "wire, delivered on"},
		{"model transfer --receiving hand", option.ErrBad, "--receiving hand"},
		{"model transfer --initialising hand", option.ErrBad, "flush or nic-reads"},
		{"model transfer --order backwards", option.ErrBad, "sequential, stride or random"},
		{"model transfer --order EMPTY --until never", option.ErrBad, "--order"},
		{"model transfer --receiving coherent --mechanism dma", option.ErrBad, "--receiving"},
		{"model platforms vax", option.ErrBad, "sonic-via"},
	})
}

func TestPlatforms(t *testing.T) {
	if out := ok(t, "model", "platforms"); !strings.Contains(out, "pcie5-x16-400g") {
		t.Errorf("%s", out)
	}
	var list []struct{ Name, Summary string }
	if err := json.Unmarshal([]byte(ok(t, "model", "platforms", "--json")), &list); err != nil || len(list) != len(profile.Systems.Names()) || list[0].Summary == "" {
		t.Errorf("%+v, %v", list, err)
	}
	// What is printed can be used, and serves as a base.
	dir := t.TempDir()
	mine, slower := filepath.Join(dir, "mine.toml"), filepath.Join(dir, "slower.toml")
	must.OK(t, os.WriteFile(mine, []byte(ok(t, "model", "platforms", "sonic-via")), 0o600))
	must.OK(t, os.WriteFile(slower, []byte("base = \"sonic-via\"\n[bus]\nclock = \"50 MHz\"\n"), 0o600))
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
	must.OK(t, json.Unmarshal([]byte(ok(t, "model", "compare", "--published", table, "--json")), &c))
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
	if out := ok(t, "model", "compare", "--published", table); !regexp.MustCompile(` 64 +4096 `).MatchString(out) {
		t.Error("the text has no range")
	}
}

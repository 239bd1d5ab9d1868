package modelcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// shared is a row of "model trunk".
type shared struct {
	Policy     string
	Sender     int
	Latency    float64 `json:"latency_us"`
	Longest    float64 `json:"longest_us"`
	Bandwidth  float64 `json:"bandwidth_mb_s"`
	Held       float64 `json:"held_us"`
	Idle       float64 `json:"held_idle_us"`
	Pulses     float64 `json:"netTx_per_frame"`
	CutThrough int     `json:"cut_through"`
	Lost       int
}

func trunk(t *testing.T, args ...string) (rows []shared) {
	t.Helper()
	if err := json.Unmarshal([]byte(ok(t, append([]string{"model", "trunk", "--json"}, args...)...)), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestTrunk: cut-through of a slow sender takes bandwidth from a fast one, which store and forward
// leaves to it, and the watchdog gives it back.
func TestTrunk(t *testing.T) {
	rows := trunk(t, "--policies", "store-and-forward,eager", "--slow", "8", "--count", "40")
	if len(rows) != 4 || rows[1].Policy != "store-and-forward" || rows[3].Policy != "eager" || rows[3].Sender != 1 {
		t.Fatalf("%+v", rows)
	}
	if whole, eager := rows[1], rows[3]; eager.Bandwidth > whole.Bandwidth/3 || rows[2].Idle < rows[2].Held/2 {
		t.Errorf("the fast sender: %+v, beside store and forward %+v", eager, whole)
	}
	rows = trunk(t, "--policies", "eager", "--slow", "1000", "--count", "40", "--watchdog-us", "50")
	if rows[0].Lost != 40 || rows[1].Lost != 0 || rows[1].Bandwidth < 100 {
		t.Errorf("%+v", rows)
	}
	if text := ok(t, "model", "trunk", "--senders", "3", "--count", "5"); strings.Count(text, "\n") != 10 {
		t.Errorf("%s", text)
	}
}

func TestTrunkPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.svg")
	ok(t, "plot", "trunk", "--policy", "eager", "--senders", "3", "--output", file)
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, band := range []string{"0: hostTx", "2: netTx", "trunk"} {
		if !strings.Contains(string(svg), ">"+band+"<") {
			t.Errorf("no band %s", band)
		}
	}
}

func TestTrunkRefuses(t *testing.T) {
	refused(t, []badCase{
		{"model trunk --senders 0", option.ErrBad, "1 to 16"},
		{"model trunk --senders 17", option.ErrBad, "1 to 16"},
		{"model trunk --slow 0.5", option.ErrBad, "1 to 1000"},
		{"model trunk --slow nan", option.ErrBad, "1 to 1000"},
		{"model trunk --packet -1", option.ErrBad, "0 to 16777216 bytes"},
		{"model trunk --watchdog-us -1", option.ErrBad, "0 to 1000000"},
		{"model trunk --gap-us 1e9", option.ErrBad, "0 to 1000000"},
		{"model trunk --policies psychic", option.ErrBad, "amp"},
		{"model trunk --policies EMPTY", option.ErrBad, "amp"},
		{"model trunk --payload 0", option.ErrBad, "1 to 1048576 bytes"},
		{"model trunk --profile vax", option.ErrBad, "alcor"},
		{"plot trunk --policy psychic --output a.svg", option.ErrBad, "--policy"},
		{"plot trunk", option.ErrBad, "a file to write"},
	})
}

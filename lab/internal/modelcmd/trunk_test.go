package modelcmd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
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
	must.OK(t, json.Unmarshal([]byte(ok(t, append([]string{"model", "trunk", "--json"}, args...)...)), &rows))
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

func TestTrunkRefuses(t *testing.T) {
	refused(t, []badCase{
		{"model trunk --senders 17", option.ErrBad, "1..16"},
		{"model trunk --slow 0.5", option.ErrBad, "1..1000"},
		{"model trunk --packet -1", option.ErrBad, "0..16777216"},
		{"model trunk --watchdog-us -1", option.ErrBad, "0..1000000"},
		{"model trunk --gap-us 1e9", option.ErrBad, "0..1000000"},
		{"model trunk --policies psychic", option.ErrBad, "amp"},
		{"model trunk --policies EMPTY", option.ErrBad, "--policies"},
		{"model trunk --payload 0", option.ErrBad, "1..16777216"},
		{"plot trunk", option.ErrBad, "a file to write"},
	})
}

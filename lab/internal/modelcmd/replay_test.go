package modelcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// replayLog is a log of one frame that left in two pulses of 512 bytes.
const replayLog = `{"packet":0,"engine":"hostTx","start_us":0,"end_us":10.24,"bytes":1024}
{"packet":0,"engine":"netTx","start_us":5.12,"end_us":10.88,"bytes":512}
{"packet":0,"engine":"netTx","start_us":10.88,"end_us":16,"bytes":512}
`

const replaySetup = `{"dma_log":1,"at":"nic","send":{"policy":"POLICY","minpulse_bytes":512},"receive":{"policy":"amp"},"burst_bytes":512,"buffers":4}` + "\n"

// writeLog writes a log of a policy, and returns its name.
func writeLog(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "live.log")
	must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestReplay(t *testing.T) {
	static := writeLog(t, strings.Replace(replaySetup, "POLICY", "static", 1)+replayLog)
	var rows []struct {
		Engine string
		Frames int
		Alike  int `json:"frames_alike"`
		Live   struct {
			Transfers int
			Bytes     int `json:"median_bytes"`
		}
		Model     struct{ Transfers int }
		Bandwidth float64 `json:"bandwidth_mb_s"`
	}
	must.OK(t, json.Unmarshal([]byte(ok(t, "model", "replay", "--log", static, "--min-alike", "100", "--json")), &rows))
	if len(rows) != 2 || rows[1].Engine != "netTx" || rows[1].Frames != 1 || rows[1].Alike != 1 || rows[1].Live.Transfers != 2 || rows[1].Live.Bytes != 512 ||
		rows[1].Model.Transfers != 2 || rows[1].Bandwidth < 99 || rows[1].Bandwidth > 101 {
		t.Errorf("%+v", rows)
	}
	if out := ok(t, "model", "replay", "--log", static); !strings.Contains(out, "netTx") || !strings.Contains(out, " 100 ") {
		t.Errorf("%s", out)
	}
	should.Contain(t, ok(t, "model", "replay", "--log", static, "--profile", "p6-natoma"), "p6-natoma")
	whole := writeLog(t, strings.Replace(replaySetup, "POLICY", "store-and-forward", 1)+replayLog)
	if _, err := run("model", "replay", "--log", whole, "--min-alike", "100"); err == nil || !strings.Contains(err.Error(), "netTx 0 of 1") {
		t.Errorf("other decisions: %v", err)
	}
}

// TestLiveBandwidths: logs of live transfers have a curve for each direction of DMA that is in them.
func TestLiveBandwidths(t *testing.T) {
	log, picture := writeLog(t, replayLog), filepath.Join(t.TempDir(), "dma.svg")
	other := writeLog(t, strings.ReplaceAll(replayLog, "1024", "2048"))
	ok(t, "plot", "bandwidth", "--log", log+","+other, "--output", picture)
	svg, err := os.ReadFile(picture)
	for curve, want := range map[string]bool{">hostTx<": true, ">netTx<": false, ">hostRcv<": false} {
		if err != nil || strings.Contains(string(svg), curve) != want {
			t.Errorf("%s: not %v, %v", curve, want, err)
		}
	}
	refused(t, []badCase{{"plot bandwidth --log missing --output " + picture + ".svg", os.ErrNotExist, "--log"}})
}

// TestReplayRefused: logs and flags that are of no use.
func TestReplayRefused(t *testing.T) {
	refused(t, []badCase{
		{"model replay", option.ErrBad, "--log"},
		{"model replay --log " + filepath.Join(t.TempDir(), "missing"), os.ErrNotExist, "--log"},
		{"model replay --min-alike 101 --log x", option.ErrBad, "0..100"},
		{"model replay --profile vax --log " + writeLog(t, replaySetup), option.ErrBad, "--profile vax"},
		{"model replay --log " + writeLog(t, replayLog), replay.ErrNoSetup, "record it again"},
		{"model replay --log " + writeLog(t, strings.Replace(replaySetup, "POLICY", "warp", 1)+replayLog), pipeline.ErrUnknownPolicy, "send.policy"},
		{"model replay --log " + writeLog(t, strings.Replace(replaySetup, "POLICY", "amp", 1)), replay.ErrNoFrames, "--log"},
		{"model replay --log " + writeLog(t, strings.Replace(replaySetup, `"nic"`, `"cloud"`, 1)+replayLog), dmalog.ErrSetup, "live.log:1: at"},
		{"model replay --log " + writeLog(t, strings.Replace(replaySetup, "POLICY", "amp", 1)+replayLog[:100]), dmalog.ErrRecord, "live.log:3"},
	})
}

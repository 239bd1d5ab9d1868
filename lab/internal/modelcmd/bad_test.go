package modelcmd_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/modelcmd"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// badCase is a command that fails: with which error, and what its message names.
type badCase struct {
	args string
	want error
	says string
}

func refused(t *testing.T, cases []badCase) {
	t.Helper()
	for _, c := range cases {
		args := strings.Fields(c.args)
		for i, a := range args {
			if a == "EMPTY" {
				args[i] = ""
			}
		}
		out, err := run(args...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.args, err)
		}
		if out != "" && !errors.Is(err, modelcmd.ErrTooFar) {
			t.Errorf("%s: prints %q although it fails", c.args, out)
		}
	}
}

// TestBadOptions: what the command line asks for cannot be had.
func TestBadOptions(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "out.svg")
	refused(t, []badCase{
		{"model --policy psychic", option.ErrBad, "store-and-forward"},
		{"model --policy EMPTY", option.ErrBad, "--policy"},
		{"model --policy AMP", option.ErrBad, "amp"},
		{"model --profile vax", option.ErrBad, "alcor"},
		{"model --profile EMPTY", option.ErrBad, "--profile"},
		{"model --payload 0", option.ErrBad, "1..16777216"},
		{"model --policy optimal --payload 1048577", option.ErrBad, "1 to 1048576 bytes"},
		{"model --payload 100 --minpulse-send 101", option.ErrBad, "1 to 100 bytes"},
		{"model --payload 100 --minpulse-recv -1", option.ErrBad, "1 to 100 bytes"},
		{"model --minpulse-send 0", option.ErrBad, "1 to 8192"},
		{"model --count 0", option.ErrBad, "1..100000"},
		{"model --block-copy 100", option.ErrBad, "0..99"},
		{"model --poisson", option.ErrBad, "--gap-us"},
		{"model sweep --poisson", option.ErrBad, "--gaps-us"},
		{"model --gap-us NaN", option.ErrBad, "0..1000000"},
		{"model fetch --server-us -1", option.ErrBad, "0..1000000"},
		{"model --warmup -2", option.ErrBad, "0..100000"},
		{"model sweep --sides left", option.ErrBad, "both, send or recv"},
		{"model sweep --policies amp,psychic", option.ErrBad, "--policies psychic"},
		{"model sweep --profiles vax", option.ErrBad, "--profiles vax"},
		{"model sweep --payloads 8192,0", option.ErrBad, "--payloads"},
		{"model sweep --policies amp,optimal --payloads 2097152", option.ErrBad, "1 to 1048576"},
		{"model sweep --thresholds 9000", option.ErrBad, "0 to 8192"},
		{"model sweep --counts 0", option.ErrBad, "1.."},
		{"model sweep --gaps-us -5", option.ErrBad, "0.."},
		{"model compare", option.ErrBad, "--published"},
		{"model compare --published " + table + " --max-error 0.1", modelcmd.ErrTooFar, "maximum"},
		{"model compare --published " + table + " --max-error NaN", option.ErrBad, "0..1000000000"},
		{"model fit", option.ErrBad, "--published"},
		{"model fit --published " + table + " --half left", option.ErrBad, "latencies"},
		{"model goals --payloads 0", option.ErrBad, "1..1048576"},
		{"model goals --variants -1", option.ErrBad, "0..1000"},
		{"model goals --profiles vax", option.ErrBad, "--profiles vax"},
		{"model profiles vax", option.ErrBad, "alcor"},
		{"plot flow", option.ErrBad, "--output"},
		{"plot flow --policy psychic --output " + svg, option.ErrBad, "store-and-forward"},
		{"plot flow --log x --policy amp --output " + svg, nil, "[log policy]"},
		{"plot rate --log x --count 3 --output " + svg, nil, "[log count]"},
		{"plot rate --window-us 0 --output " + svg, option.ErrBad, "0.001"},
		{"plot threshold --payload 1 --output " + svg, option.ErrBad, "64"},
		{"plot threshold --other 64,9000 --output " + svg, option.ErrBad, "1 to 8192"},
		{"plot latency --policies EMPTY --output " + svg, option.ErrBad, "--policies"},
		{"plot report --profiles EMPTY --output " + svg, option.ErrBad, "--profiles"},
	})
	for _, args := range []string{"model --nonsense", "model extra", "model --payload many", "model --seed -1"} {
		if _, err := run(strings.Fields(args)...); err == nil {
			t.Errorf("%s succeeds", args)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(svg), "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// goodProfile is a usable platform; bad ones replace a line of it.
const goodProfile = `[bus]
duplex = "half"
read = "100 MB/s"
write = "50 MB/s"
overhead = "3 us"
[host]
cost = "10 us"
[nic]
decision = "1 us"
completion = "0 us"
packet = "500 ns"
buffers = 2
[link]
bandwidth = "1.28 Gb/s"
overhead = "0 us"
latency = "1 us"
header = "128 B"
`

// TestBadFiles: errors name the file and what is wrong with it.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	must.Get(run("model", "--profile", write("good.toml", goodProfile)))(t)
	spoil := func(old, new string) string {
		if !strings.Contains(goodProfile, old) {
			t.Fatalf("no %q to replace", old)
		}
		return "model --profile " + write("bad.toml", strings.Replace(goodProfile, old, new, 1))
	}
	for _, c := range []struct {
		old, new string
		want     error
		says     []string
	}{
		{`"100 MB/s"`, `"-1 MB/s"`, profile.ErrValue, []string{"bus.read", "-1 MB/s", "0.1 MB/s to 1000 GB/s"}},
		{`read = "100 MB/s"`, "read = inf", profile.ErrValue, []string{"bus.read", "bad.toml"}},
		{"decision", "decison", profile.ErrUnknownKey, []string{"nic.decison", "bad.toml", "decision"}},
		{"[bus]", "[bus", profile.ErrSyntax, []string{"bad.toml:1"}},
	} {
		args := spoil(c.old, c.new)
		for _, says := range append(c.says, "bad.toml") {
			refused(t, []badCase{{args, c.want, says}})
		}
	}
	none, csv := filepath.Join(dir, "none"), "model compare --published "
	refused(t, []badCase{
		{"model --profile " + none + ".toml", profile.ErrUnreadable, "none.toml"},
		{"model --profile " + write("empty.toml", ""), profile.ErrMissing, "empty.toml"},
		{"model sweep --profiles alcor," + none + ".toml", profile.ErrUnreadable, "none.toml"},
		{csv + none, fs.ErrNotExist, "none"},
		{csv + dir, nil, "is a directory"},
		{csv + write("empty.csv", ""), published.ErrTable, "empty.csv:1"},
		{csv + write("five.csv", published.Columns+"\na,b,c,d,1\n"), published.ErrTable, "five.csv:2"},
		{csv + write("other.csv", "a,b,c,d,e,f\n"), published.ErrTable, "other.csv:1"},
		{csv + write("word.csv", published.Columns+"\nx,s,q,c,fast,MB/s,,stream bandwidth,alcor,amp,8192,,,,\n"), published.ErrFigure, "word.csv:2: column value: "},
		{"plot flow --log " + write("bad.log", "{}\n") + " --output " + none, dmalog.ErrRecord, "bad.log:1: packet"},
		{"plot flow --log " + os.DevNull + " --output " + none, plot.ErrEmpty, ""},
		{"plot flow --log " + dir + " --output " + none, nil, "is a directory"},
		{"plot flow --log " + none + " --output " + none, fs.ErrNotExist, "none"},
		{"plot report --published " + none + " --output " + none, fs.ErrNotExist, "none"},
	})
	should.Refuse(os.Stat(none))(t, fs.ErrNotExist, "a failed command wrote its output")
}

// TestOutputs: files are written whole or not at all, and what cannot be written is
// refused before the work is done.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.svg")
	must.OK(t, os.WriteFile(old, []byte("old"), 0o600))
	refused(t, []badCase{
		{"plot flow --output " + filepath.Join(dir, "no", "such", "dir.svg"), fs.ErrNotExist, filepath.Join("no", "such")},
		{"plot flow --output " + dir, nil, "is a directory"},
		{"plot flow --output " + filepath.Join(old, "new.svg"), nil, "new.svg"},
		{"plot flow --output " + old, fs.ErrExist, "--force"},
		{"plot flow --count 5000 --force --output " + old, plot.ErrTooMany, ""},
	})
	if text, err := os.ReadFile(old); err != nil || string(text) != "old" {
		t.Errorf("after a failure the file holds %q, %v", text, err)
	}
	ok(t, "plot", "flow", "--force", "--output", old)
	if text, err := os.ReadFile(old); err != nil || !strings.HasPrefix(string(text), "<svg ") {
		t.Errorf("the file holds %.20q, %v", text, err)
	}
	should.Refuse(run("plot", "flow", "--force", "--output", os.DevNull))(t, outfile.ErrNotRegular, "a device")
	if all, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(all) != 0 {
		t.Errorf("left behind: %v %v", all, err)
	}
}

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

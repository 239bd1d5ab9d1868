package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

const nowhere = "emu:?wire=udp://127.0.0.1:0"

func TestBadPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"unknown":               {[]string{"--policy", "warp"}, `unknown policy "warp"; there are ` + strings.Join(pipeline.PolicyNames()[:9], ", ")},
		"empty":                 {[]string{"--policy", ""}, "must not be empty"},
		"off line":              {[]string{"--policy", "optimal"}, "computed for one platform"},
		"not in a NIC":          {[]string{"--policy", "table", "--policy-at", "nic"}, "at the host only"},
		"no such place":         {[]string{"--policy-at", "cloud"}, "host or nic"},
		"no place":              {[]string{"--policy", "amp", "--policy-at", ""}, "must not be empty"},
		"nothing to send":       {[]string{"--policy", "amp", "--minpulse-send", "0"}, "in 1..65536"},
		"negative":              {[]string{"--minpulse-recv", "-1"}, "in 1..65536"},
		"not a number":          {[]string{"--minpulse-recv", "many"}, "many"},
		"size of none":          {[]string{"--policy", "auto", "--minpulse-send", "64"}, "auto has no minimum pulse"},
		"size of none, at host": {[]string{"--policy", "hierarchical", "--minpulse-recv", "64"}, "hierarchical has no minimum pulse"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, command := range [][]string{{"ping"}} {
				// Whatever else there is, the file of the log must not appear.
				log := filepath.Join(t.TempDir(), "log")
				o := run(t, slices.Concat(command, c.flags, []string{"--dma-log", log})...)
				if o.code != shell.ExitUsage || !strings.Contains(o.stderr, c.says) || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 {
					t.Errorf("%s: %+v", command[0], o)
				}
				should.Same(t, left(t, filepath.Dir(log)), nil, "%s left behind", command[0])
			}
		})
	}
}

// TestPoliciesWork sends messages under each policy that there is, in each place.
func TestPoliciesWork(t *testing.T) {
	for _, flags := range [][]string{
		{"--policy", "store-and-forward"}, {"--policy", "static", "--minpulse-send", "500", "--minpulse-recv", "1000"}, {"--policy", "cut-through"},
		{"--policy", "eager", "--policy-at", "nic"}, {"--policy", "amp"}, {"--policy", "auto"}, {"--policy-at", "nic"}, {"--minpulse-send", "64"},
		{"--policy", "pure-cut-through"}, {"--policy", "schedule"}, {"--policy", "table"}, {"--policy", "send-side"}, {"--policy", "hierarchical"},
		{"--policy-at", "host"}, {"--policy", "auto", "--policy-at", "host"}, {"--policy", "store-and-forward", "--policy-at", "host"},
		{"--minpulse-recv", "3000", "--policy-at", "host"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			var r map[string]any
			decode(t, run(t, append([]string{"ping", "--json", "-c", "3", "-i", "0", "--size", "50000", "--wait", "20s"}, flags...)...), &r)
			should.Hold(t, r["sent"] == 3.0 && r["received"] == 3.0 && r["corrupt"] == 0.0, "%v", r)
		})
	}
}

// readLog reads a log and checks what holds for each: an engine moves one
// packet after the other, and time begins with the first.
func readLog(t *testing.T, path string) []dmalog.Record {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	log, err := dmalog.Read(f, path)
	records := log.Records
	must.Hold(t, err == nil && len(records) != 0 && records[0].Start == 0, "%d records, %v", len(records), err)
	type lane struct {
		engine dmalog.Engine
		flow   int
	}
	last := map[lane]dmalog.Record{}
	for _, r := range records {
		at := lane{r.Engine, r.Flow}
		if before, ok := last[at]; ok && (r.Start < before.End || r.Packet < before.Packet) {
			t.Fatalf("%v flow %d: %+v after %+v", r.Engine, r.Flow, r, before)
		}
		last[at] = r
	}
	return records
}

// followed checks that every packet of flow 0 that the first engine has moved
// went through the others, whole, and no sooner. It returns false if that
// cannot be, as frames were sent again: some engine has moved more than the
// given number of bytes. Less none may.
func followed(t *testing.T, records []dmalog.Record, bytes int, engines ...dmalog.Engine) bool {
	t.Helper()
	type packet struct {
		bytes      int
		first, end int64
	}
	seen := map[dmalog.Engine]map[int]packet{}
	moved := map[dmalog.Engine]int{}
	for _, r := range records {
		if r.Flow != 0 {
			continue
		}
		if seen[r.Engine] == nil {
			seen[r.Engine] = map[int]packet{}
		}
		p, ok := seen[r.Engine][r.Packet]
		if !ok {
			p.first = r.Start
		}
		seen[r.Engine][r.Packet] = packet{p.bytes + r.Bytes, p.first, r.End}
		moved[r.Engine] += r.Bytes
	}
	once := true
	for _, e := range engines {
		if moved[e] < bytes {
			t.Fatalf("%v moved %d bytes of %d", e, moved[e], bytes)
		}
		once = once && moved[e] == bytes
	}
	for i := 1; i < len(engines) && once; i++ {
		before, e := engines[i-1], engines[i]
		for number, p := range seen[before] {
			q, ok := seen[e][number]
			must.Hold(t, ok && q.bytes == p.bytes && q.first >= p.first && q.end >= p.end, "packet %d: %v %+v, then %v %+v", number, before, p, e, q)
		}
	}
	return once
}

var allEngines = []dmalog.Engine{dmalog.HostTx, dmalog.NetTx, dmalog.NetRcv, dmalog.HostRcv}

// logged is what the commands say of their log.
type logged struct {
	Log struct {
		File      string
		Transfers int
		Dropped   int
	} `json:"dma_log"`
}

func TestPingLog(t *testing.T) {
	const count, size = 3, 30000
	for _, flags := range [][]string{{}, {"--policy-at", "host"}, {"--policy", "store-and-forward"}} {
		waittest.Until(t, "every frame is sent once", func() bool {
			log := filepath.Join(t.TempDir(), "log")
			var r logged
			decode(t, run(t, append([]string{"ping", "--json", "-c", "3", "-i", "0", "--size", "30000", "--wait", "20s", "--dma-log", log}, flags...)...), &r)
			records := readLog(t, log)
			should.Hold(t, r.Log.File == log && r.Log.Transfers == len(records) && r.Log.Dropped == 0, "%+v, %d records", r, len(records))
			flows := map[int]int{}
			for _, r := range records {
				if r.Engine == dmalog.HostRcv {
					flows[r.Flow] += r.Bytes
				}
			}
			picture := filepath.Join(t.TempDir(), "flow.svg")
			must.OK(t, runLab(t, "plot", "flow", "--log", log, "--output", picture))
			svg, err := os.ReadFile(picture)
			for _, e := range allEngines {
				should.Hold(t, err == nil && strings.Contains(string(svg), e.String()), "no band for %v: %v", e, err)
			}
			return followed(t, records, count*size, allEngines...) && flows[1] == count*size
		})
	}
}

// TestLogFull: what a log has no room for is counted.
func TestLogFull(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	var r logged
	decode(t, run(t, "ping", "--json", "-c", "3000", "-i", "0", "--size", "30000", "--wait", "20s", "--dma-log", log), &r)
	records := readLog(t, log)
	should.Hold(t, r.Log.Transfers == len(records) && r.Log.Transfers == 16384 && r.Log.Dropped != 0, "%+v, %d records", r, len(records))
}

// TestLogRefused: a log that cannot be written is refused before anything runs,
// and one that would replace what is transferred.
func TestLogRefused(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "log")
	for _, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ping, no folder": {[]string{"ping", "--dma-log", missing}, shell.ExitFailure, "no such file"},
		"ping, a folder":  {[]string{"ping", "--dma-log", dir}, shell.ExitFailure, "directory"},
		"ping, a device":  {[]string{"ping", "--dma-log", "/dev/null"}, shell.ExitFailure, "not a regular file"},
		"no name":         {[]string{"ping", "--dma-log", ""}, shell.ExitUsage, "must not be empty"},
	} {
		run(t, c.args...).refused(t, c.code, c.says, "--dma-log")
	}
	should.Same(t, left(t, dir), nil, "left behind")
}

// TestLogOfWhatFailed: a command that fails or is stopped leaves no log, and an
// older one as it was. One that only its end can be, is.
func TestLogOfWhatFailed(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	must.OK(t, os.WriteFile(log, []byte("older"), 0o600))
	run(t, "ping", "--device", nowhere+"&peer=127.0.0.1:9", "--timeout", "100ms", "--force", "--dma-log", log).exit(t, shell.ExitTimeout)
	if got, err := os.ReadFile(log); err != nil || string(got) != "older" || len(left(t, filepath.Dir(log))) != 1 {
		t.Errorf("%q, %v, %v", got, err, left(t, filepath.Dir(log)))
	}
	interrupted(t, log, "ping", "--count", "0", "--quiet", "--interval", "1ms", "--force", "--dma-log", log).exit(t, shell.ExitOK, log)
	readLog(t, log)
}

func TestInfoPolicy(t *testing.T) {
	var r struct {
		DMA struct {
			Policy struct {
				At            string
				Send, Receive struct {
					Policy   string
					MinPulse int `json:"minpulse_bytes"`
				}
			}
			Deadline float64 `json:"pulse_deadline_us"`
			Log      struct {
				Enabled       bool
				Records, Lost int
			}
		}
	}
	decode(t, run(t, "info", "--json"), &r)
	if r.DMA.Policy.At != "nic" || r.DMA.Policy.Send.Policy == "" || r.DMA.Policy.Receive.Policy == "" || r.DMA.Deadline != 10000 || r.DMA.Log.Enabled {
		t.Errorf("%+v", r)
	}
	should.Contain(t, run(t, "info").stdout, "enabled  false")
}

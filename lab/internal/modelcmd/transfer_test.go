package modelcmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func TestTransferJSON(t *testing.T) {
	args := []string{"model", "transfer", "--platform", "sonic-via", "--mechanism", "edt", "--bytes", "1024", "--dma-rate", "1600", "--order", "stride", "--json"}
	out := ok(t, args...)
	should.Be(t, ok(t, args...), out, "two runs print different bytes")
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
	should.Be(t, payload, 2*1024/8, "transactions of the payload with a stride")
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
	should.Contain(t, ok(t, "model", "platforms"), "pcie5-x16-400g")
	should.Contain(t, ok(t, "model", "transfer"), "transport_us")
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

// met is a row of "model bridge".
type met struct {
	Program, With  string
	Processor, DMA struct {
		Alone    float64 `json:"alone_mb_s"`
		Together float64 `json:"together_mb_s"`
		Less     float64 `json:"less_percent"`
	}
	Transfer float64 `json:"transfer_us"`
	Burst    int     `json:"pio_burst_bytes"`
	Starved  bool    `json:"processor_starved"`
}

func bridge(t *testing.T, args ...string) (rows []met) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(ok(t, append([]string{"model", "bridge", "--json"}, args...)...)), &rows))
	return rows
}

// TestBridge: on Natoma the copy wins, on CIA DMA does.
func TestBridge(t *testing.T) {
	natoma, cia := bridge(t, "--programs", "copy"), bridge(t, "--programs", "copy", "--platform", "alcor-cia")
	if len(natoma) != 1 || natoma[0].Program != "copy" || natoma[0].With != "send" {
		t.Fatalf("%+v", natoma)
	}
	if n, c := natoma[0], cia[0]; n.DMA.Less < 60 || n.Processor.Less > 20 || c.DMA.Less > 2 || c.Processor.Less < 40 {
		t.Errorf("natoma %+v, cia %+v", n, c)
	}
	should.Be(t, strings.Count(ok(t, "model", "bridge", "--platform", "alcor-cia"), "\n"), 4, "lines")
}

// TestBridgeFile: a file takes what it does not say from a built-in platform, and its rule counts.
func TestBridgeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.toml")
	must.OK(t, os.WriteFile(file, []byte("base = \"natoma\"\n[bridge]\nfirst = \"dma\"\n"), 0o600))
	if r := bridge(t, "--programs", "copy", "--platform", file)[0]; r.DMA.Less > 15 || r.Processor.Less < 40 {
		t.Errorf("%+v", r)
	}
	// It is no platform of the commands whose NIC is on the memory bus.
	if _, err := run("model", "transfer", "--platform", file); err == nil {
		t.Error("model transfer takes a bridge")
	}
	should.Contain(t, ok(t, "model", "profiles", "natoma"), "[bridge]")
}

func TestBridgeRefuses(t *testing.T) {
	refused(t, []badCase{
		{"model bridge --platform vax", option.ErrBad, "440lx, alcor-cia, miata-pyxis, natoma"},
		{"model bridge --platform EMPTY", option.ErrBad, "--platform"},
		{"model bridge --programs dance", option.ErrBad, "copy, pio-write"},
		{"model bridge --dma sideways", option.ErrBad, "send, receive"},
		{"model bridge --programs none --dma none", option.ErrBad, "not none of either"},
		{"model bridge --bytes 0", option.ErrBad, "1 to 65536"},
	})
	dir := t.TempDir()
	for text, key := range map[string]string{
		"[bridge]\nfirst = \"god\"":    "bridge.first",
		"[bridge]\nmerge = \"64 B\"":   "bridge.merge",
		"[bridge]\nburst = \"1 B\"":    "bridge.burst",
		"[bridge]\nspeed = 1":          "bridge.speed",
		"profile = \"pcie4-x16-100g\"": "profile",
		"[processor]\nword = \"7 B\"":  "processor.word",
	} {
		file := filepath.Join(dir, "bad.toml")
		must.OK(t, os.WriteFile(file, []byte("base = \"natoma\"\n"+text+"\n"), 0o600))
		var e *profile.Error
		if _, err := run("model", "bridge", "--platform", file); !errors.As(err, &e) || e.Key != key {
			t.Errorf("%s: %v", text, err)
		}
	}
	file := filepath.Join(dir, "none.toml")
	must.OK(t, os.WriteFile(file, []byte("summary = \"no bridge\"\n[bus]\nclock = \"1 MHz\"\n"), 0o600))
	var e *profile.Error
	if _, err := run("model", "bridge", "--platform", file); !errors.As(err, &e) || e.Key != "bridge" {
		t.Errorf("no bridge: %v", err)
	}
}

// cellKeys are those of each scenario, beside transfers and cells_sent, with figures that follow from the
// paper's steps.
var cellKeys = map[string]map[string]float64{
	"single":    {"one_way_us": 1.2},
	"stream":    {"interval_us": 0.4, "data_gb_s": 0.96, "total_gb_s": 1.12},
	"message":   {"one_way_us": 1.2 + 85*0.4, "interval_us": 0.4, "data_gb_s": 4096 * 8 / 35200.0},
	"bounce":    {"round_trip_us": 3.9, "data_gb_s": 0.08},
	"barrier":   {"barrier_us": 16 * 0.7, "round_trip_us": 2*1.2 + 0.75 + 15*0.7, "stores": 22},
	"multicast": {"one_way_us": 1.2 + 15*0.4, "interval_us": 0.4, "stores": 22},
	"priority":  {"one_way_us": 1.2 + 169*0.4 + 20*0.4, "urgent_us": 1.6},
	"duplex":    {"interval_us": 0.7, "data_gb_s": 0.55, "total_gb_s": 0.64},
}

func TestCellsJSON(t *testing.T) {
	should.Contain(t, ok(t, "model", "cells", "--help"), "left out", "the help does not say that a scenario has only some of the keys")
	for scenario, want := range cellKeys {
		out := ok(t, "model", "cells", "--scenario", scenario, "--json")
		var got map[string]json.RawMessage
		var list []struct {
			Host, Channel, Message *int
			Step                   string
			Start                  *float64 `json:"start_us"`
			End                    *float64 `json:"end_us"`
			Bytes                  *int
		}
		must.OK(t, json.Unmarshal([]byte(out), &got))
		must.OK(t, json.Unmarshal(got["transfers"], &list))
		should.Be(t, len(got), len(want)+2, "%s has the keys of %d figures, want %d", scenario, len(got)-2, len(want))
		for key, v := range want {
			var figure float64
			if err := json.Unmarshal(got[key], &figure); err != nil || math.Abs(figure/v-1) > 0.03 {
				t.Errorf("%s: %s is %s, want %v", scenario, key, got[key], v)
			}
		}
		bytes := map[string]int{}
		for _, l := range list {
			if l.Host == nil || l.Channel == nil || l.Message == nil || l.Start == nil || l.End == nil || l.Bytes == nil || *l.End <= *l.Start {
				t.Fatalf("%s: %+v", scenario, l)
			}
			bytes[l.Step] += *l.Bytes
		}
		if bytes["receive"] == 0 || bytes["receive"] != bytes["high"]+bytes["low"] {
			t.Errorf("%s: bytes %v", scenario, bytes)
		}
	}
}

// TestCellsProfile: a printed platform can be changed and used.
func TestCellsProfile(t *testing.T) {
	text := ok(t, "model", "profiles", "mini")
	file := filepath.Join(t.TempDir(), "twice.toml")
	must.OK(t, os.WriteFile(file, []byte(strings.Replace(text, `"20 ns"`, `"40 ns"`, 1)), 0o600))
	should.Contain(t, ok(t, "model", "cells", "--profile", file), " 1.900\n", "with half the clock")
	var p struct{ Name, Summary, TOML string }
	if err := json.Unmarshal([]byte(ok(t, "model", "profiles", "mini", "--json")), &p); err != nil || p.Name != "mini" || p.Summary == "" || p.TOML != text {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestCellsPictures(t *testing.T) {
	for scenario := range cellKeys {
		file := filepath.Join(t.TempDir(), scenario+".svg")
		ok(t, "plot", "cells", "--scenario", scenario, "--output", file)
		svg, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
			t.Errorf("%s: %v", scenario, err)
		}
	}
	file := filepath.Join(t.TempDir(), "bands.svg")
	for _, c := range []struct {
		args    string
		bands   []string
		stripes int // cells sent and received
	}{
		{"--scenario single", []string{"host 0, high", "host 1, receive"}, 2},
		{"--scenario message --bytes 4096 --until-us 0", []string{"host 0, low", "host 1, receive"}, 2 * 86},
		{"--scenario message --bytes 4096 --until-us 0.3", []string{"host 0, low", "host 1, receive"}, 1},
		{"--scenario priority --until-us 0", []string{"host 0, high", "host 0, low", "host 1, receive"}, 2 * 190},
		{"--scenario barrier --participants 9", []string{"host 0, receive", "host 0, high", "host 9, receive", "host 9, high"}, 9 + 9 + 2},
	} {
		ok(t, append([]string{"plot", "cells", "--force", "--output", file}, strings.Fields(c.args)...)...)
		svg := must.Get(os.ReadFile(file))(t)
		var bands []string
		for _, part := range strings.Split(string(svg), ">host ")[1:] {
			name, _, _ := strings.Cut(part, "<")
			bands = append(bands, "host "+name)
		}
		if n := bytes.Count(svg, []byte(`height="38"`)); !slices.Equal(bands, c.bands) || n != c.stripes {
			t.Errorf("%s: bands %q, %d stripes", c.args, bands, n)
		}
	}
}

// TestBadCells: errors name the option and what it takes, and nothing is written.
func TestBadCells(t *testing.T) {
	dir := t.TempDir()
	svg := filepath.Join(dir, "out.svg")
	bad := filepath.Join(dir, "bad.toml")
	must.OK(t, os.WriteFile(bad, []byte("[clock]\nperiod = \"20\"\n"), 0o600))
	refused(t, []badCase{
		{"model cells --scenario magic", option.ErrBad, "single, stream, message, bounce, barrier, multicast, priority, duplex"},
		{"model cells --scenario EMPTY", option.ErrBad, "--scenario"},
		{"model cells --bytes 41", option.ErrBad, "1 to 40, with scenario single"},
		{"model cells --scenario stream --bytes -1", option.ErrBad, "1 to 65535"},
		{"model cells --scenario message --bytes 65536", option.ErrBad, "1 to 65535"},
		{"model cells --participants 4", option.ErrBad, "barrier and multicast"},
		{"model cells --scenario barrier --participants -1", option.ErrBad, "1 to 4095"},
		{"model cells --scenario multicast --participants 4096", option.ErrBad, "1 to 4095"},
		{"model cells --scenario stream --busy 1", option.ErrBad, "with scenario contention"},
		{"model cells --never-stop", option.ErrBad, "with scenario contention"},
		{"model cells --scenario contention --busy -1", option.ErrBad, "0 to 95 percent"},
		{"model cells --scenario contention --busy 95.1", option.ErrBad, "0 to 95 percent"},
		{"model cells --scenario contention --busy NaN", option.ErrBad, "0 to 95 percent"},
		{"model cells --profile maxi", option.ErrBad, "mini"},
		{"model cells --profile alcor", option.ErrBad, "mini"},
		{"model --profile mini", option.ErrBad, "alcor"},
		{"model cells --profile " + bad, profile.ErrValue, "bad.toml: clock.period"},
		{"plot cells --until-us -1 --output " + svg, option.ErrBad, "0..1000000"},
		{"plot cells --until-us 0.1 --output " + svg, plot.ErrEmpty, "Cells: mini, single"},
	})
	if _, err := os.Stat(svg); !os.IsNotExist(err) {
		t.Error("a picture was written")
	}
}

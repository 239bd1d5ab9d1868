package modelcmd_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

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

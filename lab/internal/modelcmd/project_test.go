package modelcmd_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// projected is a row of "model project".
type projected struct {
	Bus       string
	Link      float64 `json:"link_mb_s"`
	Whole     float64 `json:"store_and_forward_us"`
	Latency   float64 `json:"latency_us"`
	Reduction float64 `json:"reduction_percent"`
}

func project(t *testing.T, args ...string) (rows []projected) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(ok(t, append([]string{"model", "project", "--json"}, args...)...)), &rows))
	return rows
}

// TestProject: factors of 1 leave a platform as it is, and neither a faster bus nor a faster link
// makes store and forward slower; the two together save what either saves.
func TestProject(t *testing.T) {
	rows := project(t, "--profile", "alcor-hpdc97", "--policy", "eager", "--bus", "1,2", "--link", "1,4")
	if len(rows) != 4 || rows[0].Bus != "bus x 1" || rows[3].Bus != "bus x 2" || math.Abs(rows[3].Link-4*rows[0].Link) > 1e-9 {
		t.Fatalf("%+v", rows)
	}
	var same struct {
		Latency float64 `json:"latency_us"`
	}
	must.OK(t, json.Unmarshal([]byte(ok(t, "model", "--profile", "alcor-hpdc97", "--policy", "eager", "--count", "1", "--json")), &same))
	if rows[0].Latency != same.Latency || math.Abs(rows[0].Reduction-100*(1-rows[0].Latency/rows[0].Whole)) > 1e-6 {
		t.Errorf("%+v, want %v us", rows[0], same.Latency)
	}
	link, bus, both := rows[0].Whole-rows[1].Whole, rows[0].Whole-rows[2].Whole, rows[0].Whole-rows[3].Whole
	if link <= 0 || bus <= 0 || math.Abs(link+bus-both) > 0.01 {
		t.Errorf("saved %v, %v and together %v us", link, bus, both)
	}
	if rows := project(t, "--pcie", "--payload", "4096"); len(rows) != 28 || rows[0].Bus != "pcie3-x8" || rows[27].Link != 100_000 {
		t.Errorf("%+v", rows)
	}
}

func TestProjectRefuses(t *testing.T) {
	for _, args := range []string{"--bus 0", "--bus 1..2", "--bus -1", "--link nan", "--bus 2000", "--policy none", "--payload 0", "--pcie --bus 1,2",
		"--pcie --profile alcor", "--profile none", "--policy optimal --payload 99999999"} {
		if out, err := run(append([]string{"model", "project"}, strings.Fields(args)...)...); err == nil || out != "" {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// TestSchedulePictures: the three schedules have a band for each engine and end one after the
// other, the variable one first.
func TestSchedulePictures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.svg")
	ok(t, "plot", "schedules", "--profile", "p6-natoma", "--payload", "4096", "--output", file)
	svg, err := os.ReadFile(file)
	must.OK(t, err)
	took := regexp.MustCompile(`store and forward ([0-9.]+) us; best fixed pulse \(\d+ bytes\) ([0-9.]+) us; best variable schedule ([0-9.]+) us`).FindStringSubmatch(string(svg))
	var us [4]float64
	for i := 1; i < len(took); i++ {
		if us[i], err = strconv.ParseFloat(took[i], 64); err != nil {
			t.Fatal(err)
		}
	}
	if us[3] <= 0 || us[2] <= us[3] || us[1] <= us[2] {
		t.Errorf("%q", took)
	}
	for _, band := range []string{"whole: hostTx", "fixed: netTx", "variable: hostRcv"} {
		should.Contain(t, string(svg), ">"+band+"<", "no band %s", band)
	}
}

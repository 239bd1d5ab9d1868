package commands_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCells has the command compute MINI's figures, draw what it computed, and refuse what
// it cannot compute.
func TestCells(t *testing.T) {
	needsProgram(t)
	for _, c := range []struct {
		scenario, key string
		want          float64
	}{
		{"single", "one_way_us", 1.2}, {"stream", "interval_us", 0.4}, {"bounce", "round_trip_us", 3.9}, {"barrier", "barrier_us", 16 * 0.7},
	} {
		p := startLab(t, "model", "cells", "--scenario", c.scenario, "--json")
		p.succeed(t)
		var r map[string]any
		if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
			t.Fatalf("%v in %s", err, &p.stdout)
		}
		if got, ok := r[c.key].(float64); !ok || math.Abs(got/c.want-1) > 0.03 {
			t.Errorf("%s: %s is %v, want %v", c.scenario, c.key, r[c.key], c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "cells.svg")
	startLab(t, "plot", "cells", "--scenario", "priority", "--output", file).succeed(t)
	if svg, err := os.ReadFile(file); err != nil || !strings.Contains(string(svg), "host 0, high") {
		t.Errorf("no picture: %v", err)
	}
	// The README's picture is what this command draws.
	startLab(t, "plot", "cells", "--scenario", "priority", "--until-us", "8", "--output", file, "--force").succeed(t)
	drawn, err := os.ReadFile(file)
	shown, otherErr := os.ReadFile("../../docs/cells.svg")
	if err := errors.Join(err, otherErr); err != nil || !bytes.Equal(drawn, shown) {
		t.Errorf("docs/cells.svg is another picture: %v; see 'trapeze-lab plot cells --help'", err)
	}
	p := startLab(t, "model", "cells", "--scenario", "single", "--bytes", "41")
	if code := p.code(t); code != 2 || !strings.Contains(p.stderr.String(), "1 to 40") {
		t.Errorf("exit code %d: %s", code, &p.stderr)
	}
}

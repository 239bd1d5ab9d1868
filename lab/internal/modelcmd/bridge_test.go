package modelcmd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

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
	if text := ok(t, "model", "bridge", "--platform", "alcor-cia"); strings.Count(text, "\n") != 4 {
		t.Errorf("%s", text)
	}
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

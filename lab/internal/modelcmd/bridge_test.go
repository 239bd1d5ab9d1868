package modelcmd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if err := json.Unmarshal([]byte(ok(t, append([]string{"model", "bridge", "--json"}, args...)...)), &rows); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(file, []byte("base = \"natoma\"\n[bridge]\nfirst = \"dma\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := bridge(t, "--programs", "copy", "--platform", file)[0]; r.DMA.Less > 15 || r.Processor.Less < 40 {
		t.Errorf("%+v", r)
	}
	// It is no platform of the commands whose NIC is on the memory bus.
	if _, err := run("model", "transfer", "--platform", file); err == nil {
		t.Error("model transfer takes a bridge")
	}
	if text := ok(t, "model", "profiles", "natoma"); !strings.Contains(text, "[bridge]") {
		t.Errorf("%s", text)
	}
}

func TestBridgePicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.svg")
	ok(t, "plot", "bridge", "--platform", "alcor-cia", "--output", file)
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"copy", "pio-write", "pio-read", "rate, MB/s", "processor", "DMA"} {
		if !strings.Contains(string(svg), ">"+want+"<") {
			t.Errorf("no %s", want)
		}
	}
}

func TestBridgeRefuses(t *testing.T) {
	refused(t, []badCase{
		{"model bridge --platform vax", option.ErrBad, "alcor-cia, natoma"},
		{"model bridge --platform EMPTY", option.ErrBad, "natoma"},
		{"model bridge --programs dance", option.ErrBad, "copy, pio-write"},
		{"model bridge --programs EMPTY", option.ErrBad, "--programs"},
		{"model bridge --dma sideways", option.ErrBad, "send, receive"},
		{"model bridge --programs none --dma none", option.ErrBad, "not none of either"},
		{"model bridge --bytes 0", option.ErrBad, "1 to 65536"},
		{"model bridge --bytes -1", option.ErrBad, "1 to 65536"},
		{"plot bridge --platform natoma", option.ErrBad, "a file to write"},
	})
	dir := t.TempDir()
	for text, key := range map[string]string{
		"[bridge]\nfirst = \"god\"":    "bridge.first",
		"[bridge]\nqueue = 0":          "bridge.queue",
		"[bridge]\nmerge = \"64 B\"":   "bridge.merge",
		"[bridge]\nprefetch = 1000":    "bridge.prefetch",
		"[bridge]\nburst = \"1 B\"":    "bridge.burst",
		"[bridge]\nload = \"1 s\"":     "bridge.load",
		"[bridge]\nspeed = 1":          "bridge.speed",
		"profile = \"pcie4-x16-100g\"": "profile",
		"[processor]\nword = \"7 B\"":  "processor.word",
		"[l2]\nline = \"16 B\"":        "l2.line",
	} {
		file := filepath.Join(dir, "bad.toml")
		if err := os.WriteFile(file, []byte("base = \"natoma\"\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var e *profile.Error
		if _, err := run("model", "bridge", "--platform", file); !errors.As(err, &e) || e.Key != key {
			t.Errorf("%s: %v", text, err)
		}
	}
	file := filepath.Join(dir, "none.toml")
	if err := os.WriteFile(file, []byte("summary = \"no bridge\"\n[bus]\nclock = \"1 MHz\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var e *profile.Error
	if _, err := run("model", "bridge", "--platform", file); !errors.As(err, &e) || e.Key != "bridge" {
		t.Errorf("no bridge: %v", err)
	}
}

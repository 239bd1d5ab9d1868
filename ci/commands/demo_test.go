package commands_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// report is what demo --json promises to print, see tools/trapeze.
type report struct {
	File struct {
		Bytes    int64   `json:"bytes"`
		Sent     string  `json:"sha256_sent"`
		Received string  `json:"sha256_received"`
		Rate     float64 `json:"mb_per_s"`
	} `json:"file"`
	Latency []struct {
		Bytes int     `json:"bytes"`
		P50   float64 `json:"p50_us"`
		P99   float64 `json:"p99_us"`
		P999  float64 `json:"p999_us"`
	} `json:"latency"`
	Bandwidth []struct {
		Bytes int     `json:"bytes"`
		Rate  float64 `json:"mb_per_s"`
	} `json:"bandwidth"`
}

func TestDemo(t *testing.T) {
	needsProgram(t)
	p := start(t, "demo", "--duration", "100ms", "--json")
	p.succeed(t)
	var r report
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &p.stdout)
	}
	program, err := os.ReadFile(trapeze)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(program)
	if want := hex.EncodeToString(digest[:]); r.File.Sent != want || r.File.Received != want {
		t.Errorf("sha256 sent %s, received %s, want %s", r.File.Sent, r.File.Received, want)
	}
	if r.File.Bytes != int64(len(program)) || r.File.Rate <= 0 {
		t.Errorf("%d bytes at %v MB/s, want %d", r.File.Bytes, r.File.Rate, len(program))
	}
	sizes := map[int]bool{64: true, 4 << 10: true, 8 << 10: true, 64 << 10: true}
	for _, l := range r.Latency {
		delete(sizes, l.Bytes)
		if l.P50 <= 0 || l.P99 < l.P50 || l.P999 < l.P99 {
			t.Errorf("latency %+v makes no sense", l)
		}
	}
	if len(sizes) > 0 {
		t.Errorf("latency of %v is missing", sizes)
	}
	if len(r.Bandwidth) == 0 {
		t.Error("no bandwidth was measured")
	}
	for _, b := range r.Bandwidth {
		if b.Bytes <= 0 || b.Rate <= 0 {
			t.Errorf("bandwidth %+v makes no sense", b)
		}
	}
}

func TestDemoSendsTheFileItIsGiven(t *testing.T) {
	needsProgram(t)
	input := randomFile(t, 100_001)
	p := start(t, "demo", "--duration", "20ms", "--json", "--input", input)
	p.succeed(t)
	var r report
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &p.stdout)
	}
	if want := digestOf(t, input); r.File.Bytes != 100_001 || r.File.Sent != want || r.File.Received != want {
		t.Errorf("got %+v, want 100001 bytes with sha256 %s", r.File, want)
	}
}

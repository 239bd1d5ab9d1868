package commands_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestModelTransfer: the command computes a transfer, refuses what it cannot with the
// exit code of bad usage, and its picture is written whole.
func TestModelTransfer(t *testing.T) {
	needsProgram(t)
	var edt, dma struct {
		Total        float64           `json:"total_us"`
		Count        int               `json:"bus_transactions"`
		Transactions []json.RawMessage `json:"transactions"`
	}
	for _, c := range []struct {
		mechanism string
		into      any
	}{{"edt", &edt}, {"cc-dma-intv", &dma}} {
		p := startLab(t, "model", "transfer", "--platform", "sonic-via", "--mechanism", c.mechanism, "--bytes", "1024", "--dma-rate", "1600", "--order", "sequential", "--json")
		p.succeed(t)
		if err := json.Unmarshal(p.stdout.Bytes(), c.into); err != nil {
			t.Fatalf("%v in %s", err, &p.stdout)
		}
	}
	if edt.Total <= 0 || edt.Total >= dma.Total || edt.Count != len(edt.Transactions) || edt.Count == 0 {
		t.Errorf("edt %v us in %d transactions, cc-dma-intv %v us", edt.Total, edt.Count, dma.Total)
	}
	if bad := startLab(t, "model", "transfer", "--mechanism", "pigeon"); bad.code(t) != 2 || bad.stdout.Len() > 0 {
		t.Errorf("a mechanism that is none: exit code %d, %s", bad.code(t), &bad.stderr)
	}
	file := filepath.Join(t.TempDir(), "transfer.svg")
	startLab(t, "plot", "transfer", "--platform", "pcie5-x16-400g", "--output", file).succeed(t)
	if svg, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
		t.Errorf("the picture: %v", err)
	}
}

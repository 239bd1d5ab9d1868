package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// testpmd is DPDK's memif driver on both sides: one sends, one receives and counts.
var testpmd = Peer{Name: "testpmd", Package: "dpdk-dev", Program: "dpdk-testpmd",
	Tests: []string{"frames"}, ask: askTestpmd}

// startTestpmd starts dpdk-testpmd on one core: its main thread, which sleeps, and the one that forwards. DPDK
// leaves 12 MB where its sockets are: that is folder, which is removed.
func startTestpmd(ctx context.Context, core int, folder, role, mode string, bytes int) (*process, error) {
	return start(ctx, nil, "env", "RUNTIME_DIRECTORY="+folder, "dpdk-testpmd", "--lcores", fmt.Sprintf("0@%d,1@%d", core, core), "--no-huge", "-m", "512", "--no-pci",
		"--file-prefix", role, "--vdev", fmt.Sprintf("net_memif0,role=%s,id=0,socket=%s,socket-abstract=no", role, filepath.Join(folder, "memif")),
		"--", "--forward-mode="+mode, "--stats-period=1", "--total-num-mbufs=16384", "--txpkts="+strconv.Itoa(bytes))
}

func askTestpmd(ctx context.Context, q Question) (a Answer, err error) {
	folder, err := os.MkdirTemp("", "trapeze-bench-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(folder)
	receiver, err := startTestpmd(ctx, q.Cores[0], folder, "server", "rxonly", q.Bytes)
	if err != nil {
		return a, err
	}
	defer receiver.stop()
	if err := awaitFiles(ctx, []string{filepath.Join(folder, "memif")}); err != nil {
		return a, err
	}
	sender, err := startTestpmd(ctx, q.Cores[1], folder, "client", "txonly", q.Bytes)
	if err != nil {
		return a, err
	}
	defer sender.stop()
	// It tells rates of whole seconds. The first with frames in it is incomplete.
	want := max(int(q.For/time.Second), 2)
	rates, err := receivedRates(receiver.out, want+1)
	if err != nil {
		return a, err
	}
	rates = rates[1:]
	slices.Sort(rates)
	a.Value = rates[len(rates)/2]
	return a, nil
}

// receivedRates reads lines such as "  Rx-pps:  1234  Rx-bps: ..." until n of them
// are not zero.
func receivedRates(r *bufio.Reader, n int) ([]float64, error) {
	var rates []float64
	for len(rates) < n {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, errors.Join(errNoColumn, err)
		}
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "Rx-pps:" {
			continue
		}
		if v, err := strconv.ParseFloat(fields[1], 64); err == nil && v > 0 {
			rates = append(rates, v)
		}
	}
	return rates, nil
}

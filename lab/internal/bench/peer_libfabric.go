package bench

import (
	"context"
	"strconv"
	"strings"
)

// libfabric is its provider for shared memory. fi_pingpong tells the mean only.
var libfabric = Peer{Name: "libfabric", Package: "libfabric-bin", Program: "fi_pingpong", Statistic: "mean",
	Tests: []string{"latency"}, ask: askLibfabric}

func askLibfabric(ctx context.Context, q Question) (a Answer, err error) {
	ports, err := freePorts(1)
	if err != nil {
		return a, err
	}
	port := strconv.Itoa(ports[0])
	common := []string{"fi_pingpong", "-p", "shm", "-e", "rdm", "-m", "tagged", "-S", strconv.Itoa(q.Bytes), "-I", strconv.Itoa(iterations(q.For, q.Bytes))}
	server, err := startPinned(ctx, q.Cores[0], nil, append(common, "-B", port)...)
	if err != nil {
		return a, err
	}
	defer server.stop()
	if err := awaitListener(ctx, server, ports[0]); err != nil {
		return a, err
	}
	client, err := startPinned(ctx, q.Cores[1], nil, append(common, "-P", port, "127.0.0.1")...)
	if err != nil {
		return a, err
	}
	text, err := client.output()
	if err != nil {
		return a, err
	}
	a.Value, err = pingpongMicroseconds(string(text))
	return a, err
}

// pingpongMicroseconds finds the column usec/xfer in the last line.
func pingpongMicroseconds(text string) (float64, error) {
	header := strings.Fields(strings.SplitN(text, "\n", 2)[0])
	lines := strings.Split(strings.TrimSpace(text), "\n")
	row := strings.Fields(lines[len(lines)-1])
	for i, h := range header {
		if h == "usec/xfer" && i < len(row) && len(lines) > 1 {
			return strconv.ParseFloat(row[i], 64)
		}
	}
	return 0, errNoColumn
}

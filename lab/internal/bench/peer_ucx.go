package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ucx is UCX over shared memory: posix for short messages, cross-memory attach for
// long ones, as it would choose by itself on one host without other transports.
var ucx = Peer{Name: "ucx", Package: "ucx-utils", Program: "ucx_perftest", Statistic: "p50",
	Tests: []string{"latency", "put", "get", fetch, "bandwidth", "rate"}, ask: askUCX}

var ucxEnvironment = []string{"UCX_TLS=posix,cma,self", "UCX_LOG_LEVEL=error"}

// iterations that take about d if each takes at most what a slow machine needs.
func iterations(d time.Duration, bytes int) int {
	each := 600*time.Nanosecond + time.Duration(bytes)*time.Nanosecond/8
	return max(int(d/each), 100)
}

// ucxLatencies are its tests that tell times. Both ends of ucp_put_lat write in turn and
// poll the last byte of their memory, and it tells half of that; the client of ucp_get reads
// again and again, with one read under way, while the server is there for it.
var ucxLatencies = map[string]string{"latency": "tag_lat", "put": "ucp_put_lat", "get": "ucp_get", fetch: "ucp_get"}

func askUCX(ctx context.Context, q Question) (a Answer, err error) {
	switch q.Test {
	case "latency", "put", "get", fetch:
		// One run tells one percentile.
		test := ucxLatencies[q.Test]
		if a.Value, err = runUCX(ctx, q, test, 50, 1); err == nil {
			a.Tail, err = runUCX(ctx, q, test, 99.9, 1)
		}
	case "bandwidth":
		// Its MB has 2^20 bytes.
		if a.Value, err = runUCX(ctx, q, "tag_bw", 50, 4); err == nil {
			a.Value *= float64(1<<20) / 1e6
		}
	case "rate":
		a.Value, err = runUCX(ctx, q, "tag_bw", 50, 6)
	}
	return a, err
}

// runUCX runs a test between two processes and returns a column of its result:
// iterations, latency at the rank, average and overall latency, average and overall
// bandwidth, average and overall message rate.
func runUCX(ctx context.Context, q Question, test string, rank float64, column int) (float64, error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	port := strconv.Itoa(ports[0])
	server, err := startPinned(ctx, q.Cores[0], ucxEnvironment, "ucx_perftest", "-p", port)
	if err != nil {
		return 0, err
	}
	defer server.stop()
	if err := awaitListener(ctx, server, ports[0]); err != nil {
		return 0, err
	}
	client, err := startPinned(ctx, q.Cores[1], ucxEnvironment, "ucx_perftest", "-p", port, "127.0.0.1", "-t", test,
		"-s", strconv.Itoa(q.Bytes), "-n", strconv.Itoa(iterations(q.For, q.Bytes)), "-R", fmt.Sprint(rank), "-f", "-v")
	if err != nil {
		return 0, err
	}
	text, err := client.output()
	if err != nil {
		return 0, err
	}
	if strings.Contains(string(text), "ERROR") {
		return 0, fmt.Errorf("ucx_perftest: %s", strings.TrimSpace(string(text)))
	}
	values, err := numbers(string(text), ",", 8)
	if err != nil {
		return 0, err
	}
	return values[column], nil
}

package bench

import (
	"context"
	"fmt"
	"time"
)

// socat moves bytes between two hosts, as many people do it: by Linux's TCP, with the offloads
// that a veth has by itself.
var socat = Peer{Name: "socat", Package: "socat", Program: "socat", Tests: veths, ask: askSocat}

// Of a second to measure for, socat sends socatRate bytes; it listens at socatPort.
const (
	socatRate = 200_000_000
	socatPort = 7001
)

// askSocat measures the time in which socat sends bytes until both ends have ended.
func askSocat(ctx context.Context, q Question) (a Answer, err error) {
	c, err := newCable(q.Test)
	if err != nil {
		return a, err
	}
	defer c.close()
	block := fmt.Sprint(q.Bytes)
	run := func(i int, args ...string) (p *process, err error) {
		err = c.in(i, func() (err error) {
			p, err = startPinned(ctx, q.Cores[i], nil, append([]string{"socat", "-u", "-b", block}, args...)...)
			return err
		})
		return p, err
	}
	sink, err := run(0, fmt.Sprintf("TCP-LISTEN:%d", socatPort), "OPEN:/dev/null")
	if err != nil {
		return a, err
	}
	defer sink.stop()
	if err := awaitListener(ctx, sink, socatPort); err != nil {
		return a, err
	}
	bytes := int64(socatRate * q.For.Seconds())
	started := time.Now()
	source, err := run(1, fmt.Sprintf("OPEN:/dev/zero,readbytes=%d", bytes), fmt.Sprintf("TCP:%s:%d", vethAddresses[0], socatPort))
	if err != nil {
		return a, err
	}
	if _, err := source.output(); err != nil {
		return a, err
	}
	if _, err := sink.output(); err != nil {
		return a, err
	}
	return Answer{Value: float64(bytes) / 1e6 / time.Since(started).Seconds()}, nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// errNoColumn: a peer's output is not as we know it.
var errNoColumn = errors.New("its output has no such column")

// unixSocket and tcpLoopback are what a Go program has without us: the kernel's
// sockets, in two goroutines' processes as the others.
var (
	unixSocket = Peer{Name: "unix", Statistic: "p50", Tests: []string{"latency", "bandwidth", "rate"},
		ask: func(ctx context.Context, q Question) (Answer, error) {
			folder, err := os.MkdirTemp("", "trapeze-bench-")
			if err != nil {
				return Answer{}, err
			}
			defer os.RemoveAll(folder)
			return askSocket(ctx, q, "unix", filepath.Join(folder, "s"))
		}}
	tcpLoopback = Peer{Name: "tcp", Statistic: "p50", Tests: []string{"latency", "bandwidth", "rate"},
		ask: func(ctx context.Context, q Question) (Answer, error) { return askSocket(ctx, q, "tcp", "127.0.0.1:0") }}
)

// SocketCommand is the hidden command of the echo of socket measurements.
const SocketCommand = "bench-socket"

// askSocket measures round trips or a stream to an echo process.
func askSocket(ctx context.Context, q Question, network, address string) (a Answer, err error) {
	self, err := os.Executable()
	if err != nil {
		return a, err
	}
	mode := "sink"
	if q.Test == "latency" {
		mode = "echo"
	}
	echo, err := start(ctx, nil, self, SocketCommand, network, address, mode, fmt.Sprint(q.Bytes), fmt.Sprint(q.Cores[0]))
	if err != nil {
		return a, err
	}
	defer echo.stop()
	line, err := echo.out.ReadString('\n')
	if err != nil {
		return a, err
	}
	// In a worker of its own, so that the command's own threads stay off the core.
	source, err := start(ctx, nil, self, SocketCommand, network, line[:len(line)-1], "source-"+mode, fmt.Sprint(q.Bytes), fmt.Sprint(q.Cores[1]), q.For.String())
	if err != nil {
		return a, err
	}
	text, err := io.ReadAll(source.out)
	if err := source.end(); err != nil {
		return a, err
	}
	if err != nil {
		return a, err
	}
	values, err := numbers(string(text), " ", 2)
	if err != nil {
		return a, err
	}
	if q.Test == "latency" {
		return Answer{Value: values[0], Tail: values[1]}, nil
	}
	perSecond := values[0]
	if q.Test == "bandwidth" {
		return Answer{Value: perSecond * float64(q.Bytes) / 1e6}, nil
	}
	return Answer{Value: perSecond}, nil
}

// RunSocket is one end of a socket measurement: an echo or a sink that prints where
// it listens, or a source that prints two numbers.
func RunSocket(ctx context.Context, w io.Writer, network, address, mode string, bytes, core int, d time.Duration) error {
	if err := pin(core); err != nil {
		return err
	}
	buf := make([]byte, max(bytes, 1))
	if mode == "echo" || mode == "sink" {
		return serveSocket(ctx, w, network, address, buf, mode == "echo")
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if mode == "source-echo" {
		return timeSocket(w, c, buf, d)
	}
	return streamSocket(w, c, buf, d)
}

func serveSocket(ctx context.Context, w io.Writer, network, address string, buf []byte, echo bool) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, address)
	if err != nil {
		return err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Fprintln(w, l.Addr())
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			break // the source has ended
		}
		if echo {
			if _, err := c.Write(buf); err != nil {
				break
			}
		}
	}
	return nil
}

// timeSocket prints p50 and p99.9 of halves of round trips in microseconds.
func timeSocket(w io.Writer, c net.Conn, buf []byte, d time.Duration) error {
	h := newHistogram()
	for last, end := time.Now(), time.Now().Add(d); last.Before(end); {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		now := time.Now()
		_ = h.RecordValue(int64(min(max(now.Sub(last)/2, 1), longest)))
		last = now
	}
	_, err := fmt.Fprintln(w, float64(h.ValueAtPercentile(50))/1e3, float64(h.ValueAtPercentile(99.9))/1e3)
	return err
}

// streamSocket prints messages a second, and how many there were.
func streamSocket(w io.Writer, c net.Conn, buf []byte, d time.Duration) error {
	n := 0
	started := time.Now()
	for time.Since(started) < d {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		n++
	}
	_, err := fmt.Fprintln(w, float64(n)/time.Since(started).Seconds(), n)
	return err
}

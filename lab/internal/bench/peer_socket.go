package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// unixSocket and tcpLoopback hold what a Go program has without us: the kernel's sockets, in two
// goroutines' processes as the others. A fetch over them is a request of fetchRequest bytes, and
// a reply.
var (
	unixSocket = Peer{Name: "unix", Statistic: "p50", Tests: []string{"latency", fetch, "bandwidth", "rate"},
		ask: func(ctx context.Context, q Question) (Answer, error) {
			folder, err := os.MkdirTemp("", "trapeze-bench-")
			if err != nil {
				return Answer{}, err
			}
			defer os.RemoveAll(folder)
			return askSocket(ctx, q, "unix", filepath.Join(folder, "s"))
		}}
	tcpLoopback = Peer{Name: "tcp", Statistic: "p50", Tests: []string{"latency", fetch, "bandwidth", "rate"},
		ask: func(ctx context.Context, q Question) (Answer, error) { return askSocket(ctx, q, "tcp", "127.0.0.1:0") }}
)

// fetchRequest is the length of a page's request in bytes.
const fetchRequest = 64

// socketSide is one end of a socket measurement: an echo or a sink, which prints where
// it listens, or a source, which prints what it has measured.
type socketSide struct {
	Network, Address string
	Echo             bool // messages come back
	Source           bool
	// Request is the length in bytes of what the source sends, if other than Bytes: then a whole round
	// trip is timed, and not half of one.
	Request     int
	Bytes, Core int
	For         time.Duration
}

// askSocket measures round trips or a stream to an echo process.
func askSocket(ctx context.Context, q Question, network, address string) (a Answer, err error) {
	s := socketSide{Network: network, Address: address, Echo: q.Test == "latency", Bytes: q.Bytes, Core: q.Cores[0], For: q.For}
	if q.Test == fetch {
		s.Echo, s.Request = true, fetchRequest
	}
	echo, err := startWorker(ctx, job{Socket: &s})
	if err != nil {
		return a, err
	}
	defer echo.stop()
	line, err := echo.out.ReadString('\n')
	if err != nil {
		return a, err
	}
	// In a worker of its own, so that the command's own threads stay off the core.
	s.Source, s.Address, s.Core = true, line[:len(line)-1], q.Cores[1]
	source, err := startWorker(ctx, job{Socket: &s})
	if err != nil {
		return a, err
	}
	a, err = result[Answer](source)
	if q.Test == "bandwidth" {
		a.Value *= float64(q.Bytes) / 1e6
	}
	return a, err
}

func (s *socketSide) run(ctx context.Context, w io.Writer) error {
	if err := pin(s.Core); err != nil {
		return err
	}
	buf := make([]byte, max(s.Bytes, 1))
	if !s.Source {
		return s.serve(ctx, w, buf)
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, s.Network, s.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var a Answer
	if s.Echo {
		a, err = s.time(c, buf)
	} else {
		a, err = streamSocket(c, buf, s.For)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(a)
}

// request returns what the source sends at a time, of a buffer.
func (s *socketSide) request(buf []byte) []byte {
	if s.Request == 0 {
		return buf
	}
	return buf[:min(s.Request, len(buf))]
}

func (s *socketSide) serve(ctx context.Context, w io.Writer, buf []byte) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, s.Network, s.Address)
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
		if _, err := io.ReadFull(c, s.request(buf)); err != nil {
			break // the source has ended
		}
		if s.Echo {
			if _, err := c.Write(buf); err != nil {
				break
			}
		}
	}
	return nil
}

// time measures round trips: halves of them where both ways are of the same length.
func (s *socketSide) time(c net.Conn, buf []byte) (a Answer, err error) {
	h, ways := newHistogram(), time.Duration(2)
	if s.Request != 0 {
		ways = 1
	}
	for last, end := time.Now(), time.Now().Add(s.For); last.Before(end); {
		if _, err := c.Write(s.request(buf)); err != nil {
			return a, err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return a, err
		}
		now := time.Now()
		_ = h.RecordValue(int64(min(max(now.Sub(last)/ways, 1), longest)))
		last = now
	}
	return Answer{Value: float64(h.ValueAtPercentile(50)) / 1e3, Tail: float64(h.ValueAtPercentile(99.9)) / 1e3}, nil
}

// streamSocket measures messages a second.
func streamSocket(c net.Conn, buf []byte, d time.Duration) (a Answer, err error) {
	n := 0
	started := time.Now()
	for time.Since(started) < d {
		if _, err := c.Write(buf); err != nil {
			return a, err
		}
		n++
	}
	return Answer{Value: float64(n) / time.Since(started).Seconds()}, nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// A measurement begins with a byte that names it, and one request's size as a power of two.
const (
	streamTest = 'S' // bytes one way, as netperf's TCP_STREAM
	replyTest  = 'R' // a request and its reply, as TCP_RR
	mostLog2   = 20
)

func benchCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure streams, and requests with replies, as netperf does",
		Long: `Measure TCP between two ends: a stream one way (netperf's TCP_STREAM), and requests with a reply each (TCP_RR). Both ends may be NICs,
or the kernel's network with --kernel.`,
		Example: `  trapeze-ip bench listen --kernel
  trapeze-ip bench to --device afxdp:eth0 --address 10.0.0.2/24 10.0.0.1:5201
  trapeze-ip bench to --kernel --json 10.0.0.2:5201`}
	var listen string
	l := &cobra.Command{Use: "listen", Short: "Be the other end of measurements", Args: cobra.NoArgs,
		Example: "  trapeze-ip bench listen --device afxdp:eth0 --address 10.0.0.2/24",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), func(n network) error {
				from, err := n.Listen("tcp", listen)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "listening at %s\n", from.Addr())
				return accept(cmd.Context(), from, answer)
			})
		}}
	l.Flags().StringVar(&listen, "listen", ":5201", "address and port to listen at")
	c.AddCommand(l, toCommand(o))
	return c
}

// benchReport is the JSON of bench to.
type benchReport struct {
	StreamMBs float64 `json:"stream_mb_per_s"`
	P50us     float64 `json:"reply_p50_us"`
	P99us     float64 `json:"reply_p99_us"`
	Replies   int     `json:"replies"`
	Stream    int     `json:"stream_write_bytes"`
	Request   int     `json:"request_bytes"`
}

func toCommand(o *options) *cobra.Command {
	var duration time.Duration
	var asJSON bool
	var write, request int
	c := &cobra.Command{Use: "to HOST:PORT", Short: "Measure to a host where bench listen runs", Args: cobra.ExactArgs(1),
		Example: "  trapeze-ip bench to --device afxdp:eth0 --address 10.0.0.2/24 10.0.0.1:5201",
		RunE: func(cmd *cobra.Command, args []string) error {
			if request < 1 || request > 1<<mostLog2 || request&(request-1) != 0 || write < 1 || write > 16<<20 {
				return fmt.Errorf("--request is a power of two, 1 to %d, --write 1 to %d bytes", 1<<mostLog2, 16<<20)
			}
			var r benchReport
			if err := o.with(cmd.Context(), func(n network) (err error) {
				r, err = measure(cmd.Context(), n, args[0], duration, write, request)
				return err
			}); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "stream: %.0f MB/s by writes of %d bytes\nrequest and reply of %d bytes: p50 %.1f us, p99 %.1f us, %d of them\n",
				r.StreamMBs, r.Stream, r.Request, r.P50us, r.P99us, r.Replies)
			return nil
		}}
	c.Flags().DurationVar(&duration, "duration", 2*time.Second, "of each measurement")
	c.Flags().IntVar(&write, "write", 64<<10, "bytes of a write to the stream")
	c.Flags().IntVar(&request, "request", 64, "bytes of a request, and of its reply")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

// measure measures a stream and replies to a host.
func measure(ctx context.Context, n network, to string, d time.Duration, write, request int) (r benchReport, err error) {
	if r.StreamMBs, err = stream(ctx, n, to, d, write); err != nil {
		return r, err
	}
	times, err := replies(ctx, n, to, d, request)
	if err != nil {
		return r, err
	}
	slices.Sort(times)
	r.Replies, r.Stream, r.Request = len(times), write, request
	r.P50us, r.P99us = float64(times[len(times)/2].Nanoseconds())/1e3, float64(times[len(times)*99/100].Nanoseconds())/1e3
	return r, nil
}

// answer is the other end of one measurement.
func answer(c net.Conn) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil || head[1] > mostLog2 {
		return
	}
	switch b := make([]byte, 1<<mostLog2); head[0] {
	case streamTest:
		n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, b)
		if err == nil {
			_ = json.NewEncoder(c).Encode(n)
		}
	case replyTest:
		for b = b[:1<<head[1]]; ; {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// begin connects for a measurement.
func begin(ctx context.Context, n network, to string, test, log2 byte) (net.Conn, error) {
	c, err := n.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte{test, log2}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// stream returns the rate at which bytes arrive, in 10^6 bytes a second.
func stream(ctx context.Context, n network, to string, d time.Duration, write int) (float64, error) {
	c, err := begin(ctx, n, to, streamTest, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b, sent, began := make([]byte, write), int64(0), time.Now()
	for time.Since(began) < d && ctx.Err() == nil {
		n, err := c.Write(b)
		if sent += int64(n); err != nil {
			return 0, err
		}
	}
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		if err := c.CloseWrite(); err != nil {
			return 0, err
		}
	}
	var arrived int64
	if err := json.NewDecoder(c).Decode(&arrived); err != nil {
		return 0, fmt.Errorf("the other end says nothing of what has arrived: %w", err)
	}
	if arrived != sent {
		return 0, fmt.Errorf("%d bytes were sent, %d have arrived", sent, arrived)
	}
	return float64(arrived) / time.Since(began).Seconds() / 1e6, ctx.Err()
}

// replies returns the times of requests, each of a power of two of bytes, with their replies, at least one.
func replies(ctx context.Context, n network, to string, d time.Duration, size int) (times []time.Duration, err error) {
	c, err := begin(ctx, n, to, replyTest, byte(bits.TrailingZeros(uint(size))))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	b := make([]byte, size)
	for began := time.Now(); time.Since(began) < d && ctx.Err() == nil; {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	if len(times) == 0 {
		return nil, errors.Join(errors.New("no reply has come"), ctx.Err())
	}
	return times, ctx.Err()
}

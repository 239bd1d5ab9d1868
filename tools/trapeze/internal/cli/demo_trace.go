package cli

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/via"
)

// What demo --dma-log logs: a picture of it can still be read.
const (
	tracedBytes, tracedBurst = 64 << 10, 2
	// tracedTries bounds the repetitions on a machine that was too busy: a
	// NIC that does not run for some milliseconds takes its frames for lost.
	tracedTries = 10
)

// traceDemo sends a few messages while the NICs log their transfers.
func traceDemo(ctx context.Context, a, b *via.NIC, log *recorder) (err error) {
	o := via.ConnOptions{Reliability: via.ReliableDelivery, MaxMessage: tracedBytes, SendDepth: tracedBurst, RecvDepth: tracedBurst}
	x, y, err := connected(ctx, a, b, "trapeze-demo/2", o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(), y.Close()) }()
	for range tracedTries {
		if err := log.watch(false, a, b); err != nil {
			return err
		}
		sent := 0
		for _, count := range []int{1, tracedBurst} {
			if err := measure.Burst(ctx, x, y, tracedBytes, count); err != nil {
				return err
			}
			sent += count * tracedBytes
		}
		if err := log.read(); err != nil || once(log.records, sent) {
			return err
		}
	}
	return nil
}

// once reports whether every engine has moved just so many bytes, and something of each frame. Then
// no frame was sent again, or begun again and dropped since it had arrived. So packets have the same
// numbers at both ends.
func once(records []dmalog.Record, bytes int) bool {
	var moved, last [dmalog.Engines]int
	var seen [dmalog.Engines]map[int]bool
	for _, r := range records {
		if seen[r.Engine] == nil {
			seen[r.Engine] = map[int]bool{}
		}
		seen[r.Engine][r.Packet] = true
		moved[r.Engine] += r.Bytes
		last[r.Engine] = max(last[r.Engine], r.Packet)
	}
	for e, n := range moved {
		if n != bytes || len(seen[e]) != last[e]+1 {
			return false
		}
	}
	return true
}

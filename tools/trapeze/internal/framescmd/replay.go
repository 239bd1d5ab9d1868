package framescmd

import (
	"context"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

// longestGap bounds what a file can have us wait for between two frames.
const longestGap = time.Hour

// replay begins to read a file of frames, and returns what sends them.
func (g *gen) replay(file io.Reader, q ethernet.Queue) (func(context.Context) error, error) {
	r, err := capture.NewReader(file)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (err error) {
		defer func() {
			if lerr := g.leave(ctx, q); err == nil {
				err = lerr
			}
		}()
		pace := pacer{start: time.Now(), perSecond: g.flags.perSecond}
		var start, due time.Time // of the first frame: in the file, and here
		one := make([]ethernet.Frame, 1)
		for ctx.Err() == nil {
			frame, at, length, err := r.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			g.generated.Add(1)
			if len(frame) < length || length < ethernet.HeaderSize {
				g.cutOff++
				continue
			}
			if length > g.room {
				g.tooLong++
				continue
			}
			if g.flags.perSecond > 0 {
				pace.due(ctx, 1)
			} else {
				if start.IsZero() {
					start, due = at, time.Now()
				}
				_ = command.Pause(ctx, min(time.Until(due.Add(at.Sub(start))), longestGap))
			}
			if err := g.sendCopy(ctx, q, one, frame); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// leave waits until what is in the ring has been sent.
func (g *gen) leave(ctx context.Context, q ethernet.Queue) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	n, err := g.settle(ctx, q)
	g.unsent.Add(int64(n))
	return err
}

// sendCopy sends a frame that is not in the pool, as the one of a burst.
func (g *gen) sendCopy(ctx context.Context, q ethernet.Queue, one []ethernet.Frame, frame []byte) error {
	for q.Cache().Alloc(one) == 0 {
		if _, err := q.Unsent(); err != nil || command.Pause(ctx, sendNap) != nil {
			g.dropped.Add(1)
			return err
		}
	}
	one[0].Length = uint16(len(frame))
	copy(g.pool.Bytes(one[0]), frame)
	return g.sendAll(ctx, q, one)
}

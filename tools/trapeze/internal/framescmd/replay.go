package framescmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
)

// replay begins to read a file of frames, and returns what sends them. What it says of a record it
// says of the first of that kind, with note.
func (g *gen) replay(file io.Reader, q ethernet.Queue, note func(string, ...any)) (func(context.Context) error, error) {
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
		stamps := stamps{longest: g.flags.MaxGap}
		pace := pacer{start: time.Now(), perSecond: g.flags.perSecond}
		one := make([]ethernet.Frame, 1)
		for record := 1; ctx.Err() == nil; record++ {
			frame, at, length, err := r.Next()
			if err == io.EOF {
				return nil
			}
			var skipped *uint64
			switch {
			case errors.Is(err, io.ErrUnexpectedEOF):
				g.generated.Add(1)
				g.cutOff++
				note("%s: record %d is cut off: the file ends there", g.flags.Read, record)
				return nil
			case errors.Is(err, capture.ErrLinkType):
				skipped = &g.otherLink
			case errors.Is(err, capture.ErrLengths):
				skipped = &g.badLengths
			case err != nil:
				return fmt.Errorf("%s: record %d, and all behind it: %w", g.flags.Read, record, err)
			case len(frame) < length || length < ethernet.HeaderSize:
				skipped, err = &g.cutOff, fmt.Errorf("%d of its %d bytes are in the file, a frame has %d or more", len(frame), length, ethernet.HeaderSize)
			case length > g.room:
				skipped, err = &g.tooLong, fmt.Errorf("it has %d bytes, this port sends %d at most (--mtu)", length, g.room)
			}
			g.generated.Add(1)
			if skipped != nil {
				if *skipped++; *skipped == 1 {
					note("%s: record %d is skipped, as are others of the kind: %v", g.flags.Read, record, err)
				}
				continue
			}
			if g.flags.perSecond > 0 {
				pace.due(ctx, 1)
			} else {
				gap, wait := stamps.next(at)
				if gap > stamps.longest {
					note("%s: record %d comes %v after the one before it; it is sent after %v (--max-gap)", g.flags.Read, record, gap, stamps.longest)
				} else if wait >= longWait {
					note("%s: record %d comes in %v; --max-gap bounds that", g.flags.Read, record, wait.Round(time.Second))
				}
				_ = command.Pause(ctx, wait)
			}
			if err := g.sendCopy(ctx, q, one, frame); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// longWait is a wait for the next frame that the user is told of.
const longWait = 10 * time.Second

// stamps says when the frames of a file are due.
type stamps struct {
	longest time.Duration // between two of them
	last    time.Time     // stamp of the frame before
	due     time.Time     // when that was due here
}

// next returns how much later than the one before the frame with a stamp came, and how long to wait for it now.
// Stamps of several interfaces are somewhat out of order; such a frame goes at once. A stamp that is far
// back begins anew.
func (s *stamps) next(at time.Time) (gap, wait time.Duration) {
	if s.due.IsZero() {
		s.last, s.due = at, time.Now()
	}
	gap = at.Sub(s.last)
	if gap > 0 || gap < -s.longest {
		s.last = at
		s.due = s.due.Add(min(max(gap, 0), s.longest))
	}
	return gap, time.Until(s.due)
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

package framescmd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/progress"
)

// burst is the number of frames that are received and sent at a time.
const burst = 64

// run runs workers until enough of them have ended, one has failed, ctx ends or --duration is over, and shows the rates
// meanwhile. That the time is over is no error.
func (s *session) run(ctx context.Context, workers []func(context.Context) error, enough int) error {
	if s.flags.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.flags.Duration)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(workers))
	var working sync.WaitGroup
	var done atomic.Int32
	s.began = time.Now()
	for i, work := range workers {
		working.Go(func() {
			if err := work(ctx); ctx.Err() == nil || !ended(err) {
				errs[i] = err
			}
			if int(done.Add(1)) >= enough || errs[i] != nil {
				cancel()
			}
		})
	}
	s.show(ctx)
	working.Wait()
	return errors.Join(errs...)
}

// ended says whether an error is that of a context that ended.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// show shows the rates each second until ctx ends.
func (s *session) show(ctx context.Context) {
	style := s.x.Style()
	if style == progress.None {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before, then := s.total(), time.Now()
	for {
		select {
		case <-ctx.Done():
			if style == progress.Bar {
				fmt.Fprint(s.x.Stderr, "\r\x1b[K")
			}
			return
		case <-tick.C:
		}
		now, total := time.Now(), s.total()
		line := rates(before, total, now.Sub(then))
		if style == progress.Bar {
			fmt.Fprintf(s.x.Stderr, "\r%s\x1b[K", line)
		} else {
			fmt.Fprintln(s.x.Stderr, line)
		}
		before, then = total, now
	}
}

// total adds up what the queues of all ports have counted.
func (s *session) total() (t ethernet.QueueStats) {
	for _, p := range s.ports {
		add(&t, p.Stats().Queues)
	}
	return t
}

func add(t *ethernet.QueueStats, queues []ethernet.QueueStats) {
	for _, q := range queues {
		t.ReceivedFrames += q.ReceivedFrames
		t.ReceivedBytes += q.ReceivedBytes
		t.SentFrames += q.SentFrames
		t.SentBytes += q.SentBytes
		t.ReceiveErrors += q.ReceiveErrors
		t.BadLengths += q.BadLengths
		t.Unended += q.Unended
		t.NoBuffers += q.NoBuffers
		t.Lost += q.Lost
		t.Restarts += q.Restarts
		t.Interrupts += q.Interrupts
	}
}

// rates is a line about what has come and gone in a time.
func rates(before, now ethernet.QueueStats, d time.Duration) string {
	per := func(from, to uint64) float64 { return float64(to-from) / d.Seconds() }
	line := fmt.Sprintf("in %s, %.1f Mbit/s; out %s, %.1f Mbit/s",
		frameRate(per(before.ReceivedFrames, now.ReceivedFrames)), per(before.ReceivedBytes, now.ReceivedBytes)*8/1e6,
		frameRate(per(before.SentFrames, now.SentFrames)), per(before.SentBytes, now.SentBytes)*8/1e6)
	if n := now.ReceiveErrors + now.BadLengths + now.Unended + now.Lost; n > 0 {
		line += fmt.Sprintf("; %d bad or lost", n)
	}
	return line
}

// frameRate prints frames a second.
func frameRate(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%.3f Mframes/s", v/1e6)
	}
	return fmt.Sprintf("%.0f frames/s", v)
}

// sendTimeout is the time that frames wait for room in a send ring before they are dropped.
const sendTimeout = 20 * time.Millisecond

// send sends frames, all of which are given away: what cannot be sent is freed. It
// returns how many that were, because the ring stayed full, ctx has ended, or a frame is
// not one for this port.
func send(ctx context.Context, q ethernet.Queue, frames []ethernet.Frame) (dropped int, err error) {
	var end time.Time
	for len(frames) > 0 {
		n, err := q.Send(frames)
		frames = frames[n:]
		switch {
		case errors.Is(err, ethernet.ErrBadFrame) && len(frames) > 0:
			q.Cache().Free(frames[:1])
			frames = frames[1:]
			dropped++
			continue
		case err != nil:
			q.Cache().Free(frames)
			return dropped + len(frames), err
		case n > 0 || len(frames) == 0:
			end = time.Time{}
			continue
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(sendTimeout)
		}
		if now.After(end) || ctx.Err() != nil {
			q.Cache().Free(frames)
			return dropped + len(frames), nil
		}
		runtime.Gosched()
	}
	return dropped, nil
}

// restoreTag puts a VLAN tag that the device has taken out back into a frame, so that it
// can be looked at and sent like all others. It needs four bytes of headroom.
func restoreTag(pool *ethernet.Pool, f *ethernet.Frame) {
	b := pool.Buffer(f.Buffer)
	if f.Flags&ethernet.VLANTagged == 0 || f.Offset < ethernet.TagSize || int(f.Offset)+12 > len(b) {
		return
	}
	f.Offset -= ethernet.TagSize
	f.Length += ethernet.TagSize
	f.Flags &^= ethernet.VLANTagged
	b = b[f.Offset:]
	copy(b[:12], b[ethernet.TagSize:])
	b[12], b[13], b[14], b[15] = 0x81, 0, byte(f.VLAN>>8), byte(f.VLAN)
}

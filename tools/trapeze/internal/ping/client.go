package ping

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// Options of a run, as flags of a command (see cmdtable.Does).
type Options struct {
	Count uint64 `flag:"count,c" default:"10" help:"number of messages; 0 is until interrupted"`
	Bytes int    `flag:"size,s" default:"64" range:"0.." help:"size of a message in bytes"`
	// Interval between the starts of two round trips.
	Interval time.Duration `flag:"interval,i" default:"100ms" range:"0s.." help:"time from one message to the next"`
	Wait     time.Duration `flag:"wait,W" default:"1s" range:"1ns.." help:"time after which an answer counts as lost"`
}

// errLost: no answer came in time.
var errLost = errors.New("lost")

// Reply is told of each message: how long the round trip took, or false if no
// answer came in time.
type Reply func(sequence uint64, d time.Duration, answered bool)

// Run sends messages on e and times their return. If ctx ends, the statistics
// hold what was measured until then, and the error is nil.
func Run(ctx context.Context, e *via.Conn, o Options, reply Reply) (*Stats, error) {
	s := newStats()
	defer s.sumUp()
	pattern := make([]byte, o.Bytes)
	for seq := uint64(0); o.Count == 0 || seq < o.Count; seq++ {
		start := time.Now()
		d, err := s.once(ctx, e, o.Wait, uint32(seq), pattern)
		if ctx.Err() != nil {
			return s, nil
		}
		if err != nil && !errors.Is(err, errLost) {
			return s, transfer.Lost(err)
		}
		s.Sent++
		if err == nil {
			s.record(d)
		}
		if reply != nil {
			reply(seq, d, err == nil)
		}
		if seq+1 != o.Count {
			err := rest(ctx, e, o.Interval-time.Since(start))
			if ctx.Err() != nil {
				return s, nil
			}
			if err != nil {
				return s, transfer.Lost(err)
			}
		}
	}
	return s, nil
}

// once makes one round trip.
func (s *Stats) once(ctx context.Context, e *via.Conn, wait time.Duration, seq uint32, pattern []byte) (time.Duration, error) {
	buf, err := e.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	for i := range pattern {
		pattern[i] = byte(i) + byte(seq)
	}
	n := 0
	if unreliable(e) {
		binary.LittleEndian.PutUint32(buf, seq)
		n = Prefix
	}
	n += copy(buf[n:], pattern)
	limited, cancel := context.WithTimeout(ctx, min(wait, keepAlive))
	defer cancel()
	start := time.Now()
	if err := e.Post(n); err != nil {
		return 0, err
	}
	for {
		b, err := e.Receive(limited)
		d := time.Since(start)
		if errors.Is(err, via.ErrTimeout) {
			left := wait - d
			if left <= 0 {
				return 0, errLost
			}
			if err := stillHere(ctx, e); err != nil {
				return 0, err
			}
			attempt, cancel := context.WithTimeout(ctx, min(left, keepAlive))
			defer cancel()
			limited = attempt
			continue
		}
		if err != nil {
			return 0, err
		}
		mine := true
		if unreliable(e) {
			if mine = len(b) >= Prefix && binary.LittleEndian.Uint32(b) == seq; mine {
				b = b[Prefix:]
			}
		} else {
			mine = s.answers == seq
			s.answers++
		}
		switch {
		case !mine:
			s.Late++
		case !bytes.Equal(b, pattern):
			s.Corrupt++
		}
		if err := e.Release(); err != nil {
			return 0, err
		}
		if mine {
			return d, nil
		}
	}
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, e *via.Conn, d time.Duration) error {
	for d > 0 {
		t := time.NewTimer(min(d, keepAlive))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		if d -= keepAlive; d > 0 {
			if err := stillHere(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// stillHere sends the message that keeps a server from closing an unreliable connection.
func stillHere(ctx context.Context, e *via.Conn) error {
	if !unreliable(e) {
		return nil
	}
	if _, err := e.Acquire(ctx); err != nil {
		return err
	}
	return e.Post(0)
}

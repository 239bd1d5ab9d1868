// Package shaper gives a wire a speed.
package shaper

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// mostMemory bounds the bytes of frames that are under way, beyond four frames.
const mostMemory = 16 << 20

// Options are the choices of New.
type Options struct {
	// Path says what the wire carries, headers included, and how long it takes to begin a
	// transfer: all that is published or committed at once.
	speed.Path
	// Delay is from when a byte has left until it arrives, at most speed.MaxDelay.
	Delay time.Duration
	// Burst is the number of bytes of payload that arrive together. Zero: those of a transfer.
	Burst int
	// Clock is a monotonic clock; nil means the real one.
	Clock func() time.Duration
}

func (o *Options) complete() error {
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", ends.ErrOptions, err)
	}
	switch {
	case o.Delay < 0 || o.Delay > speed.MaxDelay:
		return fmt.Errorf("%w: a delay of %v is not in 0..%v", ends.ErrOptions, o.Delay, speed.MaxDelay)
	case o.Burst < 0:
		return fmt.Errorf("%w: a burst of %d bytes", ends.ErrOptions, o.Burst)
	}
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() time.Duration { return time.Since(start) }
	}
	return nil
}

// Port is a wire with a speed: what is sent through this end leaves one frame after the
// other, at a rate, and arrives after a delay. Over a wire that loses nothing a frame does not begin to
// arrive before the other end is ready for it: the wire stands still until then, and holds what is on it back. The user of the port moves frames on, with
// each call. Frames are acknowledged on wires that lose nothing too, and have their bytes
// with them where a peer could read them in place.
type Port struct {
	ends.Over
	parts engine.Progressive // the wire within, if frames may come in parts
	line  engine.Lossless    // that, if nothing is lost on it
	taken bool               // the user has released a frame that the wire within still holds
	o     Options
	most  int // frames that may be under way

	frames   []*frame // under way, oldest first
	spare    []*frame
	reserved *frame // nil for none; it is the last of frames once bytes are published
	free     time.Duration
	out      []byte // of the wire within, of the oldest frame; nil: it has not begun to arrive
	arrived  int    // bytes of that
}

// frame is a frame under way.
type frame struct {
	memory, buf []byte
	transfers   []transfer
	open        bool // more of it is to come
	aborted     bool
}

// transfer is bytes of a frame, up to byte to, that begin to leave at a time.
type transfer struct {
	to    int
	begin time.Duration
}

// inParts is a Port on a wire that hands frames over while they are written.
type inParts struct{ *Port }

// New gives what is sent through inner a speed; it then owns inner. On error the caller
// keeps it.
func New(inner ends.Port, o Options) (ends.Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Port{Over: ends.Over{Port: inner}, o: o}
	memory := int64(mostMemory)
	if o.Rate != 0 {
		memory = min(memory, o.Rate*int64(o.Delay)/int64(time.Second))
	}
	s.most = 4 + int(memory)/inner.MTU()
	s.parts, _ = inner.(engine.Progressive)
	s.line, _ = inner.(engine.Lossless)
	if s.parts != nil && !inner.Checksum() {
		return inParts{s}, nil
	}
	s.parts = nil
	return s, nil
}

// Reserve has no room while the frames before will take longer than two of the largest.
func (s *Port) Reserve(n int) []byte {
	if s.reserved != nil && s.reserved.open {
		s.abort()
	}
	if uint(n) > uint(s.MTU()) {
		s.recycle()
		return nil
	}
	now := s.move()
	if len(s.frames) >= s.most || s.free-now > 2*(s.o.Setup+s.o.Takes(s.MTU())) {
		s.recycle()
		return nil
	}
	if s.reserved == nil {
		if last := len(s.spare) - 1; last >= 0 {
			s.reserved, s.spare = s.spare[last], s.spare[:last]
		} else {
			s.reserved = &frame{memory: make([]byte, s.MTU())}
		}
	}
	s.reserved.buf = s.reserved.memory[:n:n]
	return s.reserved.buf
}

// recycle gives up what is only reserved.
func (s *Port) recycle() {
	if s.reserved != nil {
		s.spare, s.reserved = append(s.spare, s.reserved), nil
	}
}

// hand lets the bytes of the reserved frame up to n leave.
func (s *Port) hand(n int) {
	f, now, from := s.reserved, s.o.Clock(), 0
	if !f.open {
		f.open = true
		s.frames = append(s.frames, f)
	} else {
		from = f.transfers[len(f.transfers)-1].to
	}
	begin := max(now, s.free) + s.o.Setup
	f.transfers = append(f.transfers, transfer{n, begin})
	s.free = begin + s.o.Takes(n-from)
}

func (s *Port) Commit() {
	if s.reserved == nil {
		return
	}
	s.hand(len(s.reserved.buf))
	s.reserved.open, s.reserved = false, nil
	s.move()
}

// Publish makes the bytes begin to leave.
func (s inParts) Publish(n int) {
	f := s.reserved
	if f == nil || n <= 0 || n >= len(f.buf) || f.open && n <= f.transfers[len(f.transfers)-1].to {
		return
	}
	s.hand(n)
	s.move()
}

// Abort lets what has been published leave first.
func (s inParts) Abort() { s.abort() }

func (s *Port) abort() {
	switch f := s.reserved; {
	case f == nil:
	case f.open:
		f.open, f.aborted, s.reserved = false, true, nil
		s.move()
	default:
		s.recycle()
	}
}

func (s inParts) Arrived() (n int, aborted bool) { return s.parts.Arrived() }

func (s *Port) Flush() { s.move() }

func (s *Port) Left() (busy, all time.Duration) {
	now := s.move()
	busy = s.free - now
	if all = busy; len(s.frames) > 0 {
		all = max(busy+s.o.Delay, 1) // the peer may have no room
	}
	return busy, all
}

// reached returns how many bytes of a frame have arrived by now.
func (s *Port) reached(f *frame, now time.Duration) (n int) {
	for _, t := range f.transfers {
		passed := now - s.o.Delay - t.begin
		if passed < 0 {
			break
		}
		if passed < s.o.Takes(t.to-n) {
			if s.o.Burst == 0 {
				return n
			}
			return n + s.o.Carries(passed)
		}
		n = t.to
	}
	return n
}

// move has what has had its time arrive, and returns the time.
func (s *Port) move() (now time.Duration) {
	now = s.o.Clock()
	for len(s.frames) > 0 && s.advance(s.frames[0], now) {
		f := s.frames[0]
		f.transfers, f.aborted = f.transfers[:0], false
		s.frames = s.frames[:copy(s.frames, s.frames[1:])]
		s.spare = append(s.spare, f)
		s.out, s.arrived = nil, 0
	}
	return now
}

// advance has what has had its time of the oldest frame arrive. It reports whether the
// frame has ended with that.
func (s *Port) advance(f *frame, now time.Duration) (ended bool) {
	if late := now - s.o.Delay - f.transfers[0].begin; s.out == nil && late >= 0 && s.line != nil && s.line.Look(true) != s.line.Mark() {
		s.stall(late)
	}
	n := s.reached(f, now)
	switch {
	case s.out == nil && n == 0:
		return false
	case f.aborted && n == f.transfers[len(f.transfers)-1].to:
		if s.arrived > 0 {
			s.parts.Abort()
		}
		return true
	case n == len(f.buf):
		if !s.carry(f, n) {
			return false
		}
		s.Port.Commit()
		s.Port.Flush()
		return true
	case s.parts == nil || n < datasheet.HeaderSize:
		return false
	}
	if s.o.Burst > 0 {
		n -= (n - datasheet.HeaderSize) % s.o.Burst
	}
	if n > s.arrived && s.carry(f, n) {
		s.parts.Publish(n)
		s.arrived = n
	}
	return false
}

// stall holds all that is on the wire back for a while: the other end is not ready for the oldest frame.
func (s *Port) stall(while time.Duration) {
	for _, f := range s.frames {
		for i := range f.transfers {
			f.transfers[i].begin += while
		}
	}
	s.free += while
}

// carry puts the first n bytes of a frame on the wire within. It returns false if that has
// no room.
func (s *Port) carry(f *frame, n int) bool {
	if s.out == nil {
		if s.out = s.Port.Reserve(len(f.buf)); s.out == nil {
			return false
		}
	}
	copy(s.out[s.arrived:n], f.buf[s.arrived:n])
	return true
}

// Receive: asked for a frame, this end is ready for one: the sender's end learns of it.
func (s *Port) Receive() []byte {
	s.move()
	if s.taken {
		s.taken = false
		s.Port.Release()
	}
	return s.Port.Receive()
}

func (s *Port) Release() { s.taken = true }

func (s *Port) Drained() bool {
	s.move()
	return len(s.frames) == 0 && s.Over.Drained()
}

package wire

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
)

// Bounds of a shaped wire.
const (
	// MinRate and MaxRate bound rates, in bytes per second. With MinRate the largest frame
	// takes 65 ms, which is below the longest retransmission timeout of an engine. With
	// MaxRate the smallest burst, 64 bytes, takes the nanosecond that the clock resolves.
	MinRate, MaxRate = 1_000_000, 64_000_000_000
	// MaxDelay keeps a round trip below the longest retransmission timeout, and a
	// disconnect within the time that a device waits for it to leave.
	MaxDelay = 10 * time.Millisecond
	// shapedMemory bounds the bytes of frames that are under way, beyond four frames.
	shapedMemory = 16 << 20
)

// ShaperOptions are the choices of NewShaper.
type ShaperOptions struct {
	// Rate is what the wire carries, in bytes per second, headers included: MinRate to
	// MaxRate. Zero sets no limit.
	Rate int64
	// Setup is how long it takes to begin a transfer: all that is published or committed at
	// once. It is at most engine.MaxSetup.
	Setup time.Duration
	// Delay is from when a byte has left until it arrives, at most MaxDelay.
	Delay time.Duration
	// Burst is how many bytes of payload arrive together; engine.DefaultBurst if zero.
	Burst int
	// Clock is a monotonic clock; nil means the real one.
	Clock func() time.Duration
}

func (o *ShaperOptions) complete() error {
	switch {
	case o.Rate != 0 && (o.Rate < MinRate || o.Rate > MaxRate):
		return fmt.Errorf("%w: Rate of %d bytes per second is not in %d..%d", ErrOptions, o.Rate, int64(MinRate), int64(MaxRate))
	case o.Setup < 0 || o.Setup > engine.MaxSetup:
		return fmt.Errorf("%w: Setup of %v is not in 0..%v", ErrOptions, o.Setup, engine.MaxSetup)
	case o.Delay < 0 || o.Delay > MaxDelay:
		return fmt.Errorf("%w: Delay of %v is not in 0..%v", ErrOptions, o.Delay, MaxDelay)
	case o.Burst < 0:
		return fmt.Errorf("%w: Burst of %d bytes", ErrOptions, o.Burst)
	}
	if o.Burst == 0 {
		o.Burst = engine.DefaultBurst
	}
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() time.Duration { return time.Since(start) }
	}
	return nil
}

// Shaper is a wire with a speed: what is sent through this end leaves one frame after the
// other, at a rate, and arrives after a delay. Whoever uses the port moves frames on, with
// each call. Frames are acknowledged on wires that lose nothing too, and have their bytes
// with them where a peer could read them in place.
type Shaper struct {
	inner Port
	parts engine.Progressive // inner, if frames may come in parts
	o     ShaperOptions
	most  int // frames that may be under way

	frames   []*shapedFrame // under way, oldest first
	spare    []*shapedFrame
	reserved *shapedFrame // nil for none; it is the last of frames once bytes are published
	free     time.Duration
	out      []byte // inner's, of the oldest frame; nil: it has not begun to arrive
	arrived  int    // bytes of that
}

// shapedFrame is a frame under way.
type shapedFrame struct {
	memory, buf []byte
	transfers   []shapedTransfer
	open        bool // more of it is to come
	aborted     bool
}

// shapedTransfer is bytes of a frame, up to byte to, that begin to leave at a time.
type shapedTransfer struct {
	to    int
	begin time.Duration
}

// shaperInParts is a Shaper on a wire that hands frames over while they are written.
type shaperInParts struct{ *Shaper }

// NewShaper gives what is sent through inner a speed; it then owns inner. On error the
// caller keeps it.
func NewShaper(inner Port, o ShaperOptions) (Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Shaper{inner: inner, o: o}
	memory := int64(shapedMemory)
	if o.Rate != 0 {
		memory = min(memory, o.Rate*int64(o.Delay)/int64(time.Second))
	}
	s.most = 4 + int(memory)/inner.MTU()
	s.parts, _ = inner.(engine.Progressive)
	if s.parts != nil && !inner.Checksum() {
		return shaperInParts{s}, nil
	}
	s.parts = nil
	return s, nil
}

// MTU returns the largest frame in bytes.
func (s *Shaper) MTU() int { return s.inner.MTU() }

// Checksum is inner's.
func (s *Shaper) Checksum() bool { return s.inner.Checksum() }

// takes is the time that n bytes take to leave.
func (s *Shaper) takes(n int) time.Duration {
	if s.o.Rate == 0 {
		return 0
	}
	return time.Duration((int64(n)*int64(time.Second) + s.o.Rate - 1) / s.o.Rate)
}

// Reserve is described at engine.Port. There is no room while the frames before will take
// longer than two of the largest.
func (s *Shaper) Reserve(n int) []byte {
	if s.reserved != nil && s.reserved.open {
		s.abort()
	}
	if uint(n) > uint(s.MTU()) {
		s.recycle()
		return nil
	}
	now := s.move()
	if len(s.frames) >= s.most || s.free-now > 2*(s.o.Setup+s.takes(s.MTU())) {
		s.recycle()
		return nil
	}
	if s.reserved == nil {
		if last := len(s.spare) - 1; last >= 0 {
			s.reserved, s.spare = s.spare[last], s.spare[:last]
		} else {
			s.reserved = &shapedFrame{memory: alignedBytes(s.MTU())}
		}
	}
	s.reserved.buf = s.reserved.memory[:n:n]
	return s.reserved.buf
}

// recycle gives up what is only reserved.
func (s *Shaper) recycle() {
	if s.reserved != nil {
		s.spare, s.reserved = append(s.spare, s.reserved), nil
	}
}

// hand lets the bytes of the reserved frame up to n leave.
func (s *Shaper) hand(n int) {
	f, now, from := s.reserved, s.o.Clock(), 0
	if !f.open {
		f.open = true
		s.frames = append(s.frames, f)
	} else {
		from = f.transfers[len(f.transfers)-1].to
	}
	begin := max(now, s.free) + s.o.Setup
	f.transfers = append(f.transfers, shapedTransfer{n, begin})
	s.free = begin + s.takes(n-from)
}

// Commit is described at engine.Port.
func (s *Shaper) Commit() {
	if s.reserved == nil {
		return
	}
	s.hand(len(s.reserved.buf))
	s.reserved.open, s.reserved = false, nil
	s.move()
}

// Publish is described at engine.Progressive: the bytes begin to leave.
func (s shaperInParts) Publish(n int) {
	f := s.reserved
	if f == nil || n <= 0 || n >= len(f.buf) || f.open && n <= f.transfers[len(f.transfers)-1].to {
		return
	}
	s.hand(n)
	s.move()
}

// Abort is described at engine.Progressive. What has been published leaves first.
func (s shaperInParts) Abort() { s.abort() }

func (s *Shaper) abort() {
	switch f := s.reserved; {
	case f == nil:
	case f.open:
		f.open, f.aborted, s.reserved = false, true, nil
		s.move()
	default:
		s.recycle()
	}
}

// Arrived is described at engine.Progressive.
func (s shaperInParts) Arrived() (n int, aborted bool) { return s.parts.Arrived() }

// Flush is described at engine.Port.
func (s *Shaper) Flush() { s.move() }

// Left is described at engine.Paced.
func (s *Shaper) Left() (busy, all time.Duration) {
	now := s.move()
	busy = s.free - now
	if all = busy; len(s.frames) > 0 {
		all = max(busy+s.o.Delay, 1) // the peer may have no room
	}
	return busy, all
}

// reached is how many bytes of a frame have arrived by now.
func (s *Shaper) reached(f *shapedFrame, now time.Duration) (n int) {
	for _, t := range f.transfers {
		passed := now - s.o.Delay - t.begin
		if passed < 0 {
			break
		}
		if passed < s.takes(t.to-n) {
			return n + int(int64(passed)*s.o.Rate/int64(time.Second))
		}
		n = t.to
	}
	return n
}

// move has what has had its time arrive, and returns the time.
func (s *Shaper) move() (now time.Duration) {
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
func (s *Shaper) advance(f *shapedFrame, now time.Duration) (ended bool) {
	n := s.reached(f, now)
	switch {
	case f.aborted && n == f.transfers[len(f.transfers)-1].to:
		if s.arrived > 0 {
			s.parts.Abort()
		}
		return true
	case n == len(f.buf):
		if !s.carry(f, n) {
			return false
		}
		s.inner.Commit()
		s.inner.Flush()
		return true
	case s.parts == nil || n < descriptors.HeaderSize:
		return false
	}
	if n -= (n - descriptors.HeaderSize) % s.o.Burst; n > s.arrived && s.carry(f, n) {
		s.parts.Publish(n)
		s.arrived = n
	}
	return false
}

// carry puts the first n bytes of a frame on the wire within. It returns false if that has
// no room.
func (s *Shaper) carry(f *shapedFrame, n int) bool {
	if s.out == nil {
		if s.out = s.inner.Reserve(len(f.buf)); s.out == nil {
			return false
		}
	}
	copy(s.out[s.arrived:n], f.buf[s.arrived:n])
	return true
}

// Receive is described at engine.Port.
func (s *Shaper) Receive() []byte {
	s.move()
	return s.inner.Receive()
}

// Release is described at engine.Port.
func (s *Shaper) Release() { s.inner.Release() }

// LinkUp is described at engine.Port.
func (s *Shaper) LinkUp() bool { return s.inner.LinkUp() }

// SetWake is described at Port.
func (s *Shaper) SetWake(wake func()) { s.inner.SetWake(wake) }

// OnLink is described at Port.
func (s *Shaper) OnLink(link func()) { s.inner.OnLink(link) }

// SetLink is described at Port.
func (s *Shaper) SetLink(up bool) { s.inner.SetLink(up) }

// Close closes the wire behind. What is under way is lost.
func (s *Shaper) Close() error { return s.inner.Close() }

// Claim is described at Claimer.
func (s *Shaper) Claim(mac descriptors.MAC) error { return claim(s.inner, mac) }

// Drained is described at Drainer.
func (s *Shaper) Drained() bool {
	s.move()
	return len(s.frames) == 0 && drained(s.inner)
}

package numbered

import "encoding/binary"

// Totals has the findings of a Checker.
type Totals struct {
	// Frames with a number that had not come before.
	Frames uint64 `json:"frames"`
	// Lost are numbers below the highest one, or below what the end of the stream has
	// said, that have not come.
	Lost uint64 `json:"lost"`
	// Doubled frames came again. Reordered ones came after one with a higher number.
	Doubled   uint64 `json:"doubled"`
	Reordered uint64 `json:"reordered"`
	// Late frames are so old that it is not known whether they came before: they count
	// neither as Doubled nor as come.
	Late uint64 `json:"late" help:"too old to know"`
	// Damaged ones have another checksum or length.
	Damaged uint64 `json:"damaged"`
	// Other frames have no number.
	Other uint64 `json:"other" help:"without a number"`
	// Streams that were seen, and of how many of them the end.
	Streams int `json:"streams"`
	Ended   int `json:"ended"`
}

// Complete reports whether all streams that were seen have ended, with nothing lost.
func (t Totals) Complete() bool { return t.Streams > 0 && t.Ended == t.Streams && t.Lost == 0 }

const (
	// window is the number of sequence numbers below the highest that are remembered, in bits.
	window = 1 << 16
	// maxStreams bounds the memory that a sender of nonsense can take.
	maxStreams = 256
)

// Checker looks at the numbers of frames. It is used by one goroutine at a time.
type Checker struct {
	totals  Totals
	streams map[uint32]*stream
}

// stream is the state of one stream.
type stream struct {
	next     int64 // one above the highest number
	frames   int64 // different ones
	total    int64 // of them, as the end says; 0 if that has not come
	ended    bool
	received [window / 64]uint64 // bit n%window: number n has come
}

// NewChecker makes a checker.
func NewChecker() *Checker { return &Checker{streams: map[uint32]*stream{}} }

// Totals returns what was found until now.
func (c *Checker) Totals() Totals {
	t := c.totals
	t.Streams = len(c.streams)
	for _, s := range c.streams {
		t.Frames += uint64(s.frames)
		if missing := max(s.next, s.total) - s.frames; missing > 0 {
			t.Lost += uint64(missing)
		}
		if s.ended {
			t.Ended++
		}
	}
	return t
}

// Frame looks at a frame that has come. It allocates nothing but for a new stream.
func (c *Checker) Frame(frame []byte) {
	payload := find(frame)
	if payload == nil {
		c.totals.Other++
		return
	}
	length := int(binary.BigEndian.Uint16(payload[2:]))
	if length < recordSize || length > len(payload) || binary.BigEndian.Uint32(payload[12:]) != checksum(payload[:length]) {
		c.totals.Damaged++
		return
	}
	id, number := binary.BigEndian.Uint32(payload[4:]), binary.BigEndian.Uint32(payload[8:])
	s := c.streams[id]
	if s == nil {
		if len(c.streams) == maxStreams {
			c.totals.Other++
			return
		}
		s = &stream{}
		c.streams[id] = s
	}
	// Numbers go on behind 2^32: the nearest one with these bits is meant.
	n := s.next + int64(int32(number-uint32(s.next)))
	if binary.BigEndian.Uint16(payload) == magicEnd {
		s.ended, s.total = true, max(s.total, n)
		return
	}
	switch {
	case n >= s.next:
		s.forget(n)
		s.next = n + 1
	case n < 0 || n < s.next-window:
		c.totals.Late++
		return
	case s.received[n%window/64]&(1<<(n%64)) != 0:
		c.totals.Doubled++
		return
	default:
		c.totals.Reordered++
	}
	s.received[n%window/64] |= 1 << (n % 64)
	s.frames++
}

// forget makes room for all numbers up to n, which have not come yet.
func (s *stream) forget(n int64) {
	if n-s.next >= window {
		clear(s.received[:])
		return
	}
	for i := s.next; i <= n; i++ {
		s.received[i%window/64] &^= 1 << (i % 64)
	}
}

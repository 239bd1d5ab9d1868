package ring

import "sync/atomic"

// Sender puts frames into a ring. It is for one goroutine at a time.
type Sender struct {
	shared
	// slots is the number of descriptors that the reserved frame takes, 0 if none is
	// reserved, and length its length in bytes.
	slots  uint32
	length uint32
	// region of the buffer of the reserved frame, shifted to its place in a
	// descriptor.
	region uint64
	// copied: the reserved frame is in scratch.
	copied bool

	frames, bytesSent, tooLong uint64
}

// tooLongSlots stands for a frame that the ring can never take.
const tooLongSlots = ^uint32(0)

// Reserve returns n bytes (at most MaxFrame) for one frame, nil if there is no
// room now or the ring is not used any more. A second Reserve before Commit
// replaces the first.
func (s *Sender) Reserve(n int) []byte {
	s.slots = 0
	// A frame that was reserved before a violation and committed after it is
	// beyond to.
	if int32(s.to-s.from) <= 0 && !s.refresh() {
		return nil
	}
	i := s.from & s.mask
	if s.own {
		if uint(n) <= uint(s.capacity) && s.direct {
			s.slots, s.length, s.copied = 1, uint32(n), false
			at := uint(s.home + i*s.stride)
			return s.memory[at : at+uint(n) : at+uint(n)]
		}
		return s.reserveParts(n)
	}
	d := &s.descriptors[i]
	what, where := atomic.LoadUint64(&d.what), uint64(uint32(atomic.LoadUint64(&d.where)))
	region, length := uint16(what>>16), what>>32
	if int(region) < len(s.regions) && uint64(n) <= length && where%Align == 0 && s.direct {
		if memory := s.regions[region]; where+length <= uint64(len(memory)) {
			s.slots, s.length, s.copied = 1, uint32(n), false
			s.region = uint64(region) << 16
			return memory[where : where+uint64(n) : where+uint64(n)]
		}
	}
	return s.reserveParts(n)
}

// refresh looks at which buffers the peer has given back. It reports whether
// there are more than before.
func (s *Sender) refresh() bool {
	if s.own {
		return s.extend(s.size())
	}
	return s.extend(0)
}

// reserveParts reserves as many buffers as n bytes take.
func (s *Sender) reserveParts(n int) []byte {
	if uint(n) > MaxFrame {
		return nil
	}
	slots, room, together := uint32(0), 0, s.direct
	for slots == 0 || room < n {
		if slots == s.size() || slots == uint32(len(s.parts)) {
			s.slots = tooLongSlots
			return s.scratch[:n:n]
		}
		if int32(s.to-s.from-slots) <= 0 && !s.refresh() {
			return nil
		}
		p, ok := s.room(s.from + slots)
		if !ok {
			return nil
		}
		if slots == 0 {
			together = together && p.offset%Align == 0
		} else {
			together = together && follows(s.parts[slots-1], p)
		}
		s.parts[slots] = p
		slots++
		room += int(p.length)
	}
	s.slots, s.length, s.copied = slots, uint32(n), !together
	s.region = uint64(s.parts[0].region) << 16
	if together {
		return s.bytes(s.parts[0], uint32(n))
	}
	return s.scratch[:n:n]
}

// room returns the buffer of descriptor i, with its capacity as length.
func (s *Sender) room(i uint32) (part, bool) {
	if s.own {
		return part{offset: s.home + (i&s.mask)*s.stride, length: s.capacity}, true
	}
	p, ok := s.part(i)
	if ok && p.length == 0 {
		s.fail("descriptor length", 0, "an empty buffer has no room")
		return p, false
	}
	return p, ok
}

// Cancel forgets the reserved frame.
func (s *Sender) Cancel() { s.slots = 0 }

// Commit puts the reserved frame into the ring. The peer sees it after Flush.
func (s *Sender) Commit() {
	if s.slots != 1 || s.copied {
		s.commitParts()
		return
	}
	s.slots = 0
	s.descriptors[s.from&s.mask].what = uint64(s.length)<<32 | s.region
	s.from++
	s.frames++
	s.bytesSent += uint64(s.length)
}

func (s *Sender) commitParts() {
	slots := s.slots
	s.slots = 0
	switch {
	case slots == 0:
		return
	case slots == tooLongSlots:
		s.tooLong++
		return
	}
	for i, left := uint32(0), s.length; i < slots; i++ {
		p := s.parts[i]
		n := min(left, p.length)
		if s.copied {
			copy(s.bytes(p, n), s.scratch[s.length-left:])
		}
		left -= n
		what := uint64(n)<<32 | uint64(p.region)<<16
		if i+1 < slots {
			what |= next
		}
		s.descriptors[(s.from+i)&s.mask].what = what
	}
	s.from += slots
	s.frames++
	s.bytesSent += uint64(s.length)
}

// Flush lets the peer see all frames that were committed. It reports whether
// there were any and the peer wants to be interrupted for them.
func (s *Sender) Flush() (interrupt bool) {
	n := s.from - s.shown
	if n == 0 {
		return false
	}
	s.publish(n)
	return s.wantsInterrupt()
}

// Drained reports whether the peer has taken all that was flushed.
func (s *Sender) Drained() bool {
	s.refresh()
	return s.violation == nil && s.to-s.shown == s.size()
}

// Stats returns how many frames and bytes were committed, and how many frames
// were dropped because all buffers of the ring together are too small for them,
// since Counts was called last.
func (s *Sender) Counts() (frames, bytes, tooLong uint64) {
	frames, bytes, tooLong = s.frames, s.bytesSent, s.tooLong
	s.frames, s.bytesSent, s.tooLong = 0, 0, 0
	return frames, bytes, tooLong
}

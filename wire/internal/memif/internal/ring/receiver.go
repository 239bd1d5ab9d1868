package ring

import "sync/atomic"

// Receiver takes frames out of a ring. Pending and SetInterrupts may be called
// by any goroutine, the rest by one at a time.
type Receiver struct {
	shared
	// frame is the result of Receive, and slots how many descriptors it takes;
	// 0 if there is none.
	frame []byte
	slots uint32
	// batch is the number of descriptors that are given back at a time.
	batch uint32

	frames, bytesReceived, tooLong uint64
}

// Receive returns the oldest frame, nil if there is none or the ring is not
// used any more. It stays until Release. Its bytes may be ones that the peer can
// still change.
func (r *Receiver) Receive() []byte {
	if r.slots != 0 {
		return r.frame
	}
	if int32(r.to-r.from) <= 0 && !r.look() {
		return nil
	}
	i := r.from & r.mask
	d := &r.descriptors[i]
	what := atomic.LoadUint64(&d.what)
	length := what >> 32
	if what&next != 0 || !r.direct {
		return r.receiveParts()
	}
	if r.own {
		if length <= uint64(r.capacity) {
			at := uint64(r.home + i*r.stride)
			r.slots = 1
			r.frame = r.memory[at : at+length : at+length]
			return r.frame
		}
		return r.receiveParts()
	}
	region, where := uint16(what>>16), uint64(uint32(atomic.LoadUint64(&d.where)))
	if int(region) < len(r.regions) && where%Align == 0 && length <= MaxFrame {
		if memory := r.regions[region]; where+length <= uint64(len(memory)) {
			r.slots = 1
			r.frame = memory[where : where+length : where+length]
			return r.frame
		}
	}
	return r.receiveParts()
}

// look looks for more frames. If there are none, it gives back what was
// released.
func (r *Receiver) look() bool {
	if r.extend(0) {
		return true
	}
	if r.from != r.shown && r.violation == nil {
		r.giveBack()
	}
	return false
}

// receiveParts returns a frame of any number of buffers, or one that has to be
// copied.
func (r *Receiver) receiveParts() []byte {
	for {
		slots, total, ok := r.gather()
		if !ok {
			return nil
		}
		if total > MaxFrame {
			r.tooLong++
			r.take(slots)
			if int32(r.to-r.from) <= 0 && !r.look() {
				return nil
			}
			continue
		}
		// In this order: copying may end in a bus error, which the caller of a
		// ring that is not direct catches.
		r.frame = r.assemble(slots, uint32(total))
		r.slots = slots
		return r.frame
	}
}

// gather finds the buffers of the oldest frame. It fails if not all of them are
// there yet.
func (r *Receiver) gather() (slots uint32, total uint64, ok bool) {
	for {
		if int32(r.to-r.from-slots) <= 0 && !r.look() {
			if slots == r.size() {
				r.fail("descriptor flags", next, "a frame does not end within the ring")
			}
			return 0, 0, false
		}
		if slots == uint32(len(r.parts)) {
			r.fail("number of buffers of a frame", uint64(slots)+1, "no frame needs so many")
			return 0, 0, false
		}
		p, ok := r.part(r.from + slots)
		if !ok {
			return 0, 0, false
		}
		r.parts[slots] = p
		slots++
		total += uint64(p.length)
		if p.last {
			return slots, total, true
		}
	}
}

// assemble returns the frame in the first slots parts, where it is if it can
// be used there, else a copy.
func (r *Receiver) assemble(slots, total uint32) []byte {
	together := r.direct && r.parts[0].offset%Align == 0
	for i := uint32(1); i < slots && together; i++ {
		together = follows(r.parts[i-1], r.parts[i])
	}
	if together {
		return r.bytes(r.parts[0], total)
	}
	at := 0
	for _, p := range r.parts[:slots] {
		at += copy(r.scratch[at:], r.bytes(p, p.length))
	}
	return r.scratch[:total:total]
}

// Holding reports whether there is a frame that was received and not released.
func (r *Receiver) Holding() bool { return r.slots != 0 }

// Release gives back the frame that Receive returned last.
func (r *Receiver) Release() {
	if r.slots == 0 {
		return
	}
	r.frames++
	r.bytesReceived += uint64(len(r.frame))
	r.take(r.slots)
}

func (r *Receiver) take(slots uint32) {
	r.from += slots
	r.slots = 0
	if r.from-r.shown >= r.batch {
		r.giveBack()
	}
}

// giveBack lets the peer see what was released.
func (r *Receiver) giveBack() {
	n := r.from - r.shown
	if r.own {
		for i := r.shown; int32(r.from-i) > 0; i++ {
			r.descriptors[i&r.mask].what = uint64(r.capacity) << 32
		}
	}
	r.publish(n)
}

// SetInterrupts asks the peer for interrupts or for none. It is also a
// full barrier.
func (r *Receiver) SetInterrupts(on bool) {
	if on {
		atomic.AndUint32(r.word, ^uint32(maskInterrupt))
		return
	}
	atomic.OrUint32(r.word, maskInterrupt)
}

// Pending reports whether there are frames that were not given back yet.
func (r *Receiver) Pending() bool {
	word := atomic.LoadUint32(r.word)
	n := uint16(word>>16) - uint16(atomic.LoadUint32(r.tail))
	if r.own {
		return uint32(n) != r.size()
	}
	return n != 0
}

// Stats returns how many frames and bytes were received and released, and how
// many frames were dropped because they were longer than MaxFrame, since Counts
// was called last.
func (r *Receiver) Counts() (frames, bytes, tooLong uint64) {
	frames, bytes, tooLong = r.frames, r.bytesReceived, r.tooLong
	r.frames, r.bytesReceived, r.tooLong = 0, 0, 0
	return frames, bytes, tooLong
}

package xskring

import "fmt"

// Options describe the rings of a socket and its buffers. A buffer is at most 255 chunks
// long.
type Options struct {
	Fill, Receive, Send, Completion Memory
	// Buffers is their number, Stride their distance in bytes. Chunk is the part of one, from
	// its start on, that the kernel may receive to: the longest part of a frame.
	// Aligned chunks divide Stride.
	Buffers       int
	Stride, Chunk uint32
	// Unaligned says that the kernel gives the offset of a frame in the upper 16 bits of
	// its address (XDP_UMEM_UNALIGNED_CHUNK_FLAG).
	Unaligned bool
}

// unalignedShift is where in an address the offset is then (XSK_UNALIGNED_BUF_OFFSET_SHIFT).
const unalignedShift = 48

// continued in the options of a descriptor: the frame goes on in the next one
// (XDP_PKT_CONTD).
const continued = 1 << 0

// Who has a buffer.
const (
	ours = iota
	lent // in the fill ring, or with the kernel
	// sent: in the send ring, or with the kernel. What is above counts the descriptors
	// that are to be completed besides the last one.
	sent
)

// Rings are those of a socket. They are used by one goroutine at a time.
type Rings struct {
	o          Options
	fill       ring[uint64]
	receive    ring[Desc]
	send       ring[Desc]
	completion ring[uint64]
	state      []uint8 // of each buffer
	lent, sent int
	sending    int // descriptors of what is sent
	violation  error
}

// New finds the rings in their mappings, all of which are empty. It fails with ErrLayout.
func New(o Options) (*Rings, error) {
	r := &Rings{o: o, state: make([]uint8, o.Buffers)}
	var err error
	if r.fill, err = newRing[uint64](o.Fill); err != nil {
		return nil, fmt.Errorf("fill ring: %w", err)
	}
	if r.receive, err = newRing[Desc](o.Receive); err != nil {
		return nil, fmt.Errorf("receive ring: %w", err)
	}
	if r.send, err = newRing[Desc](o.Send); err != nil {
		return nil, fmt.Errorf("send ring: %w", err)
	}
	if r.completion, err = newRing[uint64](o.Completion); err != nil {
		return nil, fmt.Errorf("completion ring: %w", err)
	}
	return r, nil
}

// Violation says how the other side has broken the rules; nil if it has not.
func (r *Rings) Violation() error { return r.violation }

func (r *Rings) broken(ring, what string, a ...any) {
	if r.violation == nil {
		r.violation = fmt.Errorf("%w: %s ring: %s", ErrViolation, ring, fmt.Sprintf(what, a...))
	}
}

// Lend puts a buffer into the fill ring, and reports whether there was room and the buffer
// is not with the kernel already. PublishFill shows it.
func (r *Rings) Lend(buffer uint32) bool {
	if int(buffer) >= len(r.state) || r.state[buffer] != ours || r.lent >= len(r.fill.entries) {
		return false
	}
	*r.fill.at(r.fill.next) = uint64(buffer) * uint64(r.o.Stride)
	r.fill.next++
	r.state[buffer] = lent
	r.lent++
	return true
}

// PublishFill shows the kernel the buffers that were lent.
func (r *Rings) PublishFill() { r.fill.produce() }

// Lent returns how many buffers the kernel has for frames to receive.
func (r *Rings) Lent() int { return r.lent }

// FillWakeup reports whether the kernel goes on with received frames only when called.
func (r *Rings) FillWakeup() bool { return r.fill.wants() }

// Received is a frame that has arrived.
type Received struct {
	Buffer uint32
	// Offset in the buffer and Length in bytes. Length is 0 if it leaves the buffer.
	Offset, Length uint32
	// Continued says that the frame does not end in this buffer.
	Continued bool
}

// Pending reports whether Take has something to do.
func (r *Rings) Pending() bool {
	n, _ := r.receive.ready()
	return n != 0 && r.violation == nil
}

// Take takes frames that have arrived, oldest first, and returns how many. Their buffers
// are the caller's.
func (r *Rings) Take(out []Received) int {
	ready, ok := r.receive.ready()
	if !ok {
		r.broken("receive", "its producer is %d ahead, it has %d entries", ready, len(r.receive.entries))
	}
	if r.violation != nil {
		return 0
	}
	n := 0
	for ; n < len(out) && n < int(ready); n++ {
		d := *r.receive.at(r.receive.next)
		address, offset := d.Address, uint64(0)
		if r.o.Unaligned {
			address, offset = address&(1<<unalignedShift-1), address>>unalignedShift
		}
		buffer := address / uint64(r.o.Stride)
		offset += address % uint64(r.o.Stride)
		if buffer >= uint64(len(r.state)) || r.state[buffer] != lent {
			r.broken("receive", "address %#x is in no buffer that the kernel has", d.Address)
			break
		}
		r.state[buffer] = ours
		r.lent--
		out[n] = Received{Buffer: uint32(buffer), Offset: uint32(offset), Length: d.Length, Continued: d.Options&continued != 0}
		if offset+uint64(d.Length) > uint64(r.o.Chunk) {
			out[n].Offset, out[n].Length = 0, 0
		}
		r.receive.next++
	}
	r.receive.consume()
	return n
}

// Room returns how many descriptors Add can write.
func (r *Rings) Room() int {
	if r.violation != nil {
		return 0
	}
	return len(r.send.entries) - r.sending
}

// Parts returns how many descriptors a frame takes: none is longer than a chunk, and
// aligned ones do not cross from one chunk into the next.
func (r *Rings) Parts(offset, length uint32) int {
	if uint64(offset)+uint64(length) <= uint64(r.o.Chunk) {
		return 1 // as nearly always, without a division
	}
	if !r.o.Unaligned {
		length += offset % r.o.Chunk
	}
	return int((max(length, 1)-1)/r.o.Chunk) + 1
}

// Add puts a frame into the send ring, and reports whether there was room, it lies in its
// buffer, and the buffer is not with the kernel already. Publish shows it.
func (r *Rings) Add(buffer, offset, length uint32) bool {
	if int(buffer) >= len(r.state) || r.state[buffer] != ours || uint64(offset)+uint64(length) > uint64(r.o.Stride) {
		return false
	}
	parts := r.Parts(offset, length)
	if r.Room() < parts {
		return false
	}
	for left := parts; left > 0; left-- {
		d := Desc{Address: uint64(buffer)*uint64(r.o.Stride) + uint64(offset), Length: length}
		if left > 1 {
			d.Length, d.Options = r.o.Chunk, continued
			if !r.o.Unaligned {
				d.Length -= offset % r.o.Chunk
			}
		}
		*r.send.at(r.send.next) = d
		r.send.next++
		offset += d.Length
		length -= d.Length
	}
	r.state[buffer] = sent + uint8(parts-1)
	r.sending += parts
	r.sent++
	return true
}

// Publish shows the kernel the frames that were added.
func (r *Rings) Publish() { r.send.produce() }

// SendWakeup reports whether the kernel goes on with sending only when called.
func (r *Rings) SendWakeup() bool { return r.send.wants() }

// Untaken returns how many descriptors the kernel has not taken out of the send ring.
func (r *Rings) Untaken() int {
	n, ok := r.send.behind()
	if !ok {
		r.broken("send", "its consumer is %d behind, it has %d entries", n, len(r.send.entries))
		return 0
	}
	return int(n)
}

// Unsent returns how many frames were added and are not completed.
func (r *Rings) Unsent() int { return r.sent }

// Complete takes buffers of frames all of whose parts have been sent, and returns how
// many. Fewer than out has room for: there are no more.
func (r *Rings) Complete(out []uint32) int {
	ready, ok := r.completion.ready()
	if !ok {
		r.broken("completion", "its producer is %d ahead, it has %d entries", ready, len(r.completion.entries))
	}
	if r.violation != nil {
		return 0
	}
	n := 0
	for ; n < len(out) && ready > 0; ready-- {
		address := *r.completion.at(r.completion.next)
		buffer := address / uint64(r.o.Stride)
		if buffer >= uint64(len(r.state)) || r.state[buffer] < sent {
			r.broken("completion", "address %#x is in no buffer that is being sent", address)
			break
		}
		r.completion.next++
		r.sending--
		if r.state[buffer] > sent {
			r.state[buffer]--
			continue
		}
		r.state[buffer] = ours
		r.sent--
		out[n] = uint32(buffer)
		n++
	}
	r.completion.consume()
	return n
}

// Reclaim takes all buffers from a kernel that has left the rings alone.
func (r *Rings) Reclaim(give func(buffer uint32)) {
	for b, s := range r.state {
		if s != ours {
			r.state[b] = ours
			give(uint32(b))
		}
	}
	r.lent, r.sent, r.sending = 0, 0, 0
}

package pipeline

import "fmt"

// maxBuffers is the greatest number of frame buffers of one direction.
const maxBuffers = 1024

// Transfer is one outgoing transfer.
type Transfer struct {
	Frame  uint64 // number of the frame, counted from 0 as frames start
	Buffer int    // where its bytes are, 0 to Buffers-1
	Offset int    // of the first byte in the frame
	Bytes  int    // 1 or more
	Last   bool   // the frame ends with this transfer
}

type frame struct {
	number  uint64
	length  int
	arrived int
	sent    int
}

// Device is one direction of a data movement device: an incoming controller
// that fills buffers frame by frame, and an outgoing one that empties them in
// the same order. With more than one buffer the two work on the same frame or
// on different ones, which are the two edges that AMP adds to cut-through
// (patent, figure 5); with one buffer a frame must leave before the next begins.
//
// A Device holds no clock and moves nothing. Its owner asks, for each controller
// that is idle, what it could do, carries that out, and reports progress. It
// allocates nothing after NewDevice and is used by one goroutine.
type Device struct {
	waiter   Waiter // policy, if it is one
	policy   Policy
	frames   []frame // ring; buffer number = index
	oldest   int     // index of the oldest frame that has not left
	used     int     // frames in the ring
	backlog  int     // frames that wait at the source
	numbered uint64  // frames started so far
	filling  bool    // the newest frame is still arriving
	promised bool    // Threshold has said that a transfer may start now
	moving   bool    // an outgoing transfer is under way
	last     bool    // it ends its frame
}

// NewDevice makes a device with 1 to maxBuffers buffers.
func NewDevice(p Policy, buffers int) (*Device, error) {
	if buffers < 1 || buffers > maxBuffers {
		return nil, outOfRange("device", "buffers", buffers, fmt.Sprintf("1 to %d", maxBuffers))
	}
	if p == nil {
		return nil, &ParameterError{Policy: "device", Name: "policy", Value: "nil", Allowed: "any policy", Err: ErrParameter}
	}
	w, _ := p.(Waiter)
	return &Device{policy: p, waiter: w, frames: make([]frame, buffers)}, nil
}

// Policy returns the policy that the device asks.
func (d *Device) Policy() Policy { return d.policy }

// Buffers returns the number of buffers.
func (d *Device) Buffers() int { return len(d.frames) }

// Frames returns how many frames are in the buffers, arriving ones included.
func (d *Device) Frames() int { return d.used }

// CanStart reports whether the incoming controller is idle and has a buffer.
func (d *Device) CanStart() bool { return !d.filling && d.used < len(d.frames) }

// Filling reports whether the incoming controller is at work on the newest frame.
func (d *Device) Filling() bool { return d.filling }

// Start gives the incoming controller a frame of length bytes, all of it in one
// transfer, and returns the buffer to fill. Errors: ErrBusy, ErrNoBuffer,
// ErrFrameLength; they change nothing.
func (d *Device) Start(length int) (buffer int, err error) {
	switch {
	case length < 1 || length > MaxFrame:
		return 0, ErrFrameLength
	case d.filling:
		return 0, ErrBusy
	case d.used == len(d.frames):
		return 0, ErrNoBuffer
	}
	buffer = d.index(d.used)
	d.frames[buffer] = frame{number: d.numbered, length: length}
	d.numbered++
	d.used++
	d.filling = true
	return buffer, nil
}

// SetBacklog tells how many frames wait at the source that have not been started:
// posted descriptors, for a sender. Policies see them as queued.
func (d *Device) SetBacklog(frames int) { d.backlog = max(frames, 0) }

// Arrived reports the incoming progress counter: total bytes of the frame being
// filled. When it reaches the frame's length the incoming controller is idle
// again. A counter that goes backwards or beyond the frame is ErrProgress and
// changes nothing: the counter may come from a device that is not trusted.
func (d *Device) Arrived(total int) error {
	if !d.filling {
		return ErrProgress
	}
	f := &d.frames[d.index(d.used-1)]
	if total < f.arrived || total > f.length {
		return ErrProgress
	}
	f.arrived = total
	d.filling = total < f.length
	return nil
}

// Next asks the policy what the outgoing controller may move now. If it answers
// with a transfer, the controller is busy until Done. It answers false while the
// controller is busy or has to wait.
func (d *Device) Next() (t Transfer, ok bool) {
	f, n := d.next()
	if n == 0 {
		return t, false
	}
	return Transfer{Frame: f.number, Buffer: d.oldest, Offset: f.sent - n, Bytes: n, Last: d.last}, true
}

// Move is Next for a mover that knows where it is: bytes that may move, 0 if
// none, and whether the frame ends with them.
func (d *Device) Move() (bytes int, last bool) {
	_, n := d.next()
	return n, n > 0 && d.last
}

func (d *Device) next() (f *frame, n int) {
	if d.moving || d.used == 0 {
		return nil, 0
	}
	f = &d.frames[d.oldest]
	n = d.ask(f, f.arrived)
	if n == 0 && d.promised {
		n = f.arrived - f.sent
	}
	d.promised = false
	if n > 0 {
		f.sent += n
		d.moving, d.last = true, f.sent == f.length
	}
	return f, n
}

// Done reports that the outgoing transfer has ended; a frame that has left frees
// its buffer. It answers ErrProgress if none was under way.
func (d *Device) Done() error {
	if !d.moving {
		return ErrProgress
	}
	d.moving = false
	if d.last {
		d.oldest = d.index(1)
		d.used--
	}
	return nil
}

// Head returns the view of the oldest frame, and false if there is none.
func (d *Device) Head() (View, bool) {
	if d.used == 0 {
		return View{}, false
	}
	f := &d.frames[d.oldest]
	return d.view(f, f.arrived), true
}

// Threshold returns how many bytes of the oldest frame must have arrived before
// the outgoing controller moves anything, so that a mover can sleep until then
// instead of polling. counter is the present reading of the progress counter if
// that frame is still arriving. It answers false if there is nothing to wait for.
// Of a policy that would say yes, then no, then yes again as bytes arrive it finds
// a yes near the counter. If it returns the counter, the next Next will not refuse,
// although more has arrived by the time the mover is ready.
func (d *Device) Threshold(counter int) (arrived int, ok bool) {
	if d.moving || d.used == 0 {
		return 0, false
	}
	f := &d.frames[d.oldest]
	low, high := max(f.arrived, min(counter, f.length), f.sent+1), f.length
	if d.promised = d.ask(f, low) > 0; d.promised {
		return low, true
	}
	if d.waiter != nil {
		return min(max(d.waiter.Wait(d.view(f, low)), low+1), high), true
	}
	for step := 64; low+step < f.length; step *= 2 {
		if d.ask(f, low+step) > 0 {
			high = low + step
			break
		}
		low += step
	}
	for low+1 < high {
		if mid := low + (high-low)/2; d.ask(f, mid) > 0 {
			high = mid
		} else {
			low = mid
		}
	}
	return high, true
}

// ask puts the question as it would be with arrived bytes, and holds the answer
// to the rules that Policy states.
func (d *Device) ask(f *frame, arrived int) int {
	available := arrived - f.sent
	if available <= 0 {
		return 0
	}
	n := d.policy.Next(d.view(f, arrived))
	if n > available || (n <= 0 && arrived == f.length) {
		return available
	}
	return max(n, 0)
}

// view is the oldest frame as it would be with arrived bytes. A frame that was
// started but of which nothing has come does not count as queued: a receiver arms
// buffers ahead of frames.
func (d *Device) view(f *frame, arrived int) View {
	queued := d.used - 1 + d.backlog
	if d.filling && d.used > 1 && d.frames[d.index(d.used-1)].arrived == 0 {
		queued--
	}
	return View{Length: f.length, Arrived: arrived, Sent: f.sent, Queued: queued}
}

// index returns the ring index of the n-th frame from the oldest.
func (d *Device) index(n int) int {
	i := d.oldest + n
	if i >= len(d.frames) {
		i -= len(d.frames)
	}
	return i
}

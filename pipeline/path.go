package pipeline

import "fmt"

// MaxBuffers is the greatest number of frame buffers of a source, and of sources.
const MaxBuffers = 1024

// Transfer is one outgoing transfer.
type Transfer struct {
	Frame  uint64 // number of the frame, counted from 0 as frames of its source start.
	Buffer int    // where its bytes are, 0 to Buffers-1.
	Offset int    // of the first byte in the frame.
	Bytes  int    // 1 or more.
	Last   bool   // the frame ends with this transfer.
	Ends   bool   // a packet ends with it: the frame, or a fragment that Shape.Packet delimits.
	Broken bool   // with Last: the source gave the frame up, and its rest does not come.
}

type frame struct {
	number  uint64
	length  int
	arrived int
	sent    int
	broken  bool
}

// Path is one incoming controller of a device: its buffers, which it fills frame by
// frame, and what may leave them next, in the same order. With more than one buffer
// frames arrive and leave at the same time, the same frame or different ones. These are
// the two edges that AMP adds to cut-through (patent, figure 5). With one buffer a frame
// must leave before the next begins.
type Path struct {
	waiter   waiter // policy, if it is one.
	policy   Policy
	frames   []frame // ring; buffer number = index.
	oldest   int     // index of the oldest frame that has not left.
	used     int     // frames in the ring.
	backlog  int     // frames that wait at the source.
	numbered uint64  // frames started so far.
	packet   int     // most bytes of a packet that leaves; 0 = frames are packets.
	filling  bool    // the newest frame is still arriving.
	promised bool    // Threshold has said that a transfer may start now.
	moving   bool    // an outgoing transfer is under way.
	last     bool    // it ends its frame.
	shared   bool    // the device has several sources: only Device.Serve moves what leaves.
}

func newPath(p Policy, s Shape) (Path, error) {
	if s.Buffers < 1 || s.Buffers > MaxBuffers {
		return Path{}, outOfRange("device", "buffers", s.Buffers, fmt.Sprintf("1 to %d", MaxBuffers))
	}
	if p == nil {
		return Path{}, &ParameterError{Policy: "device", Name: "policy", Value: "nil", Allowed: "any policy", Err: ErrParameter}
	}
	w, _ := p.(waiter)
	return Path{policy: p, waiter: w, frames: make([]frame, s.Buffers), packet: s.Packet}, nil
}

// Policy returns the policy that the device asks.
func (p *Path) Policy() Policy { return p.policy }

// Frames returns how many frames are in the buffers, arriving ones included.
func (p *Path) Frames() int { return p.used }

// CanStart reports whether the incoming controller is idle and has a buffer.
func (p *Path) CanStart() bool { return !p.filling && p.used < len(p.frames) }

// Filling reports whether the incoming controller is at work on the newest frame.
func (p *Path) Filling() bool { return p.filling }

// Start gives the incoming controller a frame of length bytes, all of it in one
// transfer, and returns the buffer to fill. Errors: ErrBusy, ErrNoBuffer, ErrFrameLength;
// they change nothing.
func (p *Path) Start(length int) (buffer int, err error) {
	switch {
	case length < 1 || length > MaxFrame:
		return 0, ErrFrameLength
	case p.filling:
		return 0, ErrBusy
	case p.used == len(p.frames):
		return 0, ErrNoBuffer
	}
	buffer = p.index(p.used)
	p.frames[buffer] = frame{number: p.numbered, length: length}
	p.numbered++
	p.used++
	p.filling = true
	return buffer, nil
}

// SetBacklog tells how many frames wait at the source that have not been started:
// posted descriptors, for a sender. Policies see them as queued.
func (p *Path) SetBacklog(frames int) { p.backlog = max(frames, 0) }

// Arrived reports the incoming progress counter: total bytes of the frame being
// filled. When it reaches the frame's length the incoming controller is idle
// again. A counter that goes backwards or beyond the frame is ErrProgress and
// changes nothing: the counter may come from a device that is not trusted.
func (p *Path) Arrived(total int) error {
	if !p.filling {
		return ErrProgress
	}
	f := &p.frames[p.index(p.used-1)]
	if total < f.arrived || total > f.length {
		return ErrProgress
	}
	f.arrived = total
	p.filling = total < f.length
	return nil
}

// Abort ends the frame that is being filled where it is: its source sends no more of it.
// It returns how many bytes of it have arrived and not left. They still leave, and
// the last transfer says Broken. If there are none, and no transfer of the frame is under
// way, the frame is gone. The answer is ErrProgress if no frame is being filled.
func (p *Path) Abort() (rest int, err error) {
	if !p.filling {
		return 0, ErrProgress
	}
	p.filling = false
	f := &p.frames[p.index(p.used-1)]
	f.length, f.broken = f.arrived, true
	rest = f.arrived - f.sent
	switch {
	case rest > 0:
	case p.moving && p.used == 1:
		p.last = true
	case p.used == 1:
		p.leave()
	default:
		p.used--
	}
	return rest, nil
}

// Drop gives the oldest frame up: what is left of it neither comes nor leaves, and its buffer is free.
// It does nothing if there is none.
func (p *Path) Drop() {
	if p.used == 0 {
		return
	}
	p.filling = p.filling && p.used > 1
	p.moving = false
	p.leave()
}

// Buffer returns the buffer that the next frame gets, and Oldest that of the oldest frame.
func (p *Path) Buffer() int { return p.index(p.used) }
func (p *Path) Oldest() int { return p.oldest }

// Newest returns the buffer of the newest frame.
func (p *Path) Newest() int { return p.index(max(p.used, 1) - 1) }

// Next asks the policy what the outgoing controller may move now. If it answers
// with a transfer, the controller is busy until Done. It answers false while the
// controller is busy or has to wait.
//
// Of a device with several paths Device.Serve gives the answers: Next, Move and Done of
// the paths refuse.
func (p *Path) Next() (t Transfer, ok bool) {
	if p.shared {
		return t, false
	}
	return p.transfer()
}

func (p *Path) transfer() (t Transfer, ok bool) {
	f, n := p.next()
	if n == 0 {
		return t, false
	}
	return Transfer{Frame: f.number, Buffer: p.oldest, Offset: f.sent - n, Bytes: n, Last: p.last,
		Ends: p.last || p.packet > 0 && f.sent%p.packet == 0, Broken: p.last && f.broken}, true
}

// Move is Next for a mover that knows where it is: bytes that may move, 0 if
// none, and whether the frame ends with them.
func (p *Path) Move() (bytes int, last bool) {
	if p.shared {
		return 0, false
	}
	_, n := p.next()
	return n, n > 0 && p.last
}

func (p *Path) next() (f *frame, n int) {
	if p.moving || p.used == 0 {
		return nil, 0
	}
	f = &p.frames[p.oldest]
	n = p.ask(f, f.arrived)
	if n == 0 && p.promised {
		n = f.arrived - f.sent
	}
	p.promised = false
	if n > 0 {
		if p.packet > 0 {
			n = min(n, p.packet-f.sent%p.packet)
		}
		f.sent += n
		p.moving, p.last = true, f.sent == f.length
	}
	return f, n
}

// Done reports that the outgoing transfer has ended; a frame that has left frees
// its buffer. It answers ErrProgress if none was under way.
func (p *Path) Done() error {
	if !p.moving || p.shared {
		return ErrProgress
	}
	p.done()
	return nil
}

func (p *Path) done() {
	p.moving = false
	if p.last {
		p.leave()
	}
}

// leave frees the buffer of the oldest frame.
func (p *Path) leave() {
	p.oldest = p.index(1)
	p.used--
}

// Head returns the view of the oldest frame, and false if there is none.
func (p *Path) Head() (View, bool) {
	if p.used == 0 {
		return View{}, false
	}
	f := &p.frames[p.oldest]
	return p.view(f, f.arrived), true
}

// Threshold returns how many bytes of the oldest frame must have arrived before
// the outgoing controller moves anything, so that a mover can sleep until then
// instead of polling. counter is the present reading of the progress counter if
// that frame is still arriving. It answers false if there is nothing to wait for.
// Of a policy that would say yes, then no, then yes again as bytes arrive it finds
// a yes near the counter. If it returns the counter, the next Next will not refuse,
// although more has arrived by the time the mover is ready.
func (p *Path) Threshold(counter int) (arrived int, ok bool) {
	if p.moving || p.used == 0 {
		return 0, false
	}
	f := &p.frames[p.oldest]
	low, high := max(f.arrived, min(counter, f.length), f.sent+1), f.length
	if p.promised = p.ask(f, low) > 0; p.promised {
		return low, true
	}
	if p.waiter != nil {
		return min(max(p.waiter.Wait(p.view(f, low)), low+1), high), true
	}
	for step := 64; low+step < f.length; step *= 2 {
		if p.ask(f, low+step) > 0 {
			high = low + step
			break
		}
		low += step
	}
	for low+1 < high {
		if mid := low + (high-low)/2; p.ask(f, mid) > 0 {
			high = mid
		} else {
			low = mid
		}
	}
	return high, true
}

// ask puts the question as it would be with arrived bytes, and holds the answer
// to the rules that Policy states.
func (p *Path) ask(f *frame, arrived int) int {
	available := arrived - f.sent
	if available <= 0 {
		return 0
	}
	n := p.policy.Next(p.view(f, arrived))
	if n > available || (n <= 0 && arrived == f.length) {
		return available
	}
	return max(n, 0)
}

// view is the oldest frame as it would be with arrived bytes. A frame that was
// started but of which nothing has come does not count as queued: a receiver arms
// buffers ahead of frames.
func (p *Path) view(f *frame, arrived int) View {
	queued := p.used - 1 + p.backlog
	if p.filling && p.used > 1 && p.frames[p.index(p.used-1)].arrived == 0 {
		queued--
	}
	return View{Length: f.length, Arrived: arrived, Sent: f.sent, Queued: queued}
}

// index returns the ring index of the n-th frame from the oldest.
func (p *Path) index(n int) int {
	i := p.oldest + n
	if i >= len(p.frames) {
		i -= len(p.frames)
	}
	return i
}

package wire

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// FilterFunc says which frames cross a port of NewFilter in place of one that is sent, or of one that has
// come: none, this one or others, of at most the wire's MTU. It is called without a frame, as if
// one were sent, each time that nothing has come. It is called by the goroutine that uses the
// port, the frame is its to keep and to change, and it must not trust it: it has not been checked.
type FilterFunc = func(sent bool, frame []byte) [][]byte

// filter is a wire on which a program does what networks and hostile peers do: it loses, doubles,
// holds back, changes and forges frames. Frames do not come in parts through it, are
// acknowledged on wires that lose nothing too, and have their bytes with them.
type filter struct {
	ends.Over
	parts engine.Progressive // the wire within, if frames may come in parts
	// sent is called with each frame that is sent, and without one each time that nothing has come. It calls send.
	sent func(frame []byte)
	came func(frame []byte) [][]byte // what comes in place of a frame; nil: all come as they are

	space []byte   // of frames that are reserved; nil: each has its own
	frame []byte   // reserved
	out   [][]byte // not sent yet for want of room
	in    [][]byte // not released yet, if there is came
}

func newFilter(of Port) (f filter) {
	f.Port = of
	f.parts, _ = of.(engine.Progressive)
	return f
}

// NewFilter has change say what crosses a wire, which the new port then owns: it
// does what networks and hostile peers do. It is for tests: it allocates memory for each frame.
func NewFilter(of Port, change FilterFunc) Port {
	f := newFilter(of)
	f.came = func(frame []byte) [][]byte { return change(false, frame) }
	f.sent = func(frame []byte) {
		for _, q := range change(true, frame) {
			f.send(q)
		}
	}
	return &f
}

func (f *filter) Reserve(n int) []byte {
	f.frame = nil
	switch {
	case uint(n) > uint(f.MTU()) || !f.push():
	case f.space != nil:
		f.frame = f.space[:n:n]
	default:
		f.frame = line.Aligned(n)
	}
	return f.frame
}

func (f *filter) Commit() {
	if p := f.frame; p != nil {
		f.frame = nil
		f.sent(p)
	}
}

// send sends a frame, as soon as there is room.
func (f *filter) send(frame []byte) {
	if len(f.out) > 0 || !f.try(frame) {
		f.out = append(f.out, slices.Clone(frame))
	}
}

func (f *filter) try(frame []byte) bool {
	p := f.Port.Reserve(len(frame))
	if p == nil {
		return false
	}
	copy(p, frame)
	f.Port.Commit()
	return true
}

// push sends what can be sent, and reports whether that was all.
func (f *filter) push() bool {
	for ; len(f.out) > 0; f.out = f.out[1:] {
		if !f.try(f.out[0]) {
			return false
		}
	}
	return true
}

func (f *filter) Flush() {
	f.push()
	f.Port.Flush()
}

func (f *filter) Receive() []byte {
	for len(f.in) == 0 {
		p := receiveWhole(f.Port, f.parts)
		if p == nil && f.frame == nil { // the engine is not about to send
			f.sent(nil)
			f.Flush()
		}
		if p == nil || f.came == nil {
			return p
		}
		own := line.Aligned(len(p))
		copy(own, p)
		f.Port.Release()
		for _, q := range f.came(own) {
			own := line.Aligned(len(q))
			copy(own, q)
			f.in = append(f.in, own)
		}
	}
	return f.in[0]
}

func (f *filter) Release() {
	if f.came == nil {
		f.Port.Release()
	} else {
		f.in = f.in[1:]
	}
}

func (f *filter) Drained() bool { return len(f.out) == 0 && f.Over.Drained() }

// receiveWhole is Receive of a port for who does not know of parts: a frame that comes in parts
// comes when all of it is there. parts is the port, if it is engine.Progressive.
func receiveWhole(port Port, parts engine.Progressive) []byte {
	p := port.Receive()
	if p == nil || parts == nil {
		return p
	}
	n, aborted := parts.Arrived()
	switch {
	case aborted:
		port.Release()
		return nil
	case n < len(p):
		return nil
	}
	return p
}

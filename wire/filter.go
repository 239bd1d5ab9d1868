package wire

import (
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// FilterFunc says which frames cross a port of NewFilter in place of one that is sent, or of one that has
// come: none, this one or others, of at most the wire's MTU. It is called without a frame, as if
// one were sent, each time that nothing has come. It is called by the goroutine that uses the
// port, the frame is its to keep and to change, and it must not trust it: it has not been checked.
type FilterFunc = func(sent bool, frame []byte) [][]byte

// filter is a wire on which a program does what networks and hostile peers do: it loses, doubles,
// holds back, changes and forges frames. Frames do not come in parts through it, are
// acknowledged on wires that lose nothing too, and have their bytes with them. It is for tests: it
// allocates memory for each frame.
type filter struct {
	inner
	parts  engine.Progressive // inner, if frames may come in parts
	change FilterFunc

	frame []byte   // reserved
	out   [][]byte // not sent yet for want of room
	in    [][]byte // not released yet
}

// NewFilter has change say what crosses a wire, which the new port then owns: it
// does what networks and hostile peers do. It is for tests.
func NewFilter(of Port, change FilterFunc) Port {
	f := &filter{inner: of, change: change}
	f.parts, _ = of.(engine.Progressive)
	return f
}

// Reserve is described at engine.Port.
func (f *filter) Reserve(n int) []byte {
	if f.frame = nil; f.push() && n <= f.MTU() {
		f.frame = line.Aligned(n)
	}
	return f.frame
}

// Commit is described at engine.Port.
func (f *filter) Commit() {
	if f.frame != nil {
		f.out = append(f.out, f.change(true, f.frame)...)
		f.frame = nil
		f.push()
	}
}

// push sends what can be sent, and reports whether that was all.
func (f *filter) push() bool {
	for ; len(f.out) > 0; f.out = f.out[1:] {
		p := f.inner.Reserve(len(f.out[0]))
		if p == nil {
			return false
		}
		copy(p, f.out[0])
		f.inner.Commit()
	}
	return true
}

// Flush is described at engine.Port.
func (f *filter) Flush() {
	f.push()
	f.inner.Flush()
}

// Receive is described at engine.Port.
func (f *filter) Receive() []byte {
	for len(f.in) == 0 {
		p := receiveWhole(f.inner, f.parts)
		if p == nil {
			f.idle()
			return nil
		}
		own := line.Aligned(len(p))
		copy(own, p)
		f.inner.Release()
		for _, q := range f.change(false, own) {
			own := line.Aligned(len(q))
			copy(own, q)
			f.in = append(f.in, own)
		}
	}
	return f.in[0]
}

// idle sends what the filter has to send by itself, unless the engine is about to send.
func (f *filter) idle() {
	if f.frame != nil {
		return
	}
	f.out = append(f.out, f.change(true, nil)...)
	if len(f.out) > 0 {
		f.Flush()
	}
}

// Release is described at engine.Port.
func (f *filter) Release() { f.in = f.in[1:] }

// Claim is described at Claimer.
func (f *filter) Claim(mac datasheet.MAC) error { return claim(f.inner, mac) }

// Drained is described at Drainer.
func (f *filter) Drained() bool { return len(f.out) == 0 && drained(f.inner) }

// Package wiretest sends and receives frames at the ends of wires.
package wiretest

import (
	"runtime"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/engine"
)

// Send puts one frame on the wire. It reports whether there was room.
func Send(p engine.Port, frame []byte) bool {
	b := p.Reserve(len(frame))
	if b == nil {
		return false
	}
	copy(b, frame)
	p.Commit()
	p.Flush()
	return true
}

// Receive returns a copy of the next frame, nil if none comes within waittest.Longest.
func Receive(p engine.Port) []byte {
	for end := time.Now().Add(waittest.Longest); time.Now().Before(end); runtime.Gosched() {
		if f := p.Receive(); f != nil {
			defer p.Release()
			return append([]byte{}, f...)
		}
	}
	return nil
}

// Carry sends a frame from a to b, and returns what has come.
func Carry(a, b engine.Port, frame []byte) []byte {
	Send(a, frame)
	return Receive(b)
}

// Await waits for a frame, which stays until Release.
func Await(t testing.TB, p engine.Port) (f []byte) {
	t.Helper()
	waittest.Until(t, "a frame", func() bool { f = p.Receive(); return f != nil })
	return f
}

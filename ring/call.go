package ring

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Reply is the answer to a call.
type Reply struct {
	// Length counts the bytes of payload in the call's frame.
	Length int

	size uint8
	data [MaxRequest]byte
}

// MakeReply returns a reply of up to MaxRequest bytes, and length bytes of payload, for stand-ins of a Caller.
func MakeReply(b []byte, length int) Reply {
	r := Reply{Length: length}
	r.size = uint8(copy(r.data[:], b))
	return r
}

// Bytes returns the reply beside its payload: 0 to MaxRequest bytes.
func (r *Reply) Bytes() []byte { return r.data[:r.size] }

// call is one place for a call of a Caller.
type call struct {
	// word holds the call's tag and, above it, the call's state. A change of state names the
	// tag, so it cannot hit a later call in the same place.
	word   atomic.Uint64
	signal *driver.Signal // set when the call has ended
	end    atomic.Int64   // of its time, by Unix' nanoseconds; 0 if it has none
	timed  atomic.Bool    // fire will be called
	into   Frame
	reply  Reply
	err    error
}

// start begins with the time of a call, which ends at k.end. A call whose time is over is signalled. There is no timer for each, which would
// wake a thread of the runtime: the last one goes on where it comes too early.
func (k *call) start(d time.Duration) {
	k.end.Store(time.Now().Add(d).UnixNano())
	if k.timed.CompareAndSwap(false, true) {
		time.AfterFunc(d, k.fire)
	}
}

// fire is called by the timer.
func (k *call) fire() {
	k.timed.Store(false)
	if k.late() != nil {
		k.signal.Set()
	} else if end := k.end.Load(); end != 0 && k.timed.CompareAndSwap(false, true) {
		time.AfterFunc(time.Until(time.Unix(0, end)), k.fire)
	}
}

// late is the error of a call whose time is over.
func (k *call) late() error {
	if end := k.end.Load(); end != 0 && time.Now().UnixNano() >= end {
		return context.DeadlineExceeded
	}
	return nil
}

// States of a call.
const (
	idle uint64 = iota
	active
	ending // one goroutine is writing the outcome
	ended  // the outcome is there
)

const stateShift = 32

func (k *call) state() uint64 { return k.word.Load() >> stateShift }

// claim gives this goroutine the right to end the call of tag. It returns false if the call
// has ended, or another goroutine is ending it.
func (k *call) claim(tag uint32) bool {
	return k.word.CompareAndSwap(active<<stateShift|uint64(tag), ending<<stateShift|uint64(tag))
}

// set sets the state of the call of tag.
func (k *call) set(tag uint32, state uint64) { k.word.Store(state<<stateShift | uint64(tag)) }

// end ends a call that is claimed, and publishes the outcome.
func (c *Caller) end(k *call, tag uint32, err error) {
	if k.into.Length > 0 {
		// No later message lands there. A call without a reply needs EndPlace, for the
		// message that may be on its way.
		_ = c.r.d.SetPlace(tag, datasheet.DataSegment{})
	}
	k.err = err
	k.set(tag, ended)
	k.signal.Set()
}

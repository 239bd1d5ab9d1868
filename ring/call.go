package ring

import (
	"sync/atomic"

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

// Bytes returns the reply beside its payload: 0 to MaxRequest bytes.
func (r *Reply) Bytes() []byte { return r.data[:r.size] }

// call is one place for a call of a Caller.
type call struct {
	// word holds the call's tag and, above it, the call's state. A change of state names the
	// tag, so it cannot hit a later call in the same place.
	word atomic.Uint64
	// signal is set when the call has ended. Only Call waits for it.
	signal   *driver.Signal
	done     func(Reply, error) // of Start
	deadline atomic.Int64       // of Start, in nanoseconds of Unix time; 0 of Call
	into     Frame
	reply    Reply
	err      error
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

// end ends a call that is claimed. It publishes the outcome, or passes it to the function of
// Start.
func (c *Caller) end(k *call, tag uint32, err error) {
	if k.into.Length > 0 {
		// No later message lands there. A call without a reply needs EndPlace, for the
		// message that may be on its way.
		_ = c.r.d.SetPlace(tag, datasheet.DataSegment{})
	}
	k.err = err
	if done := k.done; done != nil {
		reply := k.reply
		c.starts.Add(-1)
		c.give(k, tag)
		done(reply, err)
		return
	}
	k.set(tag, ended)
	k.signal.Set()
}

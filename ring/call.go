package ring

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/driver"
)

// Reply is the answer to a call.
type Reply struct {
	// Length is how many bytes of payload have landed in the frame that the call named.
	Length int

	size uint8
	data [MaxRequest]byte
}

// Bytes is the reply beside its payload: 0 to MaxRequest bytes, as many as the server gave.
func (r *Reply) Bytes() []byte { return r.data[:r.size] }

// call is one of the calls of a Caller that may be under way.
type call struct {
	// word is the tag of the call, and above it how far it is, so that whoever changes that
	// changes it of this call, and not of a later one.
	word atomic.Uint64
	// signal is set when the call has ended and somebody may wait for it.
	signal   *driver.Signal
	done     func(Reply, error) // of Start
	deadline atomic.Int64       // of Start, in nanoseconds of Unix time; 0 of Call
	into     Frame
	reply    Reply
	err      error
}

// How far a call is.
const (
	idle uint64 = iota
	active
	ending // somebody is writing its outcome
	ended  // there it is
)

const stateShift = 32

func (k *call) tag() uint32   { return uint32(k.word.Load()) }
func (k *call) state() uint64 { return k.word.Load() >> stateShift }

// claim makes the caller the one who ends the call of tag. It returns false if that has
// ended, or is being ended.
func (k *call) claim(tag uint32) bool {
	return k.word.CompareAndSwap(active<<stateShift|uint64(tag), ending<<stateShift|uint64(tag))
}

// set notes how far the call of tag is.
func (k *call) set(tag uint32, state uint64) { k.word.Store(state<<stateShift | uint64(tag)) }

// end is called by whoever has claimed the call: it publishes the outcome, or hands it to
// the function of Start.
func (c *Caller) end(k *call, tag uint32, err error) {
	if k.into.Length > 0 {
		// Nobody is to place anything there any more. A message that is on its way needs
		// EndPlace, which is for those whose reply has not come.
		_ = c.r.d.ClearPlace(tag)
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

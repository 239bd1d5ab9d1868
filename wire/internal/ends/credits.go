package ends

import "sync/atomic"

// creditEndpoints is the number of endpoints of one end that have credit words (SPEC.md 8.12).
const creditEndpoints = 4096

// Credits are the credit words of one direction, two for each endpoint of the end that
// receives: what it gives, and at which credit its peer waits. Each is a key in bits 63:32
// and a message number in bits 31:0. Both ends may write anything at any time.
type Credits []uint64

// CreditWords is the number of words in a direction.
const CreditWords = 2 * creditEndpoints

// CreditEnd is the part of engine.Lossless that is about credit: the words of both directions,
// as one end sees them.
type CreditEnd struct{ Receives, Sends Credits }

// GiveCredit says that an endpoint of this end takes the messages below number
// credit. If the peer waits for more, asked is the credit at which it does. ok is false if the
// endpoint has no words.
func (e *CreditEnd) GiveCredit(endpoint, key, credit uint32) (asked uint32, asks, ok bool) {
	c := e.Receives
	if int64(endpoint) >= int64(len(c)/2) {
		return 0, false, false
	}
	// The accesses of sync/atomic keep their order, the store before the load: either this
	// end sees that the peer waits, or the peer sees the credit.
	atomic.StoreUint64(&c[2*endpoint], uint64(key)<<32|uint64(credit))
	w := atomic.LoadUint64(&c[2*endpoint+1])
	return uint32(w), uint32(w>>32) == key, true
}

// TakeCredit returns the credit that an endpoint of the other end
// gives, if that is beyond known. Else it returns known, and GiveCredit tells the peer that this end waits.
func (e *CreditEnd) TakeCredit(endpoint, key, known uint32) uint32 {
	c := e.Sends
	credit := c.given(endpoint, key, known)
	if credit == known && int64(endpoint) < int64(len(c)/2) {
		atomic.StoreUint64(&c[2*endpoint+1], uint64(key)<<32|uint64(known))
		credit = c.given(endpoint, key, known)
	}
	return credit
}

// given is the credit of an endpoint with a key if that is beyond known, else known.
func (c Credits) given(endpoint, key, known uint32) uint32 {
	if int64(endpoint) < int64(len(c)/2) {
		if w := atomic.LoadUint64(&c[2*endpoint]); uint32(w>>32) == key && int32(uint32(w)-known) > 0 {
			return uint32(w)
		}
	}
	return known
}

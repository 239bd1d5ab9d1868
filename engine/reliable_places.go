package engine

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// place is where the payload of a data frame belongs: from begin to end in a
// message, in bytes.
type place struct {
	message, begin, end uint32
}

func placeOf(h *descriptors.Header) place {
	return place{h.Message, h.Offset, h.Offset + uint32(h.Length)}
}

// ends reports whether p lies before q.
func (p place) ends(q place) bool {
	return int32(q.message-p.message) > 0 || p.message == q.message && p.end <= q.begin
}

// inPlace reports whether a data frame, whose PSN is ahead of the one expected next,
// lies behind the frames before it and before those behind it that have arrived:
// messages are cut into frames in order. So no place of a message is taken twice, and
// a message of which as many bytes have arrived as it is long is whole.
func (r *reliable) inPlace(h *descriptors.Header, ahead uint32) bool {
	at, before := placeOf(h), r.passed
	if b := r.have << 1 & (1<<ahead - 1); b != 0 {
		before = r.places[(r.expect-1+uint32(bits.Len64(b)))%windowFrames]
	}
	if !before.ends(at) {
		return false
	}
	behind := r.have >> ahead
	return behind == 0 || at.ends(r.places[(h.PSN+1+uint32(bits.TrailingZeros64(behind)))%windowFrames])
}

package vi

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// place is the part of a message that the payload of a data frame fills: from begin to end, in
// bytes.
type place struct {
	message, begin, end uint32
}

// placeOf returns the frame's place in its message. A frame without data has an empty place, at
// the beginning of the next message.
func placeOf(h *datasheet.Header) place {
	if h.Type != datasheet.FrameData && h.Flags&datasheet.FrameImmediate == 0 {
		return place{h.Message, 0, 0}
	}
	return place{h.Message, h.Offset, h.Offset + uint32(h.Length)}
}

// ends reports whether p lies before q.
func (p place) ends(q place) bool {
	return int32(q.message-p.message) > 0 || p.message == q.message && p.end <= q.begin
}

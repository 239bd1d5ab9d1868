package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// steer asks about a frame of ours that has arrived whole, of which in.header is a
// copy. It returns the payload, and false if the frame is dropped.
func (r *receiver) steer(frame, payload []byte) ([]byte, bool) {
	h := &r.header
	frame = frame[:headerSize(h.Type)+len(payload)]
	built := h.DestinationEndpoint
	to := built
	if r.asks(HookFilterReceive) {
		var ok bool
		if frame, to, ok = r.filterReceive(frame, built); !ok {
			return nil, false
		}
		if r.writes.Has(HookFilterReceive) {
			if *h = *datasheet.HeaderAt(frame); !wellFormed(h, len(frame)) || h.Flags&datasheet.FrameReference != 0 || !r.extend(frame) {
				return nil, false
			}
			frame = frame[:headerSize(h.Type)+int(h.Length)]
		}
		if to != built { // the endpoint of its connection is the only one that can take it
			r.processor.Misled(HookFilterReceive)
		}
	}
	if r.asks(HookDemultiplex) {
		var entry uint32
		to, entry = r.askDemultiplex(frame, built)
		if to != built {
			r.processor.Misled(HookDemultiplex)
		}
		r.choose(r.endpoint(built), entry)
	}
	return frame[headerSize(h.Type):], true
}

// choose has the payload of the frame that is being received placed where an entry
// of the endpoint's payload table says.
func (r *receiver) choose(ep *endpoint, entry uint32) {
	switch {
	case entry == DefaultQueue:
	case ep == nil || entry >= uint32(len(ep.payloads)) || ep.payloads[entry].handle == 0:
		r.processor.Misled(HookDemultiplex)
	default:
		r.entry = &ep.payloads[entry]
	}
}

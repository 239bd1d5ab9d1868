package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// steer asks about a frame of ours that has arrived whole, of which in.header is a
// copy. It returns the payload, and false if the frame is dropped.
func (r *Receiver) steer(frame, payload []byte) ([]byte, bool) {
	h := &r.Header
	frame = frame[:headerSize(h.Type)+len(payload)]
	built := h.DestinationEndpoint
	to := built
	if r.Asks(HookFilterReceive) {
		var ok bool
		if frame, to, ok = r.FilterReceive(frame, built); !ok {
			return nil, false
		}
		if r.Writes.Has(HookFilterReceive) {
			if *h = *datasheet.HeaderAt(frame); !wellFormed(h, len(frame)) || h.Flags&datasheet.FrameReference != 0 || !r.extend(frame) {
				return nil, false
			}
			frame = frame[:headerSize(h.Type)+int(h.Length)]
		}
		if to != built { // the endpoint of its connection is the only one that can take it
			r.Processor.Misled(HookFilterReceive)
		}
	}
	if r.Asks(HookDemultiplex) {
		var entry uint32
		to, entry = r.AskDemultiplex(frame, built)
		if to != built {
			r.Processor.Misled(HookDemultiplex)
		}
		r.Choose(r.Endpoint(built), entry)
	}
	return frame[headerSize(h.Type):], true
}

// Choose has the payload of the frame that is being received placed where an entry
// of the endpoint's payload table says.
func (r *Receiver) Choose(ep *Endpoint, entry uint32) {
	switch {
	case entry == DefaultQueue:
	case ep == nil || entry >= uint32(len(ep.Payloads)) || ep.Payloads[entry].Handle == 0:
		r.Processor.Misled(HookDemultiplex)
	default:
		r.Entry = &ep.Payloads[entry]
	}
}

package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// steer asks about a frame of ours that has arrived whole, of which in.header is a
// copy. It returns the payload, and false if the frame is dropped.
func (e *Engine) steer(frame, payload []byte) ([]byte, bool) {
	h := &e.in.header
	frame = frame[:descriptors.HeaderSize+len(payload)]
	built := h.DestinationEndpoint
	to := built
	if e.asks(HookFilterReceive) {
		var ok bool
		if frame, to, ok = e.filterReceive(frame, built); !ok {
			return nil, false
		}
		if e.writes.Has(HookFilterReceive) {
			if *h = *descriptors.HeaderAt(frame); !wellFormed(h, len(frame)) {
				return nil, false
			}
			frame = frame[:descriptors.HeaderSize+int(h.Length)]
		}
		if to != built { // the endpoint of its connection is the only one that can take it
			e.processor.Misled(HookFilterReceive)
		}
	}
	if e.asks(HookDemultiplex) {
		var entry uint32
		to, entry = e.askDemultiplex(frame, built)
		if to != built {
			e.processor.Misled(HookDemultiplex)
		}
		e.choose(e.endpoint(built), entry)
	}
	return frame[descriptors.HeaderSize:], true
}

// filterReceive asks what becomes of a frame that is for the endpoint number. It
// returns the frame, which the program may have changed, whom it is for now, and
// false if it is dropped.
func (e *Engine) filterReceive(frame []byte, number uint32) ([]byte, uint32, bool) {
	shown := frame
	if e.writes.Has(HookFilterReceive) {
		// Not on the wire, which cannot always be written.
		shown = e.copies[Receive]
		shown = shown[:copy(shown, frame)]
	}
	a, queue, ok := e.processor.Filter(Receive, shown, number)
	switch {
	case !ok:
		e.hooks &^= HookFilterReceive.Set()
		return frame, number, true
	case a == FrameDrop:
		return nil, number, false
	case a == FrameRedirect:
		return shown, queue, true
	}
	return shown, number, true
}

// askDemultiplex asks which endpoint a frame is for, and which entry of its
// payload table.
func (e *Engine) askDemultiplex(frame []byte, number uint32) (to, entry uint32) {
	to, entry, ok := e.processor.Demultiplex(frame, number)
	if !ok {
		e.hooks &^= HookDemultiplex.Set()
		return number, DefaultQueue
	}
	if to == DefaultQueue {
		to = number
	}
	return to, entry
}

// choose has the payload of the frame that is being received placed where an entry
// of the endpoint's payload table says.
func (e *Engine) choose(ep *endpoint, entry uint32) {
	switch {
	case entry == DefaultQueue:
	case ep == nil || entry >= uint32(len(ep.payloads)) || ep.payloads[entry].handle == 0:
		e.processor.Misled(HookDemultiplex)
	default:
		e.in.entry = &ep.payloads[entry]
	}
}

// setPayload writes an entry of an endpoint's payload table.
func (e *Engine) setPayload(b *descriptors.SetPayloadBody) refusal {
	ep := e.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{descriptors.ResultInvalidParameter, fieldTableEndpoint}
	case b.Entry >= descriptors.PayloadEntries:
		return refusal{descriptors.ResultInvalidParameter, fieldTableEntry}
	case b.Handle == 0 && b.Length != 0 || b.Handle != 0 && b.Length == 0:
		return refusal{descriptors.ResultInvalidParameter, fieldTableLength}
	}
	if b.Handle != 0 {
		if r, _ := e.regions.reach(b.Handle, ep.ptag, b.Address, uint64(b.Length), true); r == nil {
			return refusal{descriptors.ResultInvalidParameter, fieldTableHandle}
		}
		if ep.payloads == nil {
			ep.payloads = make([]segment, descriptors.PayloadEntries)
		}
	}
	if ep.payloads != nil {
		ep.payloads[b.Entry] = segment{b.Address, b.Handle, b.Length}
	}
	return refusal{}
}

package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// inbox has the NIC's buffers for frames that arrive, where transfers take their time: netRcv takes the newest frame
// off the wire while hostRcv moves the oldest one to host memory (patent, figure 5).
// Frames without payload have buffers of their own, as many, and keep their place in the order.
type inbox struct {
	*Core
	frames       []arriving // ring, in the order of arrival
	first, count int
	payloads     [][]byte // memory of frames with payload, by the mover's buffer
	controls     [][]byte // of the others, used in turns
	control      int      // the next of them
	waiting      int      // of them in frames
	header       []byte   // of a frame that is not in a buffer yet
	wire         []byte   // the frame that is arriving; nil for none
	admitted     bool     // it is the newest of frames
	grew         time.Duration
	came         time.Duration // when the first of it was seen
}

// arriving is a frame in a buffer.
type arriving struct {
	buf     []byte
	seen    int  // bytes of it that are here
	at      int  // where the payload starts
	payload int  // its bytes; zero of a frame that takes no part in DMA
	aborted bool // no more of it comes
	left    bool // hostRcv has moved all of it
}

func newInbox(c *Core, buffers int) *inbox {
	x := &inbox{Core: c, frames: make([]arriving, 2*buffers), payloads: make([][]byte, buffers), controls: make([][]byte, buffers),
		header: Aligned(datasheet.HeaderSize)}
	for i := range x.controls {
		x.controls[i] = Aligned(int(c.mtu))
	}
	return x
}

// oldest returns the frame that is processed next, nil if there is none.
func (x *inbox) oldest() *arriving {
	if x.count == 0 {
		return nil
	}
	return &x.frames[x.first]
}

func (x *inbox) newest() *arriving { return &x.frames[(x.first+x.count-1)%len(x.frames)] }

// clear empties the buffers. What is still to come of a frame on the wire is skipped.
func (x *inbox) clear() {
	if x.wire != nil {
		x.Port.Release()
	}
	clear(x.frames)
	x.first, x.count, x.waiting, x.wire, x.admitted = 0, 0, 0, nil, false
	x.Bus.release(Receive)
}

// fill is netRcv: it takes what has arrived off the wire, as long as there are buffers. It reports whether
// there was anything.
func (x *inbox) fill() (any bool) {
	for {
		if x.wire == nil {
			if !x.DMA.Movers[Receive].CanStart() {
				return any // the wire holds the next frame back
			}
			if x.wire, x.admitted = x.Port.Receive(), false; x.wire == nil {
				return any
			}
			x.grew, x.came = x.Present(), x.Clock.Read()
		}
		n, aborted := len(x.wire), false
		if x.progressive != nil {
			n, aborted = x.progressive.Arrived()
		}
		if aborted || n < 0 || n > len(x.wire) || x.admitted && n < x.newest().seen {
			x.breakOff()
			any = true
			continue
		}
		fresh := !x.admitted
		if fresh {
			if n < min(datasheet.HeaderSize, len(x.wire)) {
				if x.Present()-x.grew <= x.Timing.Dead {
					return any
				}
				x.breakOff()
				continue
			}
			if !x.admit() {
				return any
			}
		}
		f := x.newest()
		switch {
		case n > f.seen || fresh: // a short raw frame has come whole with its header
			copy(f.buf[f.seen:n], x.wire[f.seen:n])
			f.seen, x.grew, any = n, x.Present(), true
			if f.payload > 0 {
				_ = x.DMA.Movers[Receive].Arrived(min(max(n-f.at, 0), f.payload)) // never less; once all is here it is no news
			}
		case n < len(f.buf) && x.Present()-x.grew > x.Timing.Dead:
			x.breakOff()
			continue
		}
		if n < len(f.buf) {
			return any
		}
		x.wire = nil
		x.Port.Release()
	}
}

// admit gives the frame on the wire a buffer. It returns false if there is none now.
func (x *inbox) admit() bool {
	rx := x.DMA.Movers[Receive]
	if len(x.wire) > int(x.mtu) {
		x.wire = x.wire[:x.mtu] // it fails as one that was cut
	}
	// The header is copied once and judged after: the peer may be able to write the memory of the wire.
	n := copy(x.header, x.wire)
	f := arriving{seen: n}
	queued := 0
	if h := datasheet.HeaderAt(x.header[:n]); IsRaw(x.header[:n]) {
		f.payload = len(x.wire)
	} else if h != nil && wellFormed(h, len(x.wire)) && h.Flags&datasheet.FrameReference == 0 &&
		(h.Type == datasheet.FrameData || h.Type.RDMA()) && h.Length > 0 {
		f.at, f.payload = headerSize(h.Type), int(h.Length)
		queued = framesIn(h.Extent-h.Offset-uint32(h.Length), uint32(h.Length))
	}
	var memory *[]byte
	if f.payload > 0 {
		if !rx.CanStart() {
			return false
		}
		memory = &x.payloads[rx.Buffer()]
		_ = rx.Start(f.payload, queued) // it has been asked
		if f.at > 0 {
			rx.Ahead(f.at, int64(x.came)*psPerNS)
		}
	} else {
		if x.waiting == len(x.controls) {
			return false
		}
		memory = &x.controls[x.control]
		x.control = (x.control + 1) % len(x.controls)
		x.waiting++
	}
	f.buf = (*memory)[:len(x.wire)]
	copy(f.buf, x.header[:n])
	x.frames[(x.first+x.count)%len(x.frames)] = f
	x.count++
	x.admitted = true
	return true
}

// breakOff gives up the frame on the wire: the rest of it does not come.
func (x *inbox) breakOff() {
	if x.admitted {
		f := x.newest()
		if f.aborted = true; f.payload > 0 {
			x.DMA.Movers[Receive].Void()
		}
	} else {
		x.Count(datasheet.CounterFramesDropped, 1)
	}
	x.wire, x.admitted = nil, false
	x.Port.Release()
}

// pop frees the buffer of the oldest frame.
func (x *inbox) pop() {
	f := x.oldest()
	switch {
	case f.payload == 0:
		x.waiting--
	case !f.left:
		x.DMA.Movers[Receive].Drop()
	}
	*f = arriving{}
	x.first, x.count = (x.first+1)%len(x.frames), x.count-1
}

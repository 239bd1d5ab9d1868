package pipeline

import "fmt"

// Shape says what a device has.
type Shape struct {
	Sources int // incoming controllers, 1 to MaxBuffers
	Buffers int // of each source, in frames: 1 to MaxBuffers
	// Packet delimits fragments: what leaves of a frame are packets of at most so many
	// bytes, 1 to MaxFrame, and the sink is free again after each. 0 = a frame is one packet.
	Packet int
}

// Device is a data movement device: sources that fill buffers, and a sink that empties them.
// A NIC's direction has one source (NewDevice), the output of a switch several (NewPaths).
//
// Each source is a Path, whose frames leave in order. Once the sink moves something of a frame
// it stays with its path until the packet has ended, also while its sender is stalled: so
// wormhole routing holds a path. Then the next source has its turn.
//
// A Device holds no clock and moves nothing. Its owner asks, for each controller
// that is idle, what it could do, carries that out, and reports progress. It
// allocates nothing after it was made, and is used by one goroutine.
type Device struct {
	Path // of the first source; all of a device with one source
	more []Path

	// The sink of a device with several sources.
	held   bool   // holder has it
	holder int    // the source whose packet it moves
	frame  uint64 // of the holder
	turn   int    // the source that is asked first
	serves bool   // a transfer is under way
	ends   bool   // the packet ends with it
}

// NewDevice makes a device with one source, and 1 to MaxBuffers buffers.
func NewDevice(p Policy, buffers int) (*Device, error) {
	path, err := newPath(p, Shape{Buffers: buffers})
	if err != nil {
		return nil, err
	}
	return &Device{Path: path}, nil
}

// NewPaths makes a device of any shape. policy makes one for each source, since a policy
// that learns does so for one path. Errors are *ParameterError.
func NewPaths(policy func() Policy, s Shape) (*Device, error) {
	switch {
	case s.Sources < 1 || s.Sources > MaxBuffers:
		return nil, outOfRange("device", "sources", s.Sources, fmt.Sprintf("1 to %d", MaxBuffers))
	case s.Packet < 0 || s.Packet > MaxFrame:
		return nil, outOfRange("device", "packet", s.Packet, fmt.Sprintf("0 to %d bytes", MaxFrame))
	}
	d := &Device{more: make([]Path, s.Sources-1)}
	for i := range s.Sources {
		p, err := newPath(policy(), s)
		if err != nil {
			return nil, err
		}
		p.shared = s.Sources > 1
		*d.Source(i) = p
	}
	return d, nil
}

// Source returns the path of a source, counted from 0; nil if there is no such source.
func (d *Device) Source(i int) *Path {
	switch {
	case i == 0:
		return &d.Path
	case i > 0 && i <= len(d.more):
		return &d.more[i-1]
	}
	return nil
}

// Serve asks what the sink may move now, and of which source. If it answers with a
// transfer, the sink is busy until Served. It answers false while the sink is busy, and while
// the path that holds it has nothing to move.
func (d *Device) Serve() (source int, t Transfer, ok bool) {
	if d.serves {
		return 0, t, false
	}
	if source, ok = d.Holder(); ok {
		t, ok = d.Source(source).transfer()
	} else {
		sources := 1 + len(d.more)
		for range sources {
			source = d.turn
			d.turn = (d.turn + 1) % sources
			if t, ok = d.Source(source).transfer(); ok {
				break
			}
		}
	}
	if ok {
		d.held, d.holder, d.frame, d.serves, d.ends = true, source, t.Frame, true, t.Ends
	}
	return source, t, ok
}

// Served reports that the sink's transfer has ended. It answers ErrProgress if none was
// under way.
func (d *Device) Served() error {
	if !d.serves {
		return ErrProgress
	}
	d.serves = false
	d.Source(d.holder).done()
	d.held = !d.ends
	return nil
}

// Holder returns the source whose path holds the sink, and false if it is free. A
// frame that was given up holds nothing once all of it has left.
func (d *Device) Holder() (source int, ok bool) {
	if p := d.Source(d.holder); d.held && (p.used == 0 || p.frames[p.oldest].number != d.frame) {
		d.held = false
	}
	return d.holder, d.held
}

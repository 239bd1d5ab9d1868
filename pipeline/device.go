package pipeline

import "fmt"

// Shape says what a device has.
type Shape struct {
	Sources int // incoming controllers, 1 to MaxBuffers
	Sinks   int // outgoing controllers, 1 to MaxBuffers
	Buffers int // of each source, in frames: 1 to MaxBuffers
	// Packet delimits fragments: what leaves of a frame are packets of at most so many
	// bytes, 1 to MaxFrame, and a sink is free again after each. 0 = a frame is one packet.
	Packet int
}

// Device is a data movement device: sources that fill buffers, and sinks that empty them.
// A NIC's direction has one of each (NewDevice). A switch has as many sources as sinks.
// A CPU that copies has memory and the I/O bus on both sides (NewPaths).
//
// Each source is a Path, whose frames leave in order, each by the sink that it was started
// for. A sink that moves something of a frame stays with its path until the packet has
// ended, also while its sender is stalled: so wormhole routing holds a path. Then the next
// source has its turn. A frame whose sink is taken waits, and so do those behind it.
//
// A Device holds no clock and moves nothing. Its owner asks, for each controller
// that is idle, what it could do, carries that out, and reports progress. It
// allocates nothing after it was made, and is used by one goroutine.
type Device struct {
	Path  // of the first source; all of a device with one source and one sink
	more  []Path
	sinks []sink
}

// sink is an outgoing controller.
type sink struct {
	holder int    // the source whose packet it moves, -1 for none
	frame  uint64 // of the holder
	turn   int    // the source that is asked first
	moving bool
	ends   bool // the packet ends with the transfer
}

// NewDevice makes a device with one source and one sink, and 1 to MaxBuffers buffers.
func NewDevice(p Policy, buffers int) (*Device, error) {
	path, err := newPath(p, Shape{Sinks: 1, Buffers: buffers})
	if err != nil {
		return nil, err
	}
	return &Device{Path: path}, nil
}

// NewPaths makes a device of any shape. policy makes one for each source, since a policy
// that learns does so for one path. Errors are *ParameterError.
func NewPaths(policy func() Policy, s Shape) (*Device, error) {
	paths := fmt.Sprintf("1 to %d", MaxBuffers)
	switch {
	case s.Sources < 1 || s.Sources > MaxBuffers:
		return nil, outOfRange("device", "sources", s.Sources, paths)
	case s.Sinks < 1 || s.Sinks > MaxBuffers:
		return nil, outOfRange("device", "sinks", s.Sinks, paths)
	case s.Packet < 0 || s.Packet > MaxFrame:
		return nil, outOfRange("device", "packet", s.Packet, fmt.Sprintf("0 to %d bytes", MaxFrame))
	case policy == nil:
		policy = func() Policy { return nil }
	}
	d := &Device{more: make([]Path, s.Sources-1), sinks: make([]sink, s.Sinks)}
	for i := range s.Sources {
		p, err := newPath(policy(), s)
		if err != nil {
			return nil, err
		}
		p.shared = s.Sources > 1 || s.Sinks > 1
		*d.Source(i) = p
	}
	for i := range d.sinks {
		d.sinks[i].holder = -1
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

// Serve asks what a sink may move now, and of which source. If it answers with a
// transfer, the sink is busy until Served. It answers false while the sink is busy, while
// the path that holds it has nothing to move, and if there is no such sink. A device of
// NewDevice has Next instead.
func (d *Device) Serve(to int) (source int, t Transfer, ok bool) {
	if uint(to) >= uint(len(d.sinks)) || d.sinks[to].moving {
		return 0, t, false
	}
	s := &d.sinks[to]
	if source, ok = d.Holder(to); ok {
		t, ok = d.Source(source).transfer()
	} else {
		sources := 1 + len(d.more)
		for range sources {
			source = s.turn
			s.turn = (s.turn + 1) % sources
			if p := d.Source(source); p.used > 0 && p.frames[p.oldest].sink == to {
				if t, ok = p.transfer(); ok {
					break
				}
			}
		}
	}
	if ok {
		s.holder, s.frame, s.moving, s.ends = source, t.Frame, true, t.Ends
	}
	return source, t, ok
}

// Served reports that a sink's transfer has ended. It answers ErrProgress if none was
// under way.
func (d *Device) Served(to int) error {
	if uint(to) >= uint(len(d.sinks)) || !d.sinks[to].moving {
		return ErrProgress
	}
	s := &d.sinks[to]
	s.moving = false
	d.Source(s.holder).done()
	if s.ends {
		s.holder = -1
	}
	return nil
}

// Holder returns the source whose path a sink holds, and false if the sink is free. A
// frame that was given up holds nothing once all of it has left.
func (d *Device) Holder(to int) (source int, ok bool) {
	if uint(to) >= uint(len(d.sinks)) || d.sinks[to].holder < 0 {
		return 0, false
	}
	s := &d.sinks[to]
	if p := d.Source(s.holder); p.used == 0 || p.frames[p.oldest].number != s.frame {
		s.holder = -1
		return 0, false
	}
	return s.holder, true
}

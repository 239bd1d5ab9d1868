// Package memory carries the transfers of package pipeline out by copying: the
// incoming controller fetches a frame into NIC memory in bursts, the outgoing one
// delivers what its policy allows. Stepped by its owner, it starts no goroutine,
// holds no lock and allocates nothing after New.
package memory

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/pipeline"
)

// Source is where frames come from.
type Source interface {
	// Fetch copies bytes of a frame, from offset on, into p and returns how many:
	// fewer than len(p), or 0, if no more are there yet.
	Fetch(frame uint64, offset int, p []byte) int
}

// Sink is where frames go.
type Sink interface {
	// Deliver takes bytes of a frame that begin at offset; last says that the frame
	// ends with them. It takes all of p or, if it has no room now, returns false.
	Deliver(frame uint64, offset int, p []byte, last bool) bool
}

// Clock tells the time in picoseconds from any origin. Policies that learn need it.
type Clock func() int64

// Config of a Mover.
type Config struct {
	Policy  pipeline.Policy
	Buffers int    // frames of NIC memory, 1 to pipeline.MaxBuffers
	Size    int    // bytes of a buffer: the longest frame, 1 to pipeline.MaxFrame
	Burst   int    // bytes fetched in one step, at least 1; what progress advances by
	Memory  []byte // NIC memory, at least Buffers*Size bytes; nil = allocated by New
	Source  Source
	Sink    Sink
	Clock   Clock // nil = the policy is told no costs
}

// Mover is one direction of a NIC that moves real bytes.
type Mover struct {
	device *pipeline.Device
	memory []byte
	size   int
	burst  int
	source Source
	sink   Sink
	clock  Clock
	learns pipeline.Observer

	filling int    // buffer being filled
	number  uint64 // its frame
	length  int
	arrived int
	began   int64 // when its first byte was asked for

	out     pipeline.Transfer
	pending bool // out has been decided and the sink has not taken it
	decided int64
}

// New makes a mover. Errors are *pipeline.ParameterError.
func New(c Config) (*Mover, error) {
	bad := func(name string, value any, allowed string) error {
		return &pipeline.ParameterError{Policy: "memory mover", Name: name, Value: fmt.Sprint(value), Allowed: allowed, Err: pipeline.ErrParameter}
	}
	device, err := pipeline.NewDevice(c.Policy, c.Buffers)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Size < 1 || c.Size > pipeline.MaxFrame:
		return nil, bad("buffer size", c.Size, fmt.Sprintf("1 to %d bytes", pipeline.MaxFrame))
	case c.Burst < 1:
		return nil, bad("burst", c.Burst, "1 byte or more")
	case c.Source == nil || c.Sink == nil:
		return nil, bad("source or sink", "nil", "both present")
	case c.Memory == nil:
		c.Memory = make([]byte, c.Buffers*c.Size)
	case len(c.Memory) < c.Buffers*c.Size:
		return nil, bad("memory", len(c.Memory), fmt.Sprintf("at least %d bytes for the buffers", c.Buffers*c.Size))
	}
	m := &Mover{device: device, memory: c.Memory, size: c.Size, burst: c.Burst, source: c.Source, sink: c.Sink, clock: c.Clock}
	if c.Clock != nil {
		m.learns, _ = c.Policy.(pipeline.Observer)
	}
	return m, nil
}

// CanStart reports whether a frame may be started now.
func (m *Mover) CanStart() bool { return m.device.CanStart() }

// Idle reports whether no frame is in the mover.
func (m *Mover) Idle() bool { return m.device.Frames() == 0 }

// SetBacklog tells how many frames wait that have not been started.
func (m *Mover) SetBacklog(frames int) { m.device.SetBacklog(frames) }

// Start gives the incoming controller the next frame. Errors: those of
// pipeline.Device.Start, and pipeline.ErrFrameLength for a frame that is longer
// than a buffer; they change nothing.
func (m *Mover) Start(length int) error {
	if length > m.size {
		return pipeline.ErrFrameLength
	}
	buffer, err := m.device.Start(length)
	if err != nil {
		return err
	}
	m.filling, m.length, m.arrived = buffer, length, 0
	if m.learns != nil {
		m.began = m.clock()
	}
	return nil
}

// Step lets each controller that is idle do one piece of work: the outgoing one
// first, so that buffers become free. It reports whether anything moved.
func (m *Mover) Step() bool {
	moved := m.deliver()
	if m.device.Filling() && m.fetch() {
		moved = true
	}
	return moved
}

func (m *Mover) deliver() bool {
	if !m.pending {
		var ok bool
		if m.out, ok = m.device.Next(); !ok {
			return false
		}
		m.pending = true
		if m.learns != nil {
			m.decided = m.clock()
		}
	}
	from := m.out.Buffer*m.size + m.out.Offset
	if !m.sink.Deliver(m.out.Frame, m.out.Offset, m.memory[from:from+m.out.Bytes], m.out.Last) {
		return false
	}
	m.pending = false
	if m.learns != nil {
		m.observe()
	}
	// A transfer is under way, so Done cannot refuse.
	_ = m.device.Done()
	return true
}

func (m *Mover) observe() {
	view, _ := m.device.Head()
	m.learns.Observe(pipeline.Observation{Bytes: m.out.Bytes, Elapsed: m.clock() - m.decided, Left: view.Length - view.Sent, Queued: view.Queued})
}

func (m *Mover) fetch() bool {
	from := m.filling*m.size + m.arrived
	want := min(m.burst, m.length-m.arrived)
	got := m.source.Fetch(m.number, m.arrived, m.memory[from:from+want])
	if got <= 0 || got > want {
		return false
	}
	m.arrived += got
	// The counter grows and stays within the frame, so Arrived cannot refuse.
	_ = m.device.Arrived(m.arrived)
	if m.arrived == m.length {
		m.number++
		if m.learns != nil {
			m.learns.ObserveArrival(m.length, m.clock()-m.began)
		}
	}
	return true
}

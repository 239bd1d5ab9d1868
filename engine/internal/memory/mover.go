// Package memory is the mover of real bytes: one direction of a NIC whose owner
// copies them. The owner reports what the incoming engine has copied, asks what
// the outgoing one may move now, and moves it. In between stand the delivery
// policy, or the host's pulses in its place; what a policy that learns wants to
// know; and the log of transfers.
//
// The engine of the emulated NIC moves every payload through two movers.
package memory

import "github.com/trapeze-nic/trapeze/pipeline"

// Clock tells the time in picoseconds from any origin.
type Clock func() int64

// Log is told of transfers when they have ended.
type Log interface {
	Transfer(t Transfer)
}

// Transfer is one transfer of one engine. Incoming transfers are whole frames. Times are the
// mover's clock.
type Transfer struct {
	Outgoing   bool
	Frame      uint32 // its number
	Buffer     int    // of the NIC, where the frame is
	Start, End int64  // picoseconds
	Bytes      int
	Queued     int  // frames that were known to wait behind an incoming one when it began
	Control    bool // Bytes are those of the control message ahead of the payload, which goes no further than the NIC
}

// Config of a Mover.
type Config struct {
	Policy pipeline.Policy
	// Buffers is the number of frames that may be in the NIC, 1 to pipeline.MaxBuffers; 1 if zero. A
	// policy that is a pipeline.Within may use fewer.
	Buffers int
	// Clock is read for policies that learn and for the log; without one there
	// are neither.
	Clock Clock
	// Slow says that transfers take their time: no frame is Plain.
	Slow bool
}

// Mover is one direction of a NIC: frames arrive in its buffers and leave in the same order. It
// starts no goroutine, holds no lock, and allocates nothing while frames move.
type Mover struct {
	device *pipeline.Device // of the frames in the buffers: own or hosted
	own    *pipeline.Device
	hosted *pipeline.Device
	gate   gate
	clock  Clock
	learns pipeline.Observer
	log    Log

	slow    bool
	buffers int

	// Wanted from the next frame on that finds the buffers empty.
	policy  pipeline.Policy
	next    *pipeline.Device // of policy, if it is new
	pulses  bool
	changed bool

	// plain says of the frames in the buffers that the policy alone decides
	// and that the time is not wanted.
	plain   bool
	lets    bool // and the policy, one of the defaults, never holds a part of what is all there
	timed   bool
	number  uint32 // frames started
	length  int    // of the newest frame
	arrived int
	queued  int   // frames known to wait behind it when it began
	began   int64 // when it started
	missing int   // bytes of the frame that left last which Drop kept from moving
	decided int64 // when the outgoing transfer started
	moving  int   // bytes of it
}

// gate stands in for the policy of the oldest frame if the host decides its transfers.
type gate struct {
	policy  pipeline.Policy // decides once open
	open    bool
	allowed int // bytes of the frame
}

// Next implements pipeline.Policy.
func (g *gate) Next(v pipeline.View) int {
	if g.open {
		return g.policy.Next(v)
	}
	return g.allowed - v.Sent
}

// New makes a mover. Errors are *pipeline.ParameterError.
func New(c Config) (*Mover, error) {
	m := &Mover{clock: c.Clock, policy: c.Policy, slow: c.Slow, buffers: max(c.Buffers, 1)}
	own, err := pipeline.NewDevice(c.Policy, pipeline.BuffersOf(c.Policy, m.buffers))
	if err != nil {
		return nil, err
	}
	m.own, m.device = own, own
	if m.hosted, err = pipeline.NewDevice(&m.gate, m.buffers); err != nil {
		return nil, err
	}
	m.change()
	return m, nil
}

// Policy returns the delivery policy that decides, or will once the buffers are empty.
func (m *Mover) Policy() pipeline.Policy { return m.policy }

// SetPolicy makes p decide. No frame starts before those in the buffers have left. Errors are
// *pipeline.ParameterError and change nothing.
func (m *Mover) SetPolicy(p pipeline.Policy) error {
	d, err := pipeline.NewDevice(p, pipeline.BuffersOf(p, m.buffers))
	if err != nil {
		return err
	}
	m.policy, m.next, m.changed = p, d, true
	return nil
}

// SetPulses lets the host's pulses decide instead of the policy, as SetPolicy does. Switching
// them off also opens the frames in the buffers.
func (m *Mover) SetPulses(on bool) {
	m.pulses, m.changed = on, true
	if !on {
		m.gate.open = true
	}
}

// SetLog tells l of transfers, as SetPolicy does; nil ends it.
func (m *Mover) SetLog(l Log) { m.log, m.changed = l, true }

// CanStart reports whether the incoming engine is idle and has a buffer.
func (m *Mover) CanStart() bool {
	return m.device.CanStart() && (!m.changed || m.device.Frames() == 0)
}

// Frames returns how many frames are in the buffers, arriving ones included.
func (m *Mover) Frames() int { return m.device.Frames() }

// Buffer returns the buffer of the next frame to start, Oldest that of the oldest frame.
func (m *Mover) Buffer() int {
	m.Settle()
	return m.device.Buffer()
}
func (m *Mover) Oldest() int { return m.device.Oldest() }

// Start gives the incoming engine a frame of length bytes; queued is the number
// of frames that are known to wait behind it. Errors: pipeline.ErrFrameLength,
// and pipeline.ErrBusy or ErrNoBuffer; they change nothing.
func (m *Mover) Start(length, queued int) error {
	if m.changed && m.device.Frames() > 0 {
		return pipeline.ErrNoBuffer
	}
	m.Settle()
	if _, err := m.device.Start(length); err != nil {
		return err
	}
	m.device.SetBacklog(queued)
	m.number++
	m.length, m.arrived, m.queued = length, 0, queued
	if !m.plain {
		if m.device.Frames() == 1 {
			m.close()
		}
		if m.timed {
			m.began = m.clock()
		}
	}
	return nil
}

// Ahead tells of the control message of the frame that has been started, of so many bytes, which has come since a time.
func (m *Mover) Ahead(bytes int, since int64) {
	if m.log != nil {
		m.log.Transfer(Transfer{Control: true, Frame: m.number - 1, Buffer: m.device.Newest(), Start: min(since, m.began), End: m.began, Bytes: bytes})
	}
}

// close makes the frame that has become the oldest wait for pulses, if the host decides.
func (m *Mover) close() { m.gate.open, m.gate.allowed = !m.pulses, 0 }

// Plain reports whether the policy alone decides about the next frame, and
// no log or counter wants to know when what happens to it.
func (m *Mover) Plain() bool { return m.plain && !m.changed }

// Whole takes a frame that is all there through the mover at once, if the next
// frame is Plain and the policy lets all of it go: one question, which a
// small message costs. Otherwise it answers false and nothing has happened; the
// frame then takes the way from Start to Done. No frame may be in the buffers.
func (m *Mover) Whole(length, queued int) bool {
	if m.changed || !m.lets && !m.letsGo(length, queued) {
		return false
	}
	m.number++
	m.length, m.arrived, m.missing = length, length, 0
	return true
}

// Settle does what was asked for, unless a frame is in the buffers.
func (m *Mover) Settle() {
	if m.changed && m.device.Frames() == 0 {
		m.change()
	}
}

// letsGo asks the policy of a plain frame that is all there whether all of it goes. The rules are those of
// pipeline.Device: it does, unless the policy names a part of it.
func (m *Mover) letsGo(length, queued int) bool {
	if !m.plain {
		return false
	}
	n := m.policy.Next(pipeline.View{Length: length, Arrived: length, Queued: queued})
	return n <= 0 || n >= length
}

// change does what was asked for since the last frame.
func (m *Mover) change() {
	m.changed = false
	if m.next != nil {
		m.own, m.next = m.next, nil
	}
	m.device, m.gate = m.own, gate{policy: m.policy, open: true}
	if m.pulses {
		m.device = m.hosted
	}
	m.learns = nil
	if m.clock == nil {
		m.log = nil
	} else {
		m.learns, _ = m.policy.(pipeline.Observer)
	}
	m.timed = m.learns != nil || m.log != nil
	m.plain = !m.timed && !m.pulses && !m.slow
	switch m.policy.(type) {
	case pipeline.StoreAndForward, pipeline.Eager:
		m.lets = m.plain
	default:
		m.lets = false
	}
}

// Arrived reports the progress of the incoming engine: total bytes of the newest frame.
// A counter that goes backwards or beyond the frame is pipeline.ErrProgress and
// changes nothing.
func (m *Mover) Arrived(total int) error {
	if err := m.device.Arrived(total); err != nil {
		return err
	}
	m.arrived = total
	if m.timed && !m.device.Filling() {
		m.filled()
	}
	return nil
}

// Void ends the newest frame where it is, if it is still arriving. Its owner gives it up with Drop
// once it is the oldest.
func (m *Mover) Void() {
	if m.device.Filling() {
		_ = m.device.Arrived(m.length)
	}
}

// filled tells of the incoming transfer.
func (m *Mover) filled() {
	now := m.clock()
	if m.log != nil {
		m.log.Transfer(Transfer{Frame: m.number - 1, Buffer: m.device.Newest(), Start: m.began, End: now, Bytes: m.arrived, Queued: m.queued})
	}
	if m.learns != nil {
		m.learns.ObserveArrival(m.arrived, now-m.began)
	}
}

// Next says how many bytes of the oldest frame the outgoing engine may move now, and whether the
// frame ends with them; they follow those that it has moved. The engine is busy
// until Done. 0 means that it is busy or has to wait.
func (m *Mover) Next() (bytes int, last bool) {
	if !m.plain && m.Held() {
		return 0, false
	}
	bytes, last = m.device.Move()
	if bytes > 0 && !m.plain {
		m.moving = bytes
		if m.timed {
			m.decided = m.clock()
		}
	}
	return bytes, last
}

// Done reports that the outgoing transfer has ended. The buffer is free after
// the last one of a frame. It answers pipeline.ErrProgress if none was under way.
func (m *Mover) Done() error {
	if m.plain {
		m.missing = 0
		return m.device.Done()
	}
	v, _ := m.device.Head()
	frame, buffer := m.Asked(), m.device.Oldest()
	if err := m.device.Done(); err != nil {
		return err
	}
	bytes := m.moving
	m.moving = 0
	if v.Sent == v.Length {
		m.missing = 0
		m.close()
	}
	if !m.timed {
		return nil
	}
	now := m.clock()
	if m.log != nil {
		m.log.Transfer(Transfer{Outgoing: true, Frame: frame, Buffer: buffer, Start: m.decided, End: now, Bytes: bytes})
	}
	if m.learns != nil {
		m.learns.Observe(pipeline.Observation{Bytes: bytes, Elapsed: now - m.decided, Left: v.Length - v.Sent, Queued: v.Queued})
	}
	return nil
}

// Drop gives the oldest frame up. What has been moved of it stays moved.
func (m *Mover) Drop() {
	v, ok := m.device.Head()
	if !ok {
		return
	}
	m.missing = v.Length - v.Sent + m.moving
	m.moving = 0
	m.device.Drop()
	m.close()
}

// Held reports whether bytes of the oldest frame wait for a pulse.
func (m *Mover) Held() bool {
	if m.device != m.hosted || m.gate.open {
		return false
	}
	v, ok := m.device.Head()
	return ok && v.Sent == m.gate.allowed && v.Sent < v.Arrived
}

// Hosted reports whether the transfers of the oldest frame, or of the next
// one if there is none, are the host's to decide.
func (m *Mover) Hosted() bool {
	if m.device.Frames() == 0 {
		return m.pulses
	}
	return m.device == m.hosted && !m.gate.open
}

// Pulse lets bytes more of the oldest frame move; frame is the low 8 bits
// of its number. It returns false, and nothing changes, if the frame is another
// or is not the host's to decide, if bytes is not positive, or if more would be
// allowed than have arrived.
func (m *Mover) Pulse(frame uint8, bytes int) bool {
	v, ok := m.device.Head()
	if !ok || !m.Hosted() || frame != uint8(m.Asked()) || bytes < 1 || bytes > v.Arrived-m.gate.allowed {
		return false
	}
	m.gate.allowed += bytes
	return true
}

// Release lets the policy decide about the rest of the oldest frame.
func (m *Mover) Release() { m.gate.open = true }

// Asked returns the number of the frame that the policy is being asked about: the oldest. It
// wraps.
func (m *Mover) Asked() uint32 { return m.number - uint32(m.device.Frames()) }

// Started returns how many frames have been started: the number of the next one.
// It wraps.
func (m *Mover) Started() uint32 { return m.number }

// State has the progress counters of both engines. A frame is in a buffer until its last transfer
// has ended, and bytes count as sent once their transfer has.
type State struct {
	// Of the oldest frame in the buffers or, if none is, of the frame that left last.
	Active  bool   // a frame is in the buffers
	Held    bool   // it waits for a pulse
	Frame   uint32 // its number, counted from 0
	Length  int    // bytes
	Arrived int    // bytes that the incoming engine has moved
	Sent    int    // bytes that the outgoing engine has moved
	Queued  int    // frames known to wait behind it

	Newest Arrival
}

// Arrival has the progress counters of the incoming engine, of the newest frame.
type Arrival struct {
	Frame           uint32
	Length, Arrived int
}

// State returns the progress counters.
func (m *Mover) State() State {
	s := State{Length: m.length, Arrived: m.arrived, Sent: m.length - m.missing}
	if m.length > 0 { // there has been a frame
		s.Frame = m.number - 1
	}
	s.Newest = Arrival{s.Frame, m.length, m.arrived}
	if v, ok := m.device.Head(); ok {
		s.Active, s.Held, s.Frame, s.Length = true, m.Held(), m.Asked(), v.Length
		s.Arrived, s.Sent, s.Queued = v.Arrived, v.Sent-m.moving, v.Queued
	}
	return s
}

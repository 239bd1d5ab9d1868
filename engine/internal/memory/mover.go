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

// Log is told of transfers when they have ended. Incoming transfers are whole
// frames. Times are the mover's clock. queued is the number of frames that were known to
// wait behind an incoming one when it began; zero for outgoing ones.
type Log interface {
	Transfer(outgoing bool, frame uint32, start, end int64, bytes, queued int)
}

// Config of a Mover.
type Config struct {
	Policy pipeline.Policy
	// Clock is read for policies that learn and for the log; without one there
	// are neither.
	Clock Clock
	// Slow says that transfers take their time: the owner calls Away and Ended, and no frame
	// is Plain.
	Slow bool
}

// Mover is one direction of a NIC. One frame is in it at a time: what is behind
// it waits on the wire or in the host's queue, which are the other buffers. It
// starts no goroutine, holds no lock, and allocates nothing while frames move.
type Mover struct {
	device *pipeline.Device // of the frame in progress: own or hosted
	own    *pipeline.Device
	hosted *pipeline.Device
	gate   gate
	clock  Clock
	learns pipeline.Observer
	log    Log

	slow bool
	// under is the outgoing transfer that takes its time.
	under transit

	// Wanted from the next frame on.
	policy  pipeline.Policy
	next    *pipeline.Device // of policy, if it is new
	pulses  bool
	changed bool

	// plain says of the frame in progress that its policy alone decides
	// and that the time is not wanted.
	plain   bool
	lets    bool // and the policy, one of the defaults, never holds a part of what is all there
	timed   bool
	number  uint32 // frames started
	length  int    // of the newest frame
	arrived int
	queued  int   // frames known to wait behind it when it began.
	missing int   // bytes that Cancel kept from moving
	began   int64 // when the frame started
	decided int64 // when the outgoing transfer started
	moving  int   // bytes of it
}

// transit is an outgoing transfer between Away and Ended.
type transit struct {
	going         bool
	timed         bool
	frame         uint32
	length, bytes int
	left, queued  int
	decided       int64
}

// gate stands in for the policy of a frame whose transfers the host decides.
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
	own, err := pipeline.NewDevice(c.Policy, 1)
	if err != nil {
		return nil, err
	}
	m := &Mover{own: own, device: own, clock: c.Clock, policy: c.Policy, slow: c.Slow}
	if m.hosted, err = pipeline.NewDevice(&m.gate, 1); err != nil {
		return nil, err
	}
	m.change()
	return m, nil
}

func (m *Mover) Policy() pipeline.Policy { return m.policy }

// SetPolicy has p decide from the next frame on. Errors are
// *pipeline.ParameterError and change nothing.
func (m *Mover) SetPolicy(p pipeline.Policy) error {
	d, err := pipeline.NewDevice(p, 1)
	if err != nil {
		return err
	}
	m.policy, m.next, m.changed = p, d, true
	return nil
}

// SetPulses has the host's pulses decide instead of the policy from the next
// frame on. Switching them off also opens the frame in progress.
func (m *Mover) SetPulses(on bool) {
	m.pulses, m.changed = on, true
	if !on {
		m.gate.open = true
	}
}

// SetLog has l told of transfers from the next frame on; nil ends it.
func (m *Mover) SetLog(l Log) { m.log, m.changed = l, true }

// Start gives the incoming engine a frame of length bytes; queued is the number
// of frames that are known to wait behind it. Errors: pipeline.ErrFrameLength,
// and pipeline.ErrBusy or ErrNoBuffer while a frame is in progress; they change
// nothing.
func (m *Mover) Start(length, queued int) error {
	if m.changed && m.device.Frames() == 0 {
		m.change()
	}
	if _, err := m.device.Start(length); err != nil {
		return err
	}
	m.device.SetBacklog(queued)
	m.number++
	m.length, m.arrived, m.queued, m.missing = length, 0, queued, 0
	if !m.plain {
		m.gate.open, m.gate.allowed = !m.pulses, 0
		if m.timed {
			m.began = m.clock()
		}
	}
	return nil
}

// Plain reports whether the policy alone decides about the next frame, and
// no log or counter wants to know when what happens to it.
func (m *Mover) Plain() bool { return m.plain && !m.changed }

// Whole takes a frame that is all there through the mover at once, if the next
// frame is Plain and the policy lets all of it go: one question, which a
// small message costs. Otherwise it answers false and nothing has happened; the
// frame then takes the way from Start to Done. No frame may be in progress.
func (m *Mover) Whole(length, queued int) bool {
	if m.changed || !m.lets && !m.letsGo(length, queued) {
		return false
	}
	m.number++
	m.length, m.arrived, m.missing = length, length, 0
	return true
}

// Settle does what was asked for since the last frame, unless one is in progress.
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

// Arrived reports the progress of the incoming engine: total bytes of the frame.
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

// filled tells of the incoming transfer.
func (m *Mover) filled() {
	now := m.clock()
	if m.log != nil {
		m.log.Transfer(false, m.number-1, m.began, now, m.arrived, m.queued)
	}
	if m.learns != nil {
		m.learns.ObserveArrival(m.arrived, now-m.began)
	}
}

// Next says how many bytes the outgoing engine may move now, and whether the
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

// Done reports that the outgoing transfer has ended. The mover is empty after
// the last one of a frame. It answers pipeline.ErrProgress if none was under way.
func (m *Mover) Done() error {
	if m.plain {
		return m.device.Done()
	}
	err := m.Away()
	m.Ended()
	return err
}

// Away notes that the bytes of the outgoing transfer have been handed on, and will take
// their time. After the last transfer of a frame another may start. The owner does not call
// Next before Ended. It answers pipeline.ErrProgress if no transfer was begun.
func (m *Mover) Away() error {
	v, _ := m.device.Head()
	if err := m.device.Done(); err != nil {
		return err
	}
	m.under = transit{going: true, timed: m.timed, frame: m.number - 1, length: v.Length, bytes: m.moving,
		left: v.Length - v.Sent, queued: v.Queued, decided: m.decided}
	m.moving = 0
	return nil
}

// Ended reports that the transfer has ended for which Away was called. It answers false if
// there is none.
func (m *Mover) Ended() bool {
	t := m.under
	m.under = transit{}
	if !t.timed {
		return t.going
	}
	now := m.clock()
	if m.log != nil {
		m.log.Transfer(true, t.frame, t.decided, now, t.bytes, 0)
	}
	if m.learns != nil {
		m.learns.Observe(pipeline.Observation{Bytes: t.bytes, Elapsed: now - t.decided, Left: t.left, Queued: t.queued})
	}
	return true
}

// Alone reports whether a frame must have left before the next one starts.
func (m *Mover) Alone() bool {
	_, alone := m.policy.(pipeline.Alone)
	return alone
}

// Cancel drops the frame in progress. What has been moved of it stays moved.
func (m *Mover) Cancel() {
	v, ok := m.device.Head()
	if !ok {
		return
	}
	m.missing, m.moving = v.Length-v.Sent, 0
	// The device is emptied as if the rest had come and gone, without a word.
	m.gate.open = true
	if m.device.Filling() {
		_ = m.device.Arrived(v.Length)
	}
	_ = m.device.Done() // of the transfer that was under way, if any
	for m.device.Frames() > 0 {
		m.device.Next()
		_ = m.device.Done()
	}
}

// Held reports whether bytes of a frame are waiting for a pulse.
func (m *Mover) Held() bool {
	if m.device != m.hosted || m.gate.open {
		return false
	}
	v, ok := m.device.Head()
	return ok && v.Sent == m.gate.allowed && v.Sent < v.Arrived
}

// Hosted reports whether the transfers of the frame in progress, or of the next
// one if there is none, are the host's to decide.
func (m *Mover) Hosted() bool {
	if m.device.Frames() == 0 {
		return m.pulses
	}
	return m.device == m.hosted && !m.gate.open
}

// Pulse lets bytes more of the frame in progress move; frame is the low 8 bits
// of its number. It returns false, and nothing changes, if the frame is another
// or is not the host's to decide, if bytes is not positive, or if more would be
// allowed than have arrived.
func (m *Mover) Pulse(frame uint8, bytes int) bool {
	if m.device.Frames() == 0 || !m.Hosted() || frame != uint8(m.number-1) || bytes < 1 || bytes > m.arrived-m.gate.allowed {
		return false
	}
	m.gate.allowed += bytes
	return true
}

// Release has the policy decide for the rest of the frame in progress.
func (m *Mover) Release() { m.gate.open = true }

// Asked returns the number of the frame that the policy is being asked about. It
// wraps.
func (m *Mover) Asked() uint32 {
	if m.device.Frames() == 0 {
		return m.number
	}
	return m.number - 1
}

// Started returns how many frames have been started: the number of the next one.
// It wraps.
func (m *Mover) Started() uint32 { return m.number }

// State has the progress counters of the frame in progress or, if none
// is, of the last one. A frame is in progress until its last transfer has ended, and bytes
// count as sent once their transfer has.
type State struct {
	Active  bool   // a frame is in progress
	Held    bool   // it waits for a pulse
	Frame   uint32 // its number, counted from 0
	Length  int    // bytes
	Arrived int    // bytes that the incoming engine has moved
	Sent    int    // bytes that the outgoing engine has moved
	Queued  int    // frames known to wait behind it
}

func (m *Mover) State() State {
	s := State{Length: m.length, Arrived: m.arrived, Sent: m.length - m.missing}
	if m.length > 0 { // there has been a frame
		s.Frame = m.number - 1
	}
	if v, ok := m.device.Head(); ok {
		s.Active, s.Held, s.Sent, s.Queued = true, m.Held(), v.Sent-m.moving, v.Queued
	}
	switch t := &m.under; {
	case !t.going:
	case t.left > 0:
		s.Held, s.Sent = false, s.Sent-t.bytes
	default:
		s = State{Active: true, Frame: t.frame, Length: t.length, Arrived: t.length, Sent: t.length - t.bytes, Queued: t.queued}
	}
	return s
}

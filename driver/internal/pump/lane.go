package pump

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Stats counts what the host has done for its delivery policy.
type Stats struct {
	Pulses uint64 `json:"pulses" help:"Decisions of the policy that bytes may move." unit:"pulses"`
	Frames uint64 `json:"frames" help:"Frames that left by these alone." unit:"frames"`
	// TakenOver counts frames for which the policy was late.
	TakenOver   uint64 `json:"taken_over" help:"Frames of which the device moved more than the policy had allowed." unit:"frames"`
	BadProgress uint64 `json:"bad_progress" help:"Progress counters that made no sense." unit:"counters"`
}

// lane is the pump's part in one direction. A device has one frame in progress
// in each; the scheduler that decides about it is the one that moves bytes in
// the emulated NIC and virtual ones in the model.
type lane struct {
	shared  *datasheet.Progress
	pulse   func(frame, n uint32)
	longest uint32 // payload of a frame, in bytes
	clock   func() int64
	policy  steered
	device  *pipeline.Device
	learns  pipeline.Observer // policy, if it is one
	stats   Stats
	faults  int // nonsense since a frame left as it should

	read   datasheet.Progress // counters as they were read last
	last   datasheet.Progress // those that made sense
	active bool               // last is about a frame in progress
	ours   bool               // which the host decides about
	issued uint32             // bytes of it that pulses have allowed
	whole  bool               // it has arrived

	// Of the frame and of the pulse under way, for a policy that learns.
	began, decided int64
	moving         uint32 // bytes of the pulse
}

// steered is a policy that can be told to let go of a frame that the host does
// not decide about any more.
type steered struct {
	pipeline.Policy
	letGo bool
}

// Next implements pipeline.Policy.
func (s *steered) Next(v pipeline.View) int {
	if s.letGo {
		return v.Available()
	}
	return s.Policy.Next(v)
}

// use has the lane ask a policy.
func (l *lane) use(p pipeline.Policy) (err error) {
	l.policy.Policy = p
	l.learns, _ = p.(pipeline.Observer)
	asked := pipeline.Policy(&l.policy)
	if p == nil {
		asked = nil
	}
	l.device, err = pipeline.NewDevice(asked, 1)
	return err
}

// step reads the counters and answers. It reports whether they had changed.
func (l *lane) step() bool {
	if datasheet.LoadIndex(&l.shared.Sequence) == l.read.Sequence {
		return false
	}
	var now datasheet.Progress
	if !l.shared.Load(&now) {
		return false // it is being written: the next look finds it
	}
	was := l.read
	l.read = now
	// A device may write without need.
	if was.Sequence = now.Sequence; was == now {
		return false
	}
	same := l.active && now.Frame == l.last.Frame
	active := now.Flags&datasheet.ProgressActive != 0
	if !l.sound(&now, same, active) {
		l.stats.BadProgress++
		l.faults++
		l.leave()
		return true
	}
	if l.active && !(same && active) {
		l.end(&now, same)
	}
	l.last, l.active = now, active
	if active {
		l.follow(&now, same)
	}
	return true
}

// sound reports whether counters can be true: of one frame they only grow, and
// no byte leaves that has not arrived. None of it is to be trusted.
func (l *lane) sound(now *datasheet.Progress, same, active bool) bool {
	if now.Length > l.longest || now.Arrived > now.Length || now.Sent > now.Arrived || active && now.Length == 0 {
		return false
	}
	return !same || now.Length == l.last.Length && now.Arrived >= l.last.Arrived && now.Sent >= l.last.Sent
}

// follow takes note of a frame's progress and answers it.
func (l *lane) follow(now *datasheet.Progress, same bool) {
	if !same {
		l.begin(now)
	}
	if l.ours && now.Sent > l.issued {
		// The deadline has passed: the device moves the rest.
		l.stats.TakenOver++
		l.leave()
	}
	if !l.ours {
		return
	}
	l.device.SetBacklog(queued(now))
	l.arrived(now)
	l.moved(now)
	l.decide(now.Frame)
}

// queued returns the number of frames that wait behind, as far as it can be believed.
func queued(now *datasheet.Progress) int { return int(min(now.Queued, pipeline.MaxFrame)) }

func (l *lane) begin(now *datasheet.Progress) {
	l.issued, l.moving, l.whole, l.ours = 0, 0, false, true
	if l.learns != nil {
		l.began = l.clock()
	}
	// The length was checked, and the last frame has left.
	_, _ = l.device.Start(int(now.Length))
}

// arrived hands the incoming counter to the scheduler.
func (l *lane) arrived(now *datasheet.Progress) {
	if l.whole {
		return
	}
	// The counter was checked.
	_ = l.device.Arrived(int(now.Arrived))
	if l.whole = now.Arrived == now.Length; l.whole && l.learns != nil {
		l.learns.ObserveArrival(int(now.Length), l.clock()-l.began)
	}
}

// moved hands the outgoing counter to the scheduler: a pulse has been carried
// out when all that was allowed has left.
func (l *lane) moved(now *datasheet.Progress) {
	if l.moving == 0 || now.Sent != l.issued {
		return
	}
	if l.learns != nil {
		l.learns.Observe(pipeline.Observation{Bytes: int(l.moving), Elapsed: l.clock() - l.decided,
			Left: int(now.Length - now.Sent), Queued: queued(now)})
	}
	l.moving = 0
	// A transfer is under way, so Done cannot refuse.
	_ = l.device.Done()
}

// decide asks the policy, and passes its answer on to the device.
func (l *lane) decide(frame uint32) {
	if l.learns != nil {
		l.decided = l.clock()
	}
	t, ok := l.device.Next()
	if !ok {
		return
	}
	l.moving = uint32(t.Bytes)
	l.issued += l.moving
	l.stats.Pulses++
	l.pulse(frame, l.moving)
}

// end is called when the frame is not in progress any more: it has left, or was
// given up. Same says that now is still about it.
func (l *lane) end(now *datasheet.Progress, same bool) {
	if !l.ours {
		return
	}
	switch {
	case same && now.Sent > l.issued:
		l.stats.TakenOver++
	case same && now.Sent == now.Length, !same && l.issued == l.last.Length:
		// Its end may have gone unseen, if the next has begun.
		whole := l.last
		whole.Arrived, whole.Sent = whole.Length, whole.Length
		l.arrived(&whole)
		l.moved(&whole)
		l.stats.Frames++
		l.faults = 0
	}
	l.leave()
}

// leave gives up the frame in the scheduler, if there is one: no more pulses
// are given for it.
func (l *lane) leave() {
	l.ours, l.moving = false, 0
	if l.device.Frames() == 0 {
		return
	}
	// None of this can fail: the frame arrives whole, and its rest goes at once.
	_ = l.device.Done()
	l.policy.letGo = true
	if v, _ := l.device.Head(); l.device.Filling() {
		_ = l.device.Arrived(v.Length)
	}
	for {
		if _, ok := l.device.Next(); !ok {
			break
		}
		_ = l.device.Done()
	}
	l.policy.letGo = false
}

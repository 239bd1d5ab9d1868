package driver_test

import (
	"fmt"
	"regexp"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *script.Arguments) string{
	"pump": (*play).pump, "frame": (*play).frame, "arrive": (*play).arrive, "carry": (*play).carry, "drop": (*play).drop, "stream": (*play).stream,
	"leave": (*play).leave, "await": (*play).await, "pulses": (*play).pulses, "nonsense": (*play).nonsense, "give-up": (*play).giveUp, "sleep": (*play).sleep, "pump-state": (*play).pumpState,
})

// pump is: pump [FIELD=VALUE...]. The host decides about frames by a policy, and the device carries its pulses out.
func (p *play) pump(a *script.Arguments) string {
	want := driver.Policy{At: driver.AtHost}
	p.change(&want, a.Changes)
	if p.lanes == nil {
		p.lanes = newLanes(p.d)
	}
	return outcome("pump", p.n.SetPolicy(want))
}

func (p *play) lane(word string) *fakeLane { return p.lanes[p.value(word)] }

// as runs f as the device, and lets the host see what it did, unless it is to find out by itself.
func (p *play) as(a *script.Arguments, f func()) string {
	p.d.with(f)
	if !a.Flag("alone") {
		p.n.Poll()
	}
	return ""
}

// frame is: frame LANE BYTES [ARRIVED] [alone]. A frame begins on lane 0, to send, or lane 1.
func (p *play) frame(a *script.Arguments) string {
	alone := script.Parse(nil)
	if a.Flag("alone") {
		alone.Words = []string{"alone"}
	}
	return p.as(alone, func() {
		l := p.lane(a.Words[0])
		l.frame(uint32(p.value(a.Words[1])), 0)
		if len(a.Words) > 2 {
			l.arrive(uint32(p.value(a.Words[2])))
		}
	})
}

// arrive is: arrive LANE BYTES.
func (p *play) arrive(a *script.Arguments) string {
	return p.as(a, func() { p.lane(a.Words[0]).arrive(uint32(p.value(a.Words[1]))) })
}

// carry is: carry LANE BYTES, all of which may move because the deadline has passed.
func (p *play) carry(a *script.Arguments) string {
	return p.as(a, func() {
		l, n := p.lane(a.Words[0]), uint32(p.value(a.Words[1]))
		l.allowed = max(l.allowed, l.p.Sent+n)
		l.carry(n)
	})
}

// drop ends the frame of a lane half way, as frames end when a connection is lost.
func (p *play) drop(a *script.Arguments) string {
	return p.as(a, func() { l := p.lane(a.Words[0]); l.p.Flags = 0; l.d.show(l.number, l.p) })
}

// stream is: stream LANE BYTES TIMES. The bytes arrive so many times. The engine carries out what it may
// before more comes, as long as the host gives more pulses.
func (p *play) stream(a *script.Arguments) string {
	l := p.lane(a.Words[0])
	for range p.value(a.Words[2]) {
		p.as(a, func() { l.arrive(uint32(p.value(a.Words[1]))) })
		for settled := 0; settled < 20; settled++ {
			p.n.Poll()
			mustState(p.t, p.n) // waits for the host's own goroutine, which may have been at it
			p.d.with(func() {
				if l.waiting() > 0 {
					settled = 0
					l.carry(l.waiting())
				}
			})
		}
	}
	return ""
}

// leave is: leave LANE [alone]. It carries out what the host allows until the frame has left.
func (p *play) leave(a *script.Arguments) string {
	l, alone := p.lane(a.Words[0]), a.Flag("alone")
	waittest.Until(p.t, "the frame has left", func() (left bool) {
		if !alone {
			p.n.Poll()
		}
		p.d.with(func() {
			if l.waiting() > 0 {
				l.carry(l.waiting())
			}
			left = l.p.Sent == l.p.Length
		})
		return left
	})
	return ""
}

// await is: await LANE BYTES. It polls until so many bytes may move that have not.
func (p *play) await(a *script.Arguments) string {
	waittest.Until(p.t, "bytes may move", func() (ok bool) {
		p.n.Poll()
		p.d.with(func() { ok = uint64(p.lane(a.Words[0]).waiting()) == p.value(a.Words[1]) })
		return ok
	})
	return ""
}

// pulses is: pulses LANES, those of the frame.
func (p *play) pulses(a *script.Arguments) (lines string) {
	p.d.with(func() {
		for _, w := range a.Words {
			lines += fmt.Sprintf("lane %s: pulses %v\n", w, p.lane(w).pulses)
		}
	})
	return lines
}

// nonsense is: nonsense LANE FIELD=VALUE... The device shows it until the host has counted it.
func (p *play) nonsense(a *script.Arguments) string {
	var bad datasheet.Progress
	p.change(&bad, a.Changes)
	waittest.Until(p.t, "nonsense is counted", func() bool {
		p.d.with(func() { p.d.show(int(p.value(a.Words[0])), bad) })
		p.n.Poll()
		return mustState(p.t, p.n).Pump.BadProgress > 0
	})
	return ""
}

// giveUp is: give-up LANE [alone]. The device shows nothing but nonsense, until the host leaves it alone.
func (p *play) giveUp(a *script.Arguments) string {
	bad := datasheet.Progress{Length: 100, Arrived: 200, Flags: datasheet.ProgressActive}
	waittest.Until(p.t, "the state says that the host has given up", func() bool {
		p.as(a, func() {
			if p.d.get(datasheet.DMAOffset+datasheet.RegDMAControl) != 0 {
				bad.Frame++
				p.d.show(int(p.value(a.Words[0])), bad)
			}
		})
		return mustState(p.t, p.n).Fallback != nil
	})
	return ""
}

// pumpState is: pump-state [FRAMES] [brief]. It waits until so many have left.
func (p *play) pumpState(a *script.Arguments) string {
	var s driver.PolicyState
	brief := a.Flag("brief")
	for end := time.Now().Add(timeout); ; p.n.Poll() {
		if s = mustState(p.t, p.n); len(a.Words) == 0 || s.Pump.Frames >= p.value(a.Words[0]) || time.Now().After(end) {
			break
		}
	}
	pulses := fmt.Sprintf("%d pulses", s.Pump.Pulses)
	if brief { // their number depends on time
		var seen int
		p.d.with(func() { seen = len(p.lanes[0].pulses) + len(p.lanes[1].pulses) })
		pulses = fmt.Sprintf("as many pulses as the device saw: %v", int(s.Pump.Pulses) == seen)
	}
	fallback := frameNumber.ReplaceAllString(say(s.Fallback), "frame N:")
	return fmt.Sprintf("pump at the %v: %v and %v, %s, %d frames, %d taken over, nonsense %v, fallback %q", s.At, s.Send, s.Receive, pulses, s.Pump.Frames,
		s.Pump.TakenOver, s.Pump.BadProgress > 0, fallback)
}

// frameNumber depends on how far a device had come when the host gave up.
var frameNumber = regexp.MustCompile(`frame \d+:`)

func (p *play) sleep(a *script.Arguments) string {
	time.Sleep(p.duration(a.Words[0]))
	return ""
}

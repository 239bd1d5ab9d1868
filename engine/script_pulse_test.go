package engine_test

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"pulses": (*play).pulses, "pulse": (*play).pulse, "progress": (*play).progress, "dma": (*play).dma, "clear": (*play).clear,
})

func direction(word string) engine.Direction {
	if word == "receive" {
		return engine.Receive
	}
	return engine.Transmit
}

// pulses is: pulses NODE transmit|receive on|off [DEADLINE]. The host says when frames move.
func (p *play) pulses(a *arguments) string {
	n := p.node(a.Words[0])
	if len(a.Words) > 3 {
		n.e.SetPulseDeadline(p.duration(a.Words[3]))
	}
	n.e.SetPulses(direction(a.Words[1]), a.Words[2] == "on")
	return ""
}

// pulse is: pulse NODE transmit|receive FRAME BYTES. It says whether that passes.
func (p *play) pulse(a *arguments) string {
	ok := p.node(a.Words[0]).e.Pulse(direction(a.Words[1]), uint8(p.value(a.Words[2])), uint32(p.value(a.Words[3])))
	if ok {
		return ""
	}
	return fmt.Sprintf("%s: a pulse for %s bytes of frame %s is refused", a.Words[0], a.Words[3], a.Words[2])
}

// progress shows the counters of a direction in the host's memory; area makes room for them before.
func (p *play) progress(a *arguments) string {
	n := p.node(a.Words[0])
	if a.Flag("area") {
		p.pumps[n] = n.newPump()
		p.numbers[a.Words[0]+".area"] = p.pumps[n].iova
		return ""
	}
	v := p.pumps[n].progress(direction(a.Words[1]))
	return fmt.Sprintf("%s %s: frame %d, %d bytes, %d arrived, %d sent, %d queued, active %v, written %d times", a.Words[0], a.Words[1],
		v.Frame, v.Length, v.Arrived, v.Sent, v.Queued, v.Flags&datasheet.ProgressActive != 0, v.Sequence/2)
}

// dma shows what became of pulses, and whether frames are held.
func (p *play) dma(a *arguments) string {
	n := p.node(a.Words[0])
	d := n.e.DMAState()
	aborts := 0
	if n.parts != nil {
		aborts = n.parts.aborts
	}
	return fmt.Sprintf("%s: pulses %v, %d refused, %d timeouts, held %v and %v, %d frames aborted", a.Words[0], d.Pulses, d.Refused, d.Timeouts,
		d.Movers[engine.Transmit].Held, d.Movers[engine.Receive].Held, aborts)
}

// clear blanks the buffers of receives.
func (p *play) clear(a *arguments) string {
	for _, i := range p.all(a.Words) {
		for _, b := range i.bufs {
			for n := range b {
				b[n] = fillByte
			}
		}
	}
	return ""
}

package vi

import (
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const (
	// duplicateThreshold is the number of later frames that must have arrived before a missing
	// one is lost without delay, on a wire that has not reordered any (RFC 8985, 6.2,
	// step 4; RFC 5681, 3.2).
	duplicateThreshold = 3
	// widenFor is for how many recoveries the reordering window stays wider (RFC 8985,
	// 6.2, step 4).
	widenFor = 16
	// maxProbes is the number of probes before all frames are sent again. RFC 8985
	// has one; if half of all frames are lost, three of four probes stay unanswered.
	maxProbes = 4
	// clockError bounds how late the engine's clock may be while it works: see clock.look.
	clockError = core.ClockSteps * core.Closely
)

// ones is n bits, at most 64.
func ones(n uint32) uint64 { return 1<<n - 1 }

// learn takes in what the header of a frame says besides its Ack, and looks for
// frames that have been lost. While they arrive in order it is not called.
func (r *reliable) learn(h *datasheet.Header) {
	if h.Type == datasheet.FrameAck {
		r.takeDuplicates(h.Message)
		r.takeCount(h.Immediate)
		// What is said of frames that have not been sent says nothing.
		r.arrivals(0, (uint64(h.Extent)|uint64(h.Offset)<<32)<<1&ones(r.Nxt-r.Una))
	}
	r.findLost()
}

// arrivals takes note that the first n of the frames under way have arrived, and those
// behind them that later has a bit for; bit i stands for PSN una+i.
func (r *reliable) arrivals(n uint32, later uint64) {
	fresh := (ones(n) | later) &^ r.acked
	if fresh == 0 {
		return
	}
	if once := fresh &^ r.resent; once != 0 {
		// Only they tell how long a round trip is (RFC 6298, 3), and one that comes
		// after a later one that it was overtaken (RFC 8985, 6.2, step 3).
		last := uint32(bits.Len64(once) - 1)
		rtt := r.nic.Now - r.frames[(r.Una+last)%core.WindowFrames].sentAt
		r.sample(rtt)
		if r.minRTT == 0 || rtt < r.minRTT {
			r.minRTT = rtt
		}
		r.reordered = r.reordered || bits.TrailingZeros64(once) < bits.Len64(r.acked)
	}
	for b := fresh; b != 0; b &= b - 1 {
		f := &r.frames[(r.Una+uint32(bits.TrailingZeros64(b)))%core.WindowFrames]
		rtt := r.nic.Now - f.sentAt
		if b&-b&r.resent != 0 && rtt < r.minRTT {
			continue // it was an earlier transmission that arrived (RFC 8985, 6.2, step 2)
		}
		if f.number > r.newest {
			r.newest, r.newestRTT = f.number, rtt
		}
	}
	r.acked |= fresh
	r.resend &^= fresh
	r.retransmitAt = 0
	if r.resent != 0 && r.resent&^r.acked == 0 && r.widenedFor > 0 {
		// A recovery is over.
		if r.widenedFor--; r.widenedFor == 0 {
			r.widened = 0
		}
	}
}

// findLost has those frames sent again that are lost: something that was sent later
// has arrived, and so long ago that they are not merely late (RFC 8985, 6.2, step 5).
// A repetition that is lost is found in the same way.
func (r *reliable) findLost() {
	r.suspectAt = 0
	window := r.reorderingWindow()
	for b := ones(r.Nxt-r.Una) &^ (r.acked | r.resend); b != 0; b &= b - 1 {
		f := &r.frames[(r.Una+uint32(bits.TrailingZeros64(b)))%core.WindowFrames]
		if f.number >= r.newest {
			continue
		}
		switch at := f.sentAt + r.newestRTT + window; {
		case at <= r.nic.Now:
			r.resend |= b & -b
			r.doubted = true
		case r.suspectAt == 0 || at < r.suspectAt:
			r.suspectAt = at
		}
	}
	if r.suspectAt != 0 {
		r.nic.NextTick = min(r.nic.NextTick, r.suspectAt)
	}
}

// reorderingWindow bounds how late a frame may be without being lost (RFC 8985, 6.2, step
// 4): nothing, as long as no frame has overtaken another one and enough later ones have
// arrived, else a quarter of the shortest round trip and, with evidence that this is
// too little, more, up to the mean round trip.
func (r *reliable) reorderingWindow() time.Duration {
	if !r.reordered && (r.resent != 0 || bits.OnesCount64(r.acked) >= duplicateThreshold) {
		return 0
	}
	step := max(r.minRTT/4, clockError)
	return min(step*time.Duration(1+int(r.widened)), max(r.srtt, clockError))
}

// takeDuplicates takes the peer's count of frames that it has had twice. That it grows
// is evidence that frames which had been taken for lost were only late, unless the
// wire doubles frames. It counts once in a round trip (RFC 8985, 6.2, step 4), and not
// in one in which frames were repeated because nothing was heard of them.
func (r *reliable) takeDuplicates(count uint32) {
	if int32(count-r.duplicates) <= 0 {
		return // an old acknowledgement
	}
	r.duplicates = count
	if r.doubted && int32(r.Una-r.round) >= 0 {
		r.doubted, r.reordered, r.round = false, true, r.Nxt
		r.widened, r.widenedFor = min(r.widened, 254)+1, widenFor
	}
}

// probeTimeout is for how long nothing new must have been heard before one frame is sent
// as a probe (RFC 8985, 7.2): two round trips, or as long as the peer may be busy with
// something else: a fifth of the least time-out, 1 ms unless the timing is another.
// It is not known before the first round trip.
func (r *reliable) probeTimeout() time.Duration {
	if r.srtt == 0 {
		return r.rto
	}
	return max(2*r.srtt, r.nic.Timing.Retransmit/5)
}

// startTimer starts the timer of the frames under way.
func (r *reliable) startTimer() {
	since := max(r.Heard, r.frames[r.Una%core.WindowFrames].sentAt)
	r.probes, r.backOff, r.timeoutAt = 0, r.rto, since+r.rto
	r.emptyAnswers, r.asking = 0, false
	r.retransmitAt = min(since+r.probeTimeout(), r.timeoutAt)
}

// unanswered is called when that timer runs out. First the oldest of the frames is sent
// again as a probe: the answer says what is missing, and shows which of those sent
// before the probe are lost (RFC 8985, 7.3). If none of a few probes is answered before
// the retransmission timeout, all may be lost, and all are sent again; then after twice
// that time, and so on (RFC 6298, 5.5), until something new is heard. all says which.
func (r *reliable) unanswered() (all bool) {
	missing := ones(r.Nxt-r.Una) &^ r.acked
	r.round = r.Nxt
	if r.nic.Now < r.timeoutAt {
		r.resend |= missing & -missing
		r.retransmitAt = r.timeoutAt
		if r.probes++; r.probes < maxProbes {
			r.retransmitAt = min(r.nic.Now+r.probeTimeout(), r.timeoutAt)
		}
		return false
	}
	r.resend = missing
	r.backOff = min(2*r.backOff, r.nic.Timing.RetransmitMax)
	r.timeoutAt = r.nic.Now + r.backOff
	r.retransmitAt = r.timeoutAt
	r.Unheard(&r.nic.Clock)
	return true
}

// seekCredit reports whether to ask for credit, as there has been none for long: the
// news of it may have been lost.
func (r *reliable) seekCredit() bool {
	switch {
	case r.probeGap == 0:
		r.probeGap = r.probeTimeout()
		r.probeAt, r.asked = r.nic.Now+r.probeGap, false
	case r.nic.Now < r.probeAt:
	case r.asked && r.Pending == 0:
		// A peer that answers, but has no credit to give, is asked less and less often.
		r.probeAt, r.asked = r.nic.Now+r.probeGap, false
		r.probeGap = min(2*r.probeGap, r.nic.Timing.Probe)
	default:
		if !r.asked {
			r.probes, r.backOff = 0, r.rto
		}
		// One that does not answer may only seem dead.
		r.probeAt, r.asked = r.nic.Now+r.probeTimeout(), true
		if r.probes++; r.probes >= maxProbes {
			r.probeAt = r.nic.Now + r.backOff
			r.backOff = min(2*r.backOff, r.nic.Timing.Dead/core.DeadProbes)
		}
		return true
	}
	return false
}

// timeouts looks after a connection with frames under way or without credit.
func (r *reliable) timeouts() {
	c, ep := r.nic, r.Ep
	switch {
	case r.Una == r.Nxt:
		if r.seekCredit() {
			c.Conns.Probe(ep, &r.Liveness)
		}
	case r.retransmitAt == 0:
		r.startTimer()
	case r.nic.Now >= r.retransmitAt:
		if r.unanswered() {
			c.Count(datasheet.CounterTimeouts, 1)
			if c.checkPath(ep) {
				return
			}
		}
		c.Ready.Add(ep)
	}
	if r.suspectAt != 0 && r.nic.Now >= r.suspectAt {
		if r.findLost(); r.resend != 0 {
			c.Ready.Add(ep)
		}
	}
	c.Conns.Expire(ep, &r.Liveness)
}

// takeCount takes the peer's count of data frames that have come.
func (r *reliable) takeCount(count uint32) {
	switch more := int32(count - r.counted); {
	case more > 0:
		r.counted, r.emptyAnswers = count, 0
	case more == 0 && r.asking:
		r.emptyAnswers++
	}
	r.asking = false
}

// checkPath is called when data frames are sent again of which nothing has been heard. It
// asks with a small frame whether any arrives, once they wait for long. It ends the
// connection, and reports that it has, if the peer has said no as often as would show that
// it is dead.
func (c *Transport) checkPath(ep *core.Endpoint) (ended bool) {
	r := rel(ep)
	if r.backOff < c.Timing.RetransmitMax {
		return false
	}
	if r.emptyAnswers >= core.DeadProbes {
		c.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultPathMTU, true)
		return true
	}
	r.asking = c.Tx.SendAck(ep, datasheet.FrameProbe)
	return false
}

// Tick looks after the connections with frames under way or without credit.
func (k *Transport) Tick() {
	k.Busy.Keep(func(ep *core.Endpoint) bool {
		r := rel(ep)
		if r == nil || r.Una == r.Nxt && !r.stalled {
			return false
		}
		r.timeouts()
		return true
	})
}

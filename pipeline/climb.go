package pipeline

import "math"

// Constants of the search for thresholds. Times are shares of a transfer's set-up time.
const (
	// climbSlack is by how much the ends of chains must differ to be told apart: bytes
	// do not arrive as steadily as chains assume.
	climbSlack = 0.1
	// climbAlong is the share of the bytes that come during a decision on which a last
	// transfer counts at first.
	climbAlong = 0.98
	// climbPerTransfer is the assumed cost of a transfer on the bus beside its time:
	// of thresholds that are equally good, the one with fewer transfers is taken.
	climbPerTransfer = 0.02
	// climbTooMany is the cost of more transfers than AMP's.
	climbTooMany = 10
	// climbRival is the distance that the second-best number of transfers may be behind for its
	// thresholds to be improved, too.
	climbRival = 0.3
	// climbLooks is the number of frames that are sent as AMP sends them where outcomes
	// vary by themselves, by more than climbSame.
	climbLooks = 4
	climbSame  = 0.005
)

// cut says how a frame is cut: bytes that must be there for its first and second
// transfer, and bytes that its last one counts on although they are not there yet.
type cut [3]int

const (
	firstTransfer = iota
	secondTransfer
	lastTransfer
)

// outcome is the worth of a cut.
type outcome struct {
	cut       cut
	score     float64 // picoseconds, less is better
	transfers int
	first     int // bytes that were there when the first transfer was decided
	second    int // the same for the second; 0 = there was none
}

// stage of a climb.
type stage uint8

const (
	guessing stage = iota // the cut follows the estimates
	asAMP                 // as AMP would do it, to see how many transfers that takes
	trying                // chains around the guess
	stepping              // around the best
	settled
)

// climb is the search for the cut of frames of one length: local search by measured
// outcomes, one frame for each step. It begins with a guess, tries the thresholds of
// neighbouring chains, and then moves one number of the cut at a time by ever smaller
// steps. The same is done for the best cut with another number of transfers, because
// outcomes jump where that number changes. Then it settles, until outcomes change.
type climb struct {
	length int
	early  bool // the next stage waits for the bytes
	now    cut  // of the frames that come
	hold   int  // bytes that are worth waiting for to save the last transfer
	stage  stage

	unit      float64 // set-up time, picoseconds
	noise     float64 // how far the outcomes of the guess were apart
	refill    float64 // bytes that arrive meanwhile
	most      int     // transfers that AMP takes; 0 = not known
	tries     int     // so far in this stage
	best      outcome
	rival     outcome // best one with another number of transfers
	rivalTurn bool    // the rival's turn has come
	axis      axis
	steady    steadiness
	usual     usual
}

// climbTries are the thresholds that are tried first, in halves of chains from the guess.
var climbTries = [...]int{0, -1, -2, 1, 2, -3, 3}

// guess sets the cut that the estimates suggest. peak is the most bytes of late that
// came during a decision.
func (c *climb) guess(p *planner, peak float64) {
	c.stage, c.unit, c.refill = guessing, p.setup, min(p.refill(), MaxFrame)
	c.hold = int(c.refill)
	c.now = cut{1, 0, int(min(max(climbAlong*max(peak, p.along), 1), MaxFrame))}
	if c.early && p.arrival*p.perByte < 1 {
		return // the engine outruns its source and would only wait: the sooner the better
	}
	p.lay(c.length)
	c.now[firstTransfer] = p.between(2 * p.best(climbSlack*p.setup, c.early))
}

// judge takes the outcome of the last frame, which arrived in so many picoseconds,
// and chooses the next cut. It reports whether the platform seems to be another one.
func (c *climb) judge(o outcome, arrived int64, p *planner, tries int) (changed bool) {
	o.cut = c.now
	c.rate(&o, p)
	c.steady.see(arrived, o.score)
	if c.stage == settled {
		odd, far := c.usual.compare(o.score, float64(arrived), c.unit, tries)
		if !odd {
			c.best.score = c.usual.score
			return false
		}
		c.stage = guessing
		c.steady.restart()
		return far
	}
	if !c.steady.ready(c.stage == guessing, c.early, c.unit) {
		return false
	}
	switch c.stage {
	case guessing:
		c.best, c.rival = o, outcome{score: math.Inf(1)}
		c.tries, c.rivalTurn, c.noise = 0, false, c.steady.spread()
		if c.early {
			c.next(p)
		} else {
			c.stage = asAMP
		}
	case asAMP:
		c.countAMP(o.transfers, p)
	case trying:
		c.compare(&o)
		c.next(p)
	case stepping:
		better, different := c.axis.weigh(o.score, c.best.score, c.unit)
		if better {
			c.best = o
		}
		c.step(c.axis.after(better, different))
	}
	return false
}

// rate completes an outcome's score, which is the time between the frame's arrival and
// its end. If the next stage waits for the bytes, the first of them count as much as
// the last. Otherwise the bus does, and more transfers than AMP takes are out of the
// question.
func (c *climb) rate(o *outcome, p *planner) {
	if c.early {
		o.score += float64(o.first) / p.arrival
		return
	}
	o.score += climbPerTransfer * c.unit * float64(o.transfers)
	if c.most > 0 && o.transfers > c.most {
		o.score += climbTooMany * c.unit
	}
}

// countAMP takes note of how many transfers AMP takes. A guess that takes more is
// dropped for AMP's own threshold.
func (c *climb) countAMP(transfers int, p *planner) {
	c.most = max(c.most, transfers)
	if c.tries++; c.tries < climbLooks && c.noise > climbSame*c.unit {
		return
	}
	c.tries = 0
	if c.best.transfers <= c.most {
		c.next(p)
		return
	}
	c.best.score = math.Inf(1)
	c.stage, c.now = trying, c.best.cut
	c.now[firstTransfer] = min(DefaultMinPulse, c.length)
}

// compare keeps the outcome of a try.
func (c *climb) compare(o *outcome) {
	switch {
	case o.score < c.best.score:
		if o.transfers != c.best.transfers {
			c.rival = c.best
		}
		c.best = *o
	case o.transfers != c.best.transfers && o.score < c.rival.score:
		c.rival = *o
	}
}

// next goes on with the next try, or begins to step.
func (c *climb) next(p *planner) {
	c.stage, c.now = trying, c.best.cut
	p.lay(c.length)
	m := p.best(climbSlack*p.setup, c.early)
	for c.tries < len(climbTries) {
		x := p.between(2*m + climbTries[c.tries])
		c.tries++
		if x > 0 && x != c.best.cut[firstTransfer] {
			c.now[firstTransfer] = x
			return
		}
	}
	c.along(firstTransfer, 1)
}

// along begins to step along an axis of the cut, down to floor.
func (c *climb) along(which, floor int) {
	c.stage = stepping
	c.axis = newAxis(which, floor, c.length, c.refill, c.best.cut[lastTransfer])
	c.step(true)
}

// step chooses the next cut on the axis, if there is one to try, and goes on with
// another axis, or the rival, or settles if there is none.
func (c *climb) step(more bool) {
	if more {
		if c.now, more = c.axis.next(c.best.cut); more {
			return
		}
	}
	switch which := c.axis.which; {
	case c.early: // what it takes from is steady: one threshold is enough
	case which == firstTransfer && c.best.second > 0:
		c.best.cut[secondTransfer] = c.best.second
		c.along(secondTransfer, c.best.second)
		return
	case which != lastTransfer && !c.rivalTurn:
		c.along(lastTransfer, 1)
		return
	}
	if !c.rivalTurn && c.rival.score < c.best.score+climbRival*c.unit {
		c.rivalTurn = true
		c.best, c.rival = c.rival, c.best
		c.along(firstTransfer, 1)
		return
	}
	if c.rivalTurn && c.rival.score < c.best.score {
		c.best = c.rival
	}
	c.now, c.stage = c.best.cut, settled
	c.usual = usual{score: c.best.score, spread: c.noise, arrival: float64(c.steady.arrived)}
}

package pipeline

// Constants of steps along an axis.
const (
	// axisCoarse is the first step of a threshold, as a share of the bytes that arrive
	// while a transfer is set up; axisCoarseLast that of the bytes that a last transfer
	// counts on, as a share of them.
	axisCoarse     = 1.0 / 8
	axisCoarseLast = 1.0 / 3
	// axisFiner is by what steps shrink when neither direction helps.
	axisFiner = 3
	// axisGain is the least that a step must gain, as a share of the set-up time.
	axisGain = 0.005
)

// axisLevels counts how often steps shrink, by number of the cut.
var axisLevels = [...]int{2, 2, 1}

// axis is a pattern search along one number of a cut: steps in one direction while they
// help, then in the other, then smaller ones.
type axis struct {
	which  int // number of the cut
	low    int // its range
	high   int
	step   int
	levels int  // how often the step may still shrink
	down   bool // direction
	turned bool // the other direction has failed at this step
	flat   bool // nothing has made a difference yet
}

func newAxis(which, low, high int, refill float64, last int) axis {
	step := refill * axisCoarse
	if which == lastTransfer {
		step = float64(last) * axisCoarseLast
	}
	return axis{which: which, low: low, high: high, step: int(min(max(step, 1), float64(high))),
		levels: axisLevels[which], down: which == firstTransfer, flat: true}
}

// next returns the next cut to try from the best one, and false if none is left.
func (a *axis) next(best cut) (cut, bool) {
	for {
		by := a.step
		if a.down {
			by = -by
		}
		try := best
		if try[a.which] = min(max(try[a.which]+by, a.low), a.high); try != best {
			return try, true
		}
		if !a.turn() {
			return best, false
		}
	}
}

// weigh reports whether a step gained, and whether it made any difference.
func (a *axis) weigh(score, best, unit float64) (better, different bool) {
	return score < best-axisGain*unit, score < best-axisGain*unit || score > best+axisGain*unit
}

// after takes note of what a step did. It returns false if no further step makes sense.
func (a *axis) after(better, different bool) bool {
	if different {
		a.flat = false
	}
	if better {
		a.turned = false
		return true
	}
	if a.turned && a.flat {
		return false
	}
	return a.turn()
}

// turn goes on after a step that did not help. It returns false if no step is left.
func (a *axis) turn() bool {
	if !a.turned {
		a.turned, a.down = true, !a.down
		return true
	}
	a.turned = false
	a.step /= axisFiner
	a.levels--
	return a.step > 0 && a.levels >= 0
}

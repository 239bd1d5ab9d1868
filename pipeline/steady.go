package pipeline

import (
	"math"
	"slices"
)

// Constants of what is usual. Scores are shares of a transfer's set-up time.
const (
	// steadyArrival bounds how much the time in which a frame arrives may differ from that
	// of the frame before for the outcomes of the two to be compared.
	steadyArrival = 0.001
	// steadyTries bounds how many frames are passed over because they did differ.
	steadyTries = 24
	// steadyOthers is the number of frames that the stage before has for its own search.
	steadyOthers = 12
	// steadyNoise bounds how much the outcomes of the same cut may differ for a search to
	// begin: beyond it a guess is the best that can be had.
	steadyNoise = 0.1
	// usualOff bounds how far the score of a settled cut may go from its former value.
	usualOff = 0.02
	// usualFar is the distance that it goes when the platform has changed, and usualArrival that of
	// the time in which frames arrive, as a share of it.
	usualFar     = 0.5
	usualArrival = 0.05
	// usualSpread is the usual distance in mean deviations.
	usualSpread = 4
)

// steadiness is whether frames can be compared with each other.
type steadiness struct {
	seen         int
	arrived      int64 // time in which the last frame arrived, picoseconds
	steadyFrames int   // frames in a row that arrived like the one before
	passed       int   // frames that did not
	scores       [4]float64
}

// see takes note of a frame.
func (s *steadiness) see(arrived int64, score float64) {
	if math.Abs(float64(arrived-s.arrived)) <= steadyArrival*float64(arrived) {
		s.steadyFrames++
	} else {
		s.steadyFrames = 0
		s.passed++
	}
	s.arrived = arrived
	s.scores[s.seen%len(s.scores)] = score
	s.seen++
}

// restart begins to count anew.
func (s *steadiness) restart() { s.steadyFrames, s.passed = 0, 0 }

// ready reports whether the last frame can be judged. Before a search begins the same
// cut must have had much the same outcome some times, and the stage before must have had
// time for its own search, unless early says that there is none.
func (s *steadiness) ready(begins, early bool, unit float64) bool {
	switch {
	case !begins:
		return s.steadyFrames > 0 || s.passed > steadyTries
	case s.spread() > steadyNoise*unit:
		return false
	case s.passed > steadyTries+steadyOthers:
		return true
	case early:
		return s.steadyFrames > 0
	}
	return s.seen > steadyOthers && s.steadyFrames > 2
}

// spread returns how far the scores of the last frames are apart.
func (s *steadiness) spread() float64 { return slices.Max(s.scores[:]) - slices.Min(s.scores[:]) }

// usual describes the frames since a search has settled.
type usual struct {
	score, spread   float64 // mean and mean deviation, picoseconds
	arrival, jitter float64 // of the time in which frames arrive
	alarms          int     // frames in a row that were not as usual
	quiet           int     // frames that were
}

// compare takes note of a frame. odd reports that more frames in a row than tries
// allows were not as usual, and far that they were far off.
func (u *usual) compare(score, arrival, unit float64, tries int) (odd, far bool) {
	off, late := math.Abs(score-u.score), math.Abs(arrival-u.arrival)
	far = off > max(usualSpread*u.spread, usualFar*unit) || late > max(usualSpread*u.jitter, usualArrival*u.arrival)
	alarm := far || off > max(usualSpread*u.spread, usualOff*unit)
	u.spread += (off - u.spread) / 64
	u.jitter += (late - u.jitter) / 64
	if alarm {
		u.alarms++
		return u.alarms > tries, far
	}
	u.alarms = 0
	u.quiet++
	u.score += (score - u.score) / 8
	return false, false
}

package pipeline

// Preference is which of several nearly equal plans Auto takes.
type Preference int

const (
	// FewTransfers takes the fewest transfers: for hostRcv, whose every transfer
	// occupies the bus.
	FewTransfers Preference = iota
	// EarlyBytes takes the smallest first transfer: for netTx, whose bytes the
	// next stage is waiting for.
	EarlyBytes
)

// AutoLearns is the number of lone frames of one length after which Auto has found its
// thresholds on a steady platform.
const AutoLearns = 96

// Constants of Auto.
const (
	// autoLoaded is the number of frames in a row that must leave with others
	// behind them before frames are no longer cut.
	autoLoaded = 2
	// autoLengths is the number of frame lengths that are remembered, a power of two.
	autoLengths = 16
	// autoTries bounds the frames in a row that must be unusual for a new search.
	autoTries = 8
	// autoQuiet is the number of usual frames that halve it.
	autoQuiet = 64
)

// FrameObserver is implemented by policies that learn from how frames end. A mover
// that knows the time calls it after the Observe of a frame's last transfer. tail is
// from the arrival of the frame's last byte to the end of that transfer, in
// picoseconds: what the outgoing side adds to the incoming one.
type FrameObserver interface {
	ObserveFrame(length int, tail int64)
}

// Auto is AMP whose thresholds are learned on line, with no profile given. It learns
// in two ways.
//
// From observed transfers it learns what n bytes cost, T(n) = setup + n/rate, what the
// first transfer of a frame costs beside that, how many bytes come while a decision is
// made, and how fast bytes arrive. If each transfer takes what arrived during the one
// before, the engine never waits; for each number of transfers it follows when the
// first one must start for the last to end the frame. The start that ends the frame
// first is Auto's guess. From there on it takes what is there whenever the engine is
// idle, unless the rest will be there sooner than a transfer of its own would cost.
//
// From a mover that says how frames end (FrameObserver) it learns what a guess was
// worth. For each length of frame it tries thresholds around the guess, one frame for
// each, and keeps the best until what it sees changes.
//
// When frames leave with others waiting behind them, latency no longer matters
// and Auto stores and forwards, which costs the fewest transfers. Until it knows
// costs, it is AMP with DefaultMinPulse on every other frame.
type Auto struct {
	prefer  Preference
	cost    costs
	arrival average // bytes per picosecond
	setup   average // picoseconds between decision and start
	plan    planner // what follows from these
	known   bool    // plan can be used
	loaded  int     // frames in a row that left others behind
	frames  int     // that have left

	// The frame that is leaving.
	transfers int // that have ended
	agreed    int // bytes that were there when the answer for the next transfer was yes
	first     int // the same for its first transfer
	second    int // and for its second; 0 = there was none
	// The frame that has left.
	ended   int   // its transfers
	alone   bool  // nothing was behind it or behind the one before
	queued  int   // behind it
	elapsed int64 // time in which the last frame arrived, picoseconds

	peak    float64 // bytes that come during a decision, the most of late
	climbs  [autoLengths]climb
	current *climb // of the length that was asked for last
	tries   int    // unusual frames in a row that are not worth a new search
}

// NewAuto returns a policy that has learned nothing.
func NewAuto(p Preference) *Auto { return &Auto{prefer: p, agreed: MaxFrame, tries: 1} }

// Next implements Policy.
func (a *Auto) Next(v View) int {
	n := v.Available()
	if v.Sent == 0 && a.transfers > 0 {
		a.transfers, a.agreed = 0, MaxFrame // the frame before was dropped half-way
	}
	if v.Finished() {
		return n
	}
	next, last, hold := a.thresholds(v)
	if n >= last || n >= next && last-n > hold {
		a.agreed = min(a.agreed, n)
		return n
	}
	return 0
}

// Wait implements waiter.
func (a *Auto) Wait(v View) int {
	next, last, hold := a.thresholds(v)
	if v.Available() < next && last-next > hold {
		return v.Sent + next
	}
	return v.Sent + last
}

// thresholds returns how many bytes must be there for the next transfer of a frame and
// for its last one, and how many missing to the last one are worth waiting for.
func (a *Auto) thresholds(v View) (next, last, hold int) {
	left := v.Length - v.Sent
	if a.loaded == autoLoaded {
		return left, left, -1
	}
	if !a.known {
		if a.frames%2 == 1 {
			return left, left, -1
		}
		return min(DefaultMinPulse, left), left, -1
	}
	c := a.current
	if c == nil || c.length != v.Length {
		c = a.of(v.Length)
	}
	if c.stage == asAMP {
		return min(DefaultMinPulse, left), left, -1
	}
	last = max(left-c.now[lastTransfer], 1)
	switch next = min(c.now[firstTransfer], DefaultMinPulse); {
	case v.Sent == 0:
		if c.early {
			return min(c.now[firstTransfer], last), last, 0
		}
		next = c.now[firstTransfer]
	case a.transfers == 1:
		next = max(next, c.now[secondTransfer])
	}
	return min(next, last), last, c.hold
}

// of returns what is known about frames of a length, and forgets another length for it
// if there is no room.
func (a *Auto) of(length int) *climb {
	c := &a.climbs[uint32(length)*0x9e3779b1>>28%autoLengths]
	if c.length != length {
		*c = climb{length: length, early: a.prefer == EarlyBytes}
	}
	if c.stage == guessing {
		c.guess(&a.plan, a.peak)
	}
	a.current = c
	return c
}

// Observe implements Observer.
func (a *Auto) Observe(o Observation) {
	if o.Bytes < 1 || o.Elapsed <= 0 {
		return
	}
	a.cost.add(float64(o.Bytes), a.transfers == 0, float64(o.Elapsed))
	a.setup.add(float64(o.Decision))
	if came := float64(o.Bytes - a.agreed); came > a.peak {
		a.peak = came
	} else if came >= 0 && o.Left > 0 {
		a.peak += (came - a.peak) / 32
	}
	switch a.transfers {
	case 0:
		a.first, a.second = min(a.agreed, o.Bytes), 0
	case 1:
		a.second = min(a.agreed, o.Bytes)
	}
	a.agreed = MaxFrame
	a.transfers++
	if o.Left == 0 {
		a.left(o.Queued)
	}
}

// left takes note that a frame has left, with others behind it.
func (a *Auto) left(queued int) {
	a.frames++
	a.ended, a.transfers = a.transfers, 0
	a.alone, a.queued = a.queued == 0 && queued == 0, queued
	if queued == 0 {
		a.loaded = 0
	} else {
		a.loaded = min(a.loaded+1, autoLoaded)
	}
	a.cost.solve()
	if a.known = a.cost.known && a.arrival.value > 0; !a.known {
		return
	}
	p := &a.plan
	p.arrival, p.setup, p.perByte = a.arrival.value, a.cost.setup, a.cost.perByte
	p.along = p.arrival * a.setup.value
	if c := a.current; c != nil && c.stage == guessing {
		c.guess(p, a.peak)
	}
}

// ObserveArrival implements Observer.
func (a *Auto) ObserveArrival(bytes int, elapsed int64) {
	if bytes > 0 && elapsed > 0 {
		a.arrival.add(float64(bytes) / float64(elapsed))
		a.elapsed = elapsed
	}
}

// ObserveFrame implements FrameObserver.
func (a *Auto) ObserveFrame(length int, tail int64) {
	c := a.current
	if !a.known || !a.alone || c == nil || c.length != length || tail < 0 {
		return
	}
	o := outcome{score: float64(tail), transfers: a.ended, first: a.first, second: a.second}
	before := c.stage
	changed := c.judge(o, a.elapsed, &a.plan, a.tries)
	switch {
	case c.stage == guessing && before == settled:
		a.tries = min(2*a.tries, autoTries)
	case c.stage == settled && c.usual.quiet >= autoQuiet:
		c.usual.quiet = 0
		a.tries = max(a.tries/2, 1)
	}
	if changed {
		*a = Auto{prefer: a.prefer, agreed: MaxFrame, tries: a.tries}
	}
}

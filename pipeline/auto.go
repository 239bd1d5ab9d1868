package pipeline

import "math"

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

// Constants of Auto.
const (
	// autoBonus is what starting at once is held to gain, as a share of a transfer's
	// set-up time, where bytes should be early and the engine outruns its source: one
	// more transfer is then free, because the engine would only wait.
	autoBonus = 1.0
	// autoSlack is the same elsewhere: plans that differ by less are held to be equal,
	// because bytes do not arrive as steadily as the plans assume.
	autoSlack = 0.1
	// autoMaxTransfers bounds the plans that are considered.
	autoMaxTransfers = 32
	// autoLoaded is the number of frames in a row that must leave with others
	// behind them before frames are no longer cut.
	autoLoaded = 2
	// autoEarly is the first guess of how early a last transfer may start.
	autoEarly = 0.9
)

// Auto is AMP whose thresholds are learned on line, with no profile given. From
// observed transfers it learns what n bytes cost, T(n) = setup + n/rate, and how
// fast bytes arrive. It then starts the first transfer of a frame when just so
// much has arrived that from there on the engine never waits and the last
// transfer ends the frame:
//
// If each transfer takes what arrived during the one before, their sizes obey
// n[k+1] = arrival * T(n[k]). For m transfers that add up to what is left of the
// frame this fixes n[1], and the end of the frame follows. Auto takes the m whose
// end is earliest, and asks again before every transfer, so that errors of the
// estimates correct themselves.
//
// When frames leave with others waiting behind them, latency no longer matters
// and Auto stores and forwards, which costs the fewest transfers. Until it has
// learned, it is AMP with DefaultMinPulse on every other frame.
type Auto struct {
	prefer  Preference
	cost    line    // picoseconds as a function of bytes
	arrival average // bytes per picosecond
	setup   average // picoseconds between decision and start
	loaded  int     // frames in a row that left others behind
	frames  int     // that have left
	early   float64 // share of the set-up time by which last transfers start early
	limit   float64 // early stays below it

	plan  planner // for laid bytes left of a frame
	laid  int     // 0 = plan is out of date
	known bool    // plan can be used
}

// NewAuto returns a policy that has learned nothing.
func NewAuto(p Preference) *Auto { return &Auto{prefer: p, early: autoEarly, limit: 1} }

// Next implements Policy.
func (a *Auto) Next(v View) int {
	n := v.Available()
	if v.Finished() || a.starts(n, v.Length-v.Sent) {
		return n
	}
	return 0
}

// Observe implements Observer.
func (a *Auto) Observe(o Observation) {
	if o.Bytes < 1 || o.Elapsed <= 0 {
		return
	}
	a.laid = 0
	a.cost.add(float64(o.Bytes), float64(o.Elapsed))
	a.setup.add(float64(o.Decision))
	a.adjust(o.Left)
	if o.Left > 0 {
		return
	}
	a.frames++
	if o.Queued > 0 {
		a.loaded = min(a.loaded+1, autoLoaded)
	} else {
		a.loaded = 0
	}
}

// adjust learns how early a frame's last transfer may start. One that starts too
// early leaves a few bytes behind, which cost a transfer of their own.
func (a *Auto) adjust(left int) {
	switch {
	case left == 0:
		a.early += (a.limit - a.early) / 8
		a.limit = min(a.limit*1.02, 1)
	case float64(left) < a.arrival.value*a.setup.value/2:
		a.early *= 0.9
		a.limit = a.early
	}
}

// ObserveArrival implements Observer.
func (a *Auto) ObserveArrival(bytes int, elapsed int64) {
	if bytes > 0 && elapsed > 0 {
		a.laid = 0
		a.arrival.add(float64(bytes) / float64(elapsed))
	}
}

// Wait implements Waiter.
func (a *Auto) Wait(v View) int {
	p := a.planned(v.Length - v.Sent)
	if p == nil {
		if a.cautious() {
			return v.Length
		}
		return v.Sent + DefaultMinPulse
	}
	if m, _ := p.best(float64(v.Available())); m >= 0 {
		return v.Sent + int(math.Ceil(p.wait[m]))
	}
	return v.Arrived
}

// starts reports whether a transfer should start now that n of the left bytes of a
// frame are there.
func (a *Auto) starts(n, left int) bool {
	p := a.planned(left)
	if p == nil {
		return !a.cautious() && n >= DefaultMinPulse
	}
	return p.start(float64(n))
}

// cautious reports whether to store and forward because there is load, or because
// nothing is known yet and transfers of another size teach what a byte costs.
func (a *Auto) cautious() bool { return a.loaded == autoLoaded || a.frames%2 == 1 }

// planned returns the chains for the left bytes of a frame, and nil under load and
// before costs are known. They are laid out once for each transfer.
func (a *Auto) planned(left int) *planner {
	if a.laid != left {
		a.lay(left)
	}
	if !a.known {
		return nil
	}
	return &a.plan
}

func (a *Auto) lay(left int) {
	a.laid = left
	setup, perByte, ok := a.cost.fit()
	if a.known = ok && a.arrival.value > 0 && a.loaded < autoLoaded; !a.known {
		return
	}
	p := &a.plan
	p.arrival, p.setup, p.perByte, p.left = a.arrival.value, setup, perByte, float64(left)
	p.along, p.early = a.arrival.value*a.setup.value, a.early
	p.bonus = autoSlack * setup
	if a.prefer == EarlyBytes && p.arrival*perByte < 1 {
		p.bonus = autoBonus * setup
	}
	p.lay()
}

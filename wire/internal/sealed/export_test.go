package sealed

// Window is a replay window for tests.
type Window struct{ w window }

// Take reports whether a number is new, and takes note of it.
func (w *Window) Take(n uint64) bool {
	if !w.w.fresh(n) {
		return false
	}
	w.w.mark(n)
	return true
}

// Sessions says how many sessions a tunnel remembers, used or not.
func (t *Tunnel) Sessions() int { return len(t.sessions) }

// Links says how many addresses a tunnel remembers.
func (t *Tunnel) Links() int { return len(t.links) }

// Bounds of what a tunnel remembers.
const (
	MaxUnconfirmed = maxUnconfirmed
	MaxSessions    = maxSessions
)

package driver

import "time"

// Waiting says how waits go on while nothing happens: they spin, then they let other
// goroutines run between two looks, then they arm an interrupt and sleep.
type Waiting struct {
	// Spin and Yield are for how long. Zero stands for 100 looks and for 50, a negative
	// time for not at all.
	Spin, Yield time.Duration
	// Sleep is the longest time between two looks of a wait that sleeps; interrupts end
	// a sleep as ever. Zero stands for 5 ms at first, and up to 50 ms of a wait that has
	// been in vain for long. With a negative time waits never sleep.
	Sleep time.Duration
}

// SetWaiting has waits that begin from now on go on as w says.
func (n *NIC) SetWaiting(w Waiting) { n.waiting.Store(&w) }

// pace says what a waiter does between two looks.
type pace uint8

const (
	spinning pace = iota
	yielding
	sleeping
)

// looksPerTime is the number of looks of a waiter that spins for a time between two looks at the
// clock.
const looksPerTime = 16

// keepPace changes the pace if its time is over, or the number of looks if there is none, and returns it.
func (w *waiter) keepPace(o *Waiting) pace {
	for w.pace < sleeping {
		limit, looks := o.Spin, spins
		if w.pace == yielding {
			limit, looks = o.Yield, yields
		}
		n := w.round - w.since
		switch {
		case limit <= 0:
		case n == 1:
			w.began = time.Now()
		case n%looksPerTime == 0:
			w.past = time.Since(w.began)
		}
		if limit == 0 && n <= looks || w.past < limit {
			return w.pace
		}
		w.pace, w.since, w.past = w.pace+1, w.round-1, 0
	}
	if o.Sleep < 0 {
		return yielding
	}
	return sleeping
}

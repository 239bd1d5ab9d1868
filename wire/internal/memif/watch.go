package memif

import "time"

const (
	// lookEvery is the time between two looks at the rings of a port with a sleeper to wake.
	// After askedLooks looks in a row that found interrupts asked for, the pace is
	// lookSlowly. It does not end: a peer without a barrier between its index and
	// its look at the flags may miss that these have changed.
	lookEvery  = time.Millisecond
	lookSlowly = 100 * time.Millisecond
	askedLooks = 2
	// stormLimit is the number of interrupts in a row that may be for nothing. Then they
	// are not looked at for lookEvery.
	stormLimit = 64
	// unblockEvery is the time that the peer can keep a signal waiting.
	unblockEvery = 100 * time.Millisecond
)

// watch wakes the sleeper of a connection.
type watch struct {
	port         *Port
	session      *session
	next         time.Time // when to look at the rings again; zero: whenever there is a look at anything
	idleRounds   int
	emptyWakeups int
	maskedUntil  time.Time // no interrupts are looked at until then
}

// interrupted passes an interrupt on.
func (w *watch) interrupted() error {
	p := w.port
	p.counters.interrupts.Add(1)
	pending, err := w.pending()
	if err != nil {
		return err
	}
	w.idleRounds = 0
	if pending {
		w.emptyWakeups = 0
		p.Wake.Call()
		return nil
	}
	p.counters.spurious.Add(1)
	if w.emptyWakeups++; w.emptyWakeups >= stormLimit {
		w.emptyWakeups = 0
		w.maskedUntil = time.Now().Add(lookEvery)
	}
	return nil
}

// tick does what is to be done from time to time if a sleeper is to be woken,
// and sets when the next time is.
func (w *watch) tick(now time.Time) error {
	if now.Before(w.next) {
		return nil
	}
	p := w.port
	interrupts := p.interrupts.Load()
	switch {
	case interrupts == p.masked.Load():
		// Interrupts are off although they are wanted, because frames came some
		// time ago, or the other way around.
		p.masked.Store(!interrupts)
		w.idleRounds = 0
		err := w.session.careful(func() {
			for _, r := range w.session.receivers {
				r.SetInterrupts(interrupts)
			}
		})
		if err != nil {
			return err
		}
	case interrupts:
		w.idleRounds = min(w.idleRounds+1, askedLooks)
	}
	w.next = time.Time{}
	if !p.Wake.IsSet() {
		return nil
	}
	w.next = now.Add(lookEvery)
	if interrupts && w.idleRounds == askedLooks {
		w.next = now.Add(lookSlowly)
	}
	pending, err := w.pending()
	if err == nil && pending {
		p.Wake.Call()
	}
	return err
}

// pending reports whether there are frames to be received.
func (w *watch) pending() (any bool, err error) {
	err = w.session.careful(func() {
		for _, r := range w.session.receivers {
			any = any || r.Pending()
		}
	})
	return any, err
}

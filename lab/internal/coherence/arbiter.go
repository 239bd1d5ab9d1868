package coherence

import "github.com/trapeze-nic/trapeze/lab/internal/profile"

// timeout bounds the wait of a processor for a bus. A longer one counts as starving: it is some
// hundred transactions.
const timeout = Time(1e8)

// arbiter decides between the processor and what the NIC has asked for.
type arbiter struct {
	first   profile.First // Empty: in turn.
	queue   int           // Transactions of the processor that go one after the other, with ProcessorFirst.
	row     int           // Those that have.
	last    Time          // The span of the last transaction.
	starved bool          // The processor has waited for too long.
}

// pause is the time without a use of the processor for the bus after which the NIC gets in.
func (b *bus) pause() Time {
	if b.first == profile.ProcessorFirst {
		return b.last
	}
	return 0
}

// before reports whether a request of the NIC goes before one that the processor makes at a time.
//
// A processor that runs ahead of its memory keeps the bridge's queue filled: the pauses
// between its transactions are too short for another. So the NIC gets in where one fits
// into a pause, or when as many as the queue holds have gone.
func (b *bus) before(r request, at Time) bool {
	grant := b.grant(r.at)
	switch {
	case b.starved || grant > at && grant-at > timeout:
		b.starved = true
		return false
	case r.joins, b.row >= b.queue && b.first == profile.ProcessorFirst:
		return r.at <= b.grant(at)
	case b.first == profile.ProcessorFirst:
		return grant+b.pause() <= at
	case b.first == profile.DMAFirst:
		return r.at <= b.grant(at)
	}
	return r.at <= at
}

package ethernet

import "time"

// Clock is the PTP clock of a NIC, which stamps frames. A Port that has one implements Clocked.
// Times are nanoseconds since the clock's beginning, which is that of TAI for a clock that follows a
// grandmaster. Methods may be called from several goroutines, and wait for the device.
type Clock interface {
	// Read returns the time. It fails with ErrProtocol if the clock has gone backward, though
	// it was not set.
	Read() (int64, error)
	// Set sets the time, 0 or more.
	Set(at int64) error
	// Shift adds an offset of less than a second, which may be negative.
	Shift(by time.Duration) error
	// Trim has the clock run faster by so many parts in 10^9, up to MaxTrim, than it does by itself.
	Trim(ppb float64) error
	// Outputs returns how many outputs there are for Pulse.
	Outputs() int
	// Pulse has output i give a pulse of a width at a time, and then again with each period. A
	// period of 0 ends that.
	Pulse(i int, at int64, period, width time.Duration) error
}

// MaxTrim is the largest change of the rate by Clock.Trim, in parts in 10^9.
const MaxTrim = 1e8

// Clocked is a Port with a clock.
type Clocked interface {
	Port
	// Clock returns the clock; nil if this design of the NIC has none.
	Clock() Clock
}

// StampedQueue is a Queue of a NIC that stamps frames.
type StampedQueue interface {
	Queue
	// ReceiveAt is Receive that tells, too, when each frame came, as a time of the NIC's clock. It
	// receives no more frames than there is room for times, and fails with ErrNotSupported without
	// a clock.
	ReceiveAt(frames []Frame, at []int64) (int, error)
}

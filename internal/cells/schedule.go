package cells

// Step is the next step of a NIC with channels. It does one thing at a time.
type Step uint8

// The steps.
const (
	Idle    Step = iota // nothing waits, or nothing may go
	Receive             // store a cell that was received
	High                // send a cell of high priority
	Low                 // send a cell of low priority
	Steps
)

// MarshalText encodes s as String does.
func (s Step) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var stepNames = [Steps]string{"idle", "receive", "high", "low"}

func (s Step) String() string {
	if s < Steps {
		return stepNames[s]
	}
	return "unknown step"
}

// Waiting has the work that waits for its turn at a NIC: the question to the scheduler, which is
// put before each cell. The caller carries the answer out and asks again. So a message of
// high priority, which may have come in the meantime, goes between two cells of one of low
// priority, and that one goes on behind it.
type Waiting struct {
	Received bool // cells in the receive FIFO
	High     bool // cells of the message at the head of the FIFO for high priority
	Low      bool // and of that for low priority
	// Stopped: the peer's receive FIFO is fuller than its mark and it has not said
	// start, or the wire has no room. Nothing is sent then, of either priority.
	Stopped bool
}

// Next is the one scheduler of cells: those received first, for they have nowhere else to
// wait, then high priority, then low.
func (w Waiting) Next() Step {
	switch {
	case w.Received:
		return Receive
	case w.Stopped:
		return Idle
	case w.High:
		return High
	case w.Low:
		return Low
	}
	return Idle
}

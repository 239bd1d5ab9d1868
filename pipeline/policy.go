package pipeline

// MaxFrame is the longest frame a Device takes, in bytes: far more than any wire carries.
const MaxFrame = 16 << 20

// View holds what a policy may look at: the oldest frame that has not left, and how
// much waits behind it. All sizes are in bytes.
type View struct {
	Length  int // of the whole frame, 1 to MaxFrame
	Arrived int // read from the incoming progress counter, 0 to Length
	Sent    int // handed to the outgoing controller so far, 0 to Arrived
	Queued  int // frames behind this one: in buffers, or known to wait at the source
}

// Available returns the bytes that have arrived and have not been sent.
func (v View) Available() int { return v.Arrived - v.Sent }

// Finished reports whether the source has delivered the whole frame.
func (v View) Finished() bool { return v.Arrived == v.Length }

// Policy answers the one question of the scheduler: how many bytes may the idle
// outgoing controller move now? 0 means wait. An answer depends on the view and
// on what the policy has learned, not on how often it was asked, so that a mover
// may ask ahead ("and if 512 bytes had arrived?") instead of polling.
//
// Device holds every policy to two rules: more than Available is cut to it, and
// once a frame has finished, what is left goes even if the answer is 0.
type Policy interface {
	Next(v View) int
}

// waiter is implemented by policies that know when their answer will change. Wait
// returns how many bytes of the frame must have arrived before Next is worth
// asking again. Of other policies Device finds that out by asking.
type waiter interface {
	Wait(v View) int
}

// Observation is the cost of one outgoing transfer. Times are in picoseconds.
type Observation struct {
	Bytes    int   // moved
	Elapsed  int64 // from the decision to the end of the transfer
	Decision int64 // part of Elapsed: from the decision to the start of the transfer
	Left     int   // bytes of the frame that have not been sent; 0 = the frame has left
	Queued   int   // frames behind, as in View
}

// Observer is implemented by policies that learn. A mover that knows the time
// reports every outgoing transfer when it ends, and for every frame how long its
// bytes took to arrive, from the first to the last.
type Observer interface {
	Observe(o Observation)
	ObserveArrival(bytes int, elapsed int64)
}

// StoreAndForward moves a frame when all of it has arrived. With two or more
// buffers successive frames overlap (patent, figure 2: double buffering).
type StoreAndForward struct{}

// Next implements Policy.
func (StoreAndForward) Next(v View) int {
	if v.Finished() {
		return v.Available()
	}
	return 0
}

// Static moves exactly one pulse whenever that much has arrived, and what is
// left at the end of the frame. Sources: "static cut-through" of the Trapeze
// cut-through paper, section 4.1; fixed fragments as in FM and AM, and at cell
// size (48 bytes) as in APIC; patent, figure 3.
type Static struct {
	Pulse int // bytes, 1 or more
}

// Next implements Policy.
func (s Static) Next(v View) int {
	if n := v.Available(); n < s.Pulse {
		if v.Finished() {
			return n
		}
		return 0
	}
	return s.Pulse
}

// Within is a policy that uses at most some of the NIC's buffers. With one, a frame has left before
// the next begins to arrive; with two, the next arrives meanwhile.
type Within struct {
	Policy
	Buffers int // 1 or more
}

// BuffersOf returns how many of a NIC's buffers a policy uses.
func BuffersOf(p Policy, buffers int) int {
	if w, ok := p.(Within); ok {
		return max(min(w.Buffers, buffers), 1)
	}
	return buffers
}

// Eager waits for MinPulse bytes and then moves all that have arrived. With one
// buffer it is the pure cut-through of CS-1997-20; with several it is adaptive
// message pipelining (AMP; patent, figure 5): under load data accumulates, the
// transfers grow, and the pipeline becomes store and forward by itself.
type Eager struct {
	MinPulse int // bytes, 1 or more
}

// Next implements Policy.
func (e Eager) Next(v View) int {
	if n := v.Available(); n >= e.MinPulse || v.Finished() {
		return n
	}
	return 0
}

package pipeline

import (
	"fmt"
	"strings"
)

// Defaults where the caller states no size.
const (
	// DefaultMinPulse is the best threshold that CS-1997-20, section 3.1, found
	// for eager cut-through of 8 KiB payloads (bytes).
	DefaultMinPulse = 128
	// DefaultPulse is the near-optimal single pulse size of the cut-through
	// paper, section 4.1, for 8 KiB payloads (bytes).
	DefaultPulse = 1280
)

// Parameters of a policy. A zero or empty field means the policy's default.
type Parameters struct {
	MinPulseSend    int    // threshold or pulse of netTx, bytes
	MinPulseReceive int    // threshold or pulse of hostRcv, bytes
	OptimalSend     []Step // netTx, as package lab/internal/search finds them
	OptimalReceive  []Step // hostRcv
}

// Plan is a delivery policy for both NICs: what decides netTx at the sender and
// hostRcv at the receiver, and whether frames may overlap.
type Plan struct {
	Name    string
	Buffers int           // buffers in each direction; 0 = as many as the NIC has
	Send    func() Policy // makes the policy of one flow's netTx
	Receive func() Policy // makes the policy of one flow's hostRcv
}

// Named describes a policy that can be chosen by name.
type Named struct {
	Name    string
	Summary string
	build   func(p Parameters) (Plan, error)
}

// Schedules of pulse sizes, in bytes. Sending tolerates small pulses because they cost no bus transfer.
var (
	bothSchedule    = []int{128, 256, 512, 1024, 2048}
	sendSchedule    = []int{128, 256, 512}
	receiveSchedule = []int{256, 512, 1024, 1536, 2048}
)

var catalogue = []Named{
	{"store-and-forward", "a frame moves on when all of it has arrived; frames overlap", func(Parameters) (Plan, error) {
		return same("store-and-forward", 0, StoreAndForward{}), nil
	}},
	{"static", "fixed pulses of --minpulse-send and --minpulse-recv bytes; frames overlap", func(p Parameters) (Plan, error) {
		return pulses("static", 0, p, DefaultPulse, func(n int) Policy { return Static{Pulse: n} }), nil
	}},
	{"schedule", "one schedule of pulse sizes for both sides; frames overlap", func(Parameters) (Plan, error) {
		return schedules("schedule", bothSchedule, bothSchedule), nil
	}},
	{"table", "fixed pulses, size looked up by frame length (BIP); frames overlap", func(Parameters) (Plan, error) {
		return same("table", 0, Table{}), nil
	}},
	{"send-side", "a schedule when sending, store and forward when receiving (PM); frames overlap", func(Parameters) (Plan, error) {
		plan := schedules("send-side", bothSchedule, nil)
		plan.Receive = func() Policy { return StoreAndForward{} }
		return plan, nil
	}},
	{"hierarchical", "a schedule of its own for each side (Wang et al.); frames overlap", func(Parameters) (Plan, error) {
		return schedules("hierarchical", sendSchedule, receiveSchedule), nil
	}},
	{"cut-through", "fixed pulses, one frame at a time", func(p Parameters) (Plan, error) {
		return pulses("cut-through", 1, p, DefaultPulse, func(n int) Policy { return Static{Pulse: n} }), nil
	}},
	{"eager", "everything that has arrived, from a threshold on; two buffers", func(p Parameters) (Plan, error) {
		return pulses("eager", 2, p, DefaultMinPulse, func(n int) Policy { return Eager{MinPulse: n} }), nil
	}},
	{"pure-cut-through", "eager, one frame at a time (cut-through of CS-1997-20)", func(p Parameters) (Plan, error) {
		return pulses("pure-cut-through", 1, p, DefaultMinPulse, func(n int) Policy { return Eager{MinPulse: n} }), nil
	}},
	{"amp", "adaptive message pipelining: eager with all of the NIC's buffers", func(p Parameters) (Plan, error) {
		return pulses("amp", 0, p, DefaultMinPulse, func(n int) Policy { return Eager{MinPulse: n} }), nil
	}},
	{"optimal", "explicit schedules computed off line for the platform and the payload", func(p Parameters) (Plan, error) {
		send, err := NewSteps(p.OptimalSend)
		if err != nil {
			return Plan{}, err
		}
		receive, err := NewSteps(p.OptimalReceive)
		if err != nil {
			return Plan{}, err
		}
		return Plan{Name: "optimal", Send: func() Policy { return send }, Receive: func() Policy { return receive }}, nil
	}},
	{"auto", "AMP whose thresholds are learned from observed transfers; no profile needed", func(Parameters) (Plan, error) {
		return Plan{Name: "auto", Send: func() Policy { return NewAuto(EarlyBytes) }, Receive: func() Policy { return NewAuto(FewTransfers) }}, nil
	}},
}

// Catalogue returns the policies that can be chosen by name.
func Catalogue() []Named { return append([]Named(nil), catalogue...) }

// PolicyNames returns their names, in the catalogue's order.
func PolicyNames() []string {
	names := make([]string, len(catalogue))
	for i, n := range catalogue {
		names[i] = n.Name
	}
	return names
}

// ByName makes a plan. Errors are *ParameterError.
func ByName(name string, p Parameters) (Plan, error) {
	for _, side := range []struct {
		key   string
		value int
	}{{"minpulse-send", p.MinPulseSend}, {"minpulse-recv", p.MinPulseReceive}} {
		if side.value < 0 || side.value > MaxFrame {
			return Plan{}, outOfRange(name, side.key, side.value, fmt.Sprintf("1 to %d bytes", MaxFrame))
		}
	}
	for _, n := range catalogue {
		if n.Name == name {
			return n.build(p)
		}
	}
	return Plan{}, &ParameterError{Policy: "policy", Name: "name", Value: name, Allowed: strings.Join(PolicyNames(), ", "), Err: ErrUnknownPolicy}
}

// same makes a plan whose two sides share one policy without state.
func same(name string, buffers int, p Policy) Plan {
	f := func() Policy { return p }
	return Plan{Name: name, Buffers: buffers, Send: f, Receive: f}
}

func pulses(name string, buffers int, p Parameters, fallback int, build func(int) Policy) Plan {
	side := func(n int) func() Policy {
		if n == 0 {
			n = fallback
		}
		policy := build(n)
		return func() Policy { return policy }
	}
	return Plan{Name: name, Buffers: buffers, Send: side(p.MinPulseSend), Receive: side(p.MinPulseReceive)}
}

func schedules(name string, send, receive []int) Plan {
	s, r := pulsesOf(send), pulsesOf(receive)
	return Plan{Name: name, Send: func() Policy { return s }, Receive: func() Policy { return r }}
}

// Package breakdown tells where the time of one message goes, step by step, and
// what the machine takes at least.
package breakdown

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/via"
)

// Layer is one of those that the SONIC-VIA paper has (section 6). Its third one, the kernel
// agent, opens, connects and registers, and has no step of a message.
type Layer string

// Layers.
const (
	Application  Layer = "application"   // the program's thread in the provider's library
	MessageLayer Layer = "message layer" // the NICs
)

// Step is one step of a message's way.
type Step struct {
	Name  string  `json:"step"`
	Ns    float64 `json:"ns"`
	Layer Layer   `json:"layer"`
	What  string  `json:"what"`
}

// Result is one message by step, and the limits.
type Result struct {
	Bytes int    `json:"bytes"`
	Steps []Step `json:"steps"`
	// Sum of the steps; Whole is the same message without any borders in it, and
	// Remainder what the steps leave of it.
	Sum       float64 `json:"sum_ns"`
	Whole     float64 `json:"whole_ns"`
	Remainder float64 `json:"remainder_ns"`
	// Border holds what one look at the counter takes; it has been taken off.
	Border float64 `json:"border_ns"`
	Limits Limits  `json:"limits"`
}

// Spent is the sum of a layer's steps, in nanoseconds.
func (r *Result) Spent(l Layer) (ns float64) {
	for _, s := range r.Steps {
		if s.Layer == l {
			ns += s.Ns
		}
	}
	return ns
}

// MaxBytes of a message: the ring of the wire holds all its frames at once.
const MaxBytes = 64 << 10

// MinFor is the least time in which anything can be measured.
const MinFor = 10 * time.Millisecond

// Options of Run.
type Options struct {
	// Bytes of the message, 0 to MaxBytes.
	Bytes int
	// For is at least MinFor.
	For time.Duration `flag:"duration" default:"3s" help:"how long to measure, about, in all"`
	// Pairs are where it is measured between two processes; step by step it is on the
	// first core of the first pair. None to pin nothing.
	Pairs []bench.Pair
	Eager bool `flag:"eager" help:"have the NICs hold messages, descriptors and tokens before they are posted, and show the steps with and without; not between processes"`
	// Progress, if not nil, is called after each of Steps parts.
	Progress bench.Progress
}

// Parts is the number of times that Progress is called.
const Parts = 5

// ErrOptions is wrapped by the errors about bad options.
var ErrOptions = errors.New("bad breakdown")

// Validate checks options. Errors wrap ErrOptions.
func (o *Options) Validate() error {
	switch {
	case o.Bytes < 0 || o.Bytes > MaxBytes:
		return fmt.Errorf("%w: %d bytes (0 to %d)", ErrOptions, o.Bytes, MaxBytes)
	case o.For < MinFor || o.For > 10*time.Minute:
		return fmt.Errorf("%w: duration %v (10ms to 10m)", ErrOptions, o.For)
	}
	return nil
}

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if err := o.Validate(); err != nil {
		return r, err
	}
	if err = bench.OnCore(ctx, o.core(), func() error { return o.message(ctx, &r) }); err == nil {
		r.Limits, err = o.limits(ctx)
	}
	return r, err
}

// core is where the message is measured step by step; -1 for any.
func (o *Options) core() int {
	if len(o.Pairs) == 0 {
		return -1
	}
	return o.Pairs[0].Cores[0]
}

// message measures the steps and the whole.
func (o *Options) message(ctx context.Context, r *Result) (err error) {
	rate := ticks.Rate(min(o.For/20, 50*time.Millisecond))
	var pairs pairs
	defer func() { err = errors.Join(err, pairs.close()) }()
	for _, p := range []struct {
		at     **pair
		probed bool
		mode   emulator.DoorbellMode
	}{{&pairs.probed, true, emulator.DoorbellsDefault}, {&pairs.plain, false, emulator.DoorbellsDefault}, {&pairs.stored, false, emulator.DoorbellsMapped}} {
		if *p.at, err = newPair(ctx, o, p.probed, p.mode); err != nil {
			return err
		}
	}
	best := round{whole: math.Inf(1)}
	for i := range rounds {
		r, err := o.round(ctx, &pairs)
		if err != nil {
			return err
		}
		if r.total()+r.whole < best.total()+best.whole {
			best = r
		}
		if i%(rounds/messageParts) == rounds/messageParts-1 {
			o.Progress.Step()
		}
	}
	spent := best.spent
	doorbell := min(max(best.single-best.batched, 0), spent[phasePost])
	completion := min(best.completion, spent[phaseDeliver])
	for _, s := range []Step{
		{"post", spent[phasePost] - doorbell, Application, "PostSend: checks, token into the ring; less the doorbell"},
		{"doorbell", doorbell, Application, "lock, call, index: a post alone less one of a batch"},
		{"fetch", spent[phaseFetch], MessageLayer, "sender's NIC: fetches and checks token and descriptor"},
		{"copy", spent[phaseCopy], MessageLayer, "header and payload from registered memory into the wire's buffer"},
		{"wire", spent[phaseWire], MessageLayer, "inside the wire: room, publishing, giving back"},
		{"deliver", spent[phaseDeliver] - completion, MessageLayer, "receiver's NIC: checks frame, finds the descriptor, copies the payload to its place"},
		{"completion", completion, MessageLayer, "length, status: a descriptor flushed on a VI that is not connected"},
		{"poll", spent[phasePoll], Application, "RecvDone finds the status"},
		{"rest", spent[phaseRest], MessageLayer, "both NICs' loops around that: taking the frame, timers, reliability, acknowledgement"},
	} {
		s.Ns /= rate
		r.Sum += s.Ns
		r.Steps = append(r.Steps, s)
	}
	r.Bytes, r.Whole, r.Border = o.Bytes, best.whole/rate, best.border/rate
	r.Remainder = r.Whole - r.Sum
	return nil
}

// rounds is the number of times that everything is measured; the round in which least else was
// going on counts, as the speed of a processor that others share changes.
const rounds = 30

// messageParts of the Parts are rounds.
const messageParts = 3

// round is one round's figures in ticks.
type round struct {
	border                      float64
	spent                       [phaseCount]float64
	whole                       float64
	single, batched, completion float64
}

// total is the sum of the phases.
func (r *round) total() (sum float64) {
	for _, s := range r.spent {
		sum += s
	}
	return sum
}

// pairs are those on which a round is measured.
type pairs struct {
	probed *pair // its wire is watched
	plain  *pair
	stored *pair // its doorbells are in memory
}

func (p *pairs) close() (err error) {
	for _, one := range []*pair{p.probed, p.plain, p.stored} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	return err
}

func (o *Options) round(ctx context.Context, p *pairs) (r round, err error) {
	each := o.For * messageParts / Parts / rounds / 4
	if r.border, err = borderCost(); err != nil {
		return r, err
	}
	if r.spent, err = p.probed.phases(ctx, each, r.border); err != nil {
		return r, err
	}
	if r.whole, err = p.plain.whole(ctx, each, r.border); err != nil {
		return r, err
	}
	if r.single, r.batched, err = p.plain.posts(ctx, each); err != nil {
		return r, err
	}
	r.completion, err = p.stored.completions(ctx, each)
	return r, err
}

// once sends one message; begin, turn and end are told the borders that only the
// caller of the NICs can see.
func (p *pair) once(begin func(), turn func(phase), end func()) error {
	p.sender.d.Rearm()
	begin()
	err := p.sender.vi.PostSend(p.sender.d)
	if err != nil {
		return err
	}
	// A message of several frames may take several steps.
	for {
		turn(phaseFetch)
		p.sender.device.Poll()
		turn(phaseRest)
		p.receiver.device.Poll()
		if p.receiver.d.Status().Done() {
			break
		}
	}
	turn(phasePoll)
	d, err := p.receiver.vi.RecvDone()
	end()
	if err != nil {
		return err
	}
	d.Rearm()
	if err := p.receiver.vi.PostRecv(d); err != nil {
		return err
	}
	return p.settle()
}

// settle steps both NICs until the sender's side has completed as well.
func (p *pair) settle() error {
	for end := time.Now().Add(10 * time.Second); ; {
		p.receiver.device.Poll()
		p.sender.device.Poll()
		_, err := p.sender.vi.SendDone()
		if err != via.ErrNotDone {
			// The news of the receive that was posted is not part of the next message.
			p.receiver.device.Poll()
			p.sender.device.Poll()
			return err
		}
		if time.Now().After(end) {
			return errNoAnswer
		}
	}
}

// errNoAnswer: the send does not complete, though the message has arrived.
var errNoAnswer = errors.New("a message is not acknowledged")

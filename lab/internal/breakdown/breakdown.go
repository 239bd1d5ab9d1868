// Package breakdown tells where the time of one message goes, step by step.
package breakdown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// Layers are those of the SONIC-VIA paper (section 6). Its third one, the kernel agent,
// opens, connects and registers, and has no step of a message.
const (
	Application  = "application"   // the program's thread in the provider's library
	MessageLayer = "message layer" // the NICs
)

// Step is one step of a message's way, or several together.
type Step struct {
	Name  string       `json:"step"`
	Ns    bench.Figure `json:"ns"`
	Share bench.Figure `json:"percent" help:"of the whole"`
	Layer string       `json:"layer"`
	What  string       `json:"what"`
}

// Result is one message by step.
type Result struct {
	Bytes bench.Size `json:"bytes"`
	Steps []Step     `json:"steps"`
	// Sums are those of each layer's steps and of all of them, what these leave of the whole, and the whole: the same
	// message without any borders in it.
	Sums []Step `json:"sums"`
	// Border is the time of one look at the counter; it has been taken off.
	Border bench.Figure `json:"border_ns"`
}

// Table prints the steps, their sums and the whole.
func (r *Result) Table(out io.Writer) error {
	fmt.Fprintf(out, "One message of %v, one way\n", r.Bytes)
	return command.Text(out, append(slices.Clone(r.Steps), r.Sums...))
}

// Options of Run. The ring of the wire holds all frames of a message at once.
type Options struct {
	bench.Local `override:"duration" default:"3s" help:"how long to measure, about, in all"`
	Bytes       option.Bytes `flag:"bytes" default:"64" range:"0..64K" help:"bytes of the message, up to 64K"`
	Eager       bool         `flag:"eager" help:"have the NICs hold messages, descriptors and tokens before they are posted"`
}

// rounds is the number of times that everything is measured; the round in which least else was
// going on counts, as the speed of a processor that others share changes.
const rounds = 30

// Steps is the number of times that Run calls progress.
func (o *Options) Steps() int { return rounds }

// Run measures.
func Run(ctx context.Context, o Options, progress func()) (r Result, err error) {
	err = bench.OnCore(ctx, o.Core(), func() (err error) { r, err = o.message(ctx, progress); return err })
	return r, err
}

type round struct {
	border float64
	spent  [phaseCount]float64
	whole  float64
}

// sum is that of all phases.
func sum[T uint64 | float64](spent [phaseCount]T) (sum T) {
	for _, s := range spent {
		sum += s
	}
	return sum
}

// message measures the steps on a pair whose wire is watched, and the whole on another one.
func (o *Options) message(ctx context.Context, progress func()) (r Result, err error) {
	rate := ticks.Rate(min(o.For/20, 50*time.Millisecond))
	var pairs [2]*pair
	for i := range pairs {
		p, err := newPair(ctx, o, i == 0)
		if err != nil {
			return r, err
		}
		defer p.Close()
		pairs[i] = p
	}
	best := round{whole: math.Inf(1)}
	for range rounds {
		now := round{border: borderCost()}
		if now.spent, err = pairs[0].phases(ctx, o.For/rounds/2, now.border); err != nil {
			return r, err
		}
		whole, err := pairs[1].phases(ctx, o.For/rounds/2, now.border)
		if err != nil {
			return r, err
		}
		if now.whole = sum(whole); sum(now.spent)+now.whole < sum(best.spent)+best.whole {
			best = now
		}
		progress()
	}
	spent, total := best.spent, sum(best.spent)
	step := func(name string, ticks float64, layer, what string) Step {
		return Step{name, bench.Figure(ticks / rate), bench.Figure(100 * ticks / max(best.whole, 1)), layer, what}
	}
	r.Bytes, r.Border = bench.Size(o.Bytes), bench.Figure(best.border/rate)
	r.Steps = []Step{
		step("post", spent[phasePost], Application, "PostSend: checks, token into the ring, doorbell"),
		step("fetch", spent[phaseFetch], MessageLayer, "sender's NIC: fetches and checks token and descriptor"),
		step("copy", spent[phaseCopy], MessageLayer, "header and payload from registered memory into the wire's buffer"),
		step("wire", spent[phaseWire], MessageLayer, "room, publishing, giving back; of a short message the copy, too"),
		step("deliver", spent[phaseDeliver], MessageLayer, "receiver's NIC: checks, finds the descriptor, copies the payload, completes"),
		step("poll", spent[phasePoll], Application, "RecvDone finds the status"),
		step("rest", spent[phaseRest], MessageLayer, "both NICs' loops: taking the frame, timers, reliability, acknowledgement"),
	}
	application := spent[phasePost] + spent[phasePoll]
	r.Sums = []Step{
		step(Application, application, Application, "its steps; the kernel agent has none"),
		step(MessageLayer, total-application, MessageLayer, "its steps"),
		step("sum", total, "", "all steps"),
		step("remainder", best.whole-total, "", "what borders do to the processor beyond their cost in a loop"),
		step("whole", best.whole, "", "without borders"),
	}
	return r, nil
}

const (
	// warmUp is the number of messages before those that are measured, and leastMessages of these are there
	// however little time there is.
	warmUp, leastMessages = 1000, 100
	// keep is the share of messages that count: those that took least. The others were
	// interrupted.
	keep = 0.8
)

// phases is the mean time of each phase in ticks, borders taken off. Means of the
// same messages add up to the mean of their sum.
func (p *pair) phases(ctx context.Context, d time.Duration, border float64) (spent [phaseCount]float64, err error) {
	var all []timeline
	one := func() error {
		err := p.once()
		all = append(all, p.line)
		return err
	}
	if err := bench.Rounds(ctx, 0, warmUp, one); err != nil {
		return spent, err
	}
	all = all[:0]
	if err := bench.Rounds(ctx, d, leastMessages, one); err != nil {
		return spent, err
	}
	slices.SortFunc(all, func(a, b timeline) int { return cmp.Compare(sum(a.spent), sum(b.spent)) })
	all = all[:max(int(keep*float64(len(all))), 1)]
	for i := range all {
		for f := range phaseCount {
			spent[f] += float64(all[i].spent[f]) - border*float64(all[i].marks[f])
		}
	}
	for f := range spent {
		spent[f] = max(spent[f]/float64(len(all)), 0)
	}
	return spent, nil
}

// once sends one message, and tells the timeline the borders that only the caller of the NICs can see.
func (p *pair) once() error {
	p.sender.d.Rearm()
	p.line.begin(phasePost)
	if err := p.sender.vi.PostSend(p.sender.d); err != nil {
		return err
	}
	// A message of several frames may take several steps.
	for {
		p.line.turn(phaseFetch)
		p.sender.device.Poll()
		p.line.turn(phaseRest)
		p.receiver.device.Poll()
		if p.receiver.d.Status().Done() {
			break
		}
	}
	p.line.turn(phasePoll)
	d, err := p.receiver.vi.RecvDone()
	p.line.end()
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

// node is a host with its NIC, which runs only when it is stepped.
type node struct {
	device *emulator.Device
	nic    *via.NIC
	vi     *via.VI // connected to the other node
	d      *via.Descriptor
}

// pair is two nodes on a memory wire.
type pair struct {
	sender, receiver node
	line             timeline
}

// newPair makes and connects a pair. If its wire is watched its timeline has all borders, else the
// first and the last one alone.
func newPair(ctx context.Context, o *Options, watched bool) (p *pair, err error) {
	p = &pair{line: timeline{watched: watched}}
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	ports := [2]wire.Port{a, b}
	if watched {
		ports[0] = &probe{a, &p.line, phaseCopy, phaseRest}
		ports[1] = &probe{b, &p.line, phaseRest, phaseDeliver}
	}
	for i, n := range []*node{&p.sender, &p.receiver} {
		if err := n.open(ctx, ports[i], o); err != nil {
			return p, err
		}
	}
	if err := bench.Connect(ctx, p.sender.vi, p.receiver.vi); err != nil {
		return p, err
	}
	return p, p.receiver.vi.PostRecv(p.receiver.d)
}

// open makes the NIC, which owns the port, a VI, and its descriptor.
func (n *node) open(ctx context.Context, port wire.Port, o *Options) (err error) {
	opts, bytes := bench.Quiet(), max(int(o.Bytes), 1)
	opts.Eager = o.Eager
	if n.device, err = emulator.New(emulator.Options{Name: "emu:breakdown", Wire: port}); err != nil {
		return err
	}
	if n.nic, err = via.OpenDevice(ctx, n.device, opts); err != nil {
		return err
	}
	if n.vi, err = n.nic.CreateVI(ctx, via.VIAttributes{MaxTransfer: uint32(bytes), SendDepth: 2, RecvDepth: 2}, nil, nil); err != nil {
		return err
	}
	m, err := n.nic.Alloc(ctx, bytes, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	d, err := n.vi.NewDescriptors(ctx, 1, 1)
	if err != nil {
		return err
	}
	n.d = d[0]
	return m.AddTo(n.d, 0, int(o.Bytes))
}

// Close frees everything; a NIC closes its device and that its end of the wire.
func (p *pair) Close() (err error) {
	for _, n := range []*node{&p.sender, &p.receiver} {
		if n.nic != nil {
			err = errors.Join(err, n.nic.Close())
		}
	}
	return err
}

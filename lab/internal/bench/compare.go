package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Comparison holds what Compare does.
type Comparison struct {
	// Wire and Placement of ours for messages.
	Wire, Placement string
	Rounds          int
	For             time.Duration // each measurement
	Pairs           []Pair        // where, one after the other
	Peers           []Peer        // those that are here
	// Rows to measure; nil for DefaultRows.
	Rows []Row
	// Progress is called after each measurement.
	Progress Progress
}

// UsualWire is the wire of ours that is compared if nothing else is said: as UCX does over
// cma, it copies payloads at most once.
const UsualWire = "shm-share"

// RootRows returns the rows that take root.
func RootRows() []Row {
	var rows []Row
	for _, test := range veths {
		rows = append(rows, Row{Test: test, Bytes: 64 << 10})
	}
	return rows
}

// DefaultRows returns the rows that the project has goals for, and that need no rights.
func DefaultRows() []Row {
	return []Row{
		{Test: "latency", Bytes: 64}, {Test: "latency", Bytes: 4 << 10}, {Test: "latency", Bytes: 8 << 10}, {Test: "latency", Bytes: 64 << 10},
		{Test: "put", Bytes: 64}, {Test: "put", Bytes: 4 << 10}, {Test: "put", Bytes: 8 << 10}, {Test: "put", Bytes: 64 << 10},
		{Test: "get", Bytes: 64}, {Test: "get", Bytes: 4 << 10}, {Test: "get", Bytes: 8 << 10}, {Test: "get", Bytes: 64 << 10},
		{Test: fetch, Bytes: 4 << 10}, {Test: fetch, Bytes: 8 << 10}, {Test: fetch, Bytes: 64 << 10},
		{Test: "bandwidth", Bytes: 8 << 10}, {Test: "bandwidth", Bytes: 64 << 10},
		{Test: "rate", Bytes: 64},
		{Test: "frames", Bytes: 64}, {Test: "frames", Bytes: 1500},
	}
}

// MPIRows returns the rows of Open MPI, which needs the provider of libfabric to be installed.
func MPIRows() []Row {
	return []Row{{Test: MPI, Bytes: 64}, {Test: MPI, Bytes: 64 << 10}, {Test: MPI, Bytes: 1 << 20}}
}

// Steps is the number of times that Compare calls Progress.
func (c *Comparison) Steps() int {
	n := 0
	for _, r := range c.rows() {
		n++
		for i := range c.Peers {
			if slices.Contains(c.Peers[i].Tests, r.Test) {
				n++
			}
		}
	}
	return n * c.Rounds * len(c.Pairs)
}

func (c *Comparison) rows() []Row {
	if c.Rows == nil {
		return DefaultRows()
	}
	return c.Rows
}

// Validate checks what can be checked before anything is measured. Errors wrap
// ErrSpec.
func (c *Comparison) Validate() error {
	if c.Rounds < 1 || c.Rounds > 1000 {
		return fmt.Errorf("%w: %d rounds (1 to 1000)", ErrSpec, c.Rounds)
	}
	for _, r := range c.rows() {
		q := Question{Test: r.Test, Bytes: r.Bytes, For: c.For}
		t := c.task(q)
		var err error
		switch r.Test {
		case "frames", MPI:
		case fetch:
			err = checkFetch(t, q)
		default:
			err = t.Validate()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Compare measures every row on every pair with all in turn, A B A B, so that what
// changes on the machine changes for all. A peer that fails is left out of the row, which
// says why; a failure of ours ends it all. With an error it returns the rows that
// were measured before, the last one perhaps in part.
func (c *Comparison) Compare(ctx context.Context) (rows []Row, err error) {
	for _, question := range c.rows() {
		for _, pair := range c.Pairs {
			if len(pair.Cores) < 2 && (len(c.Peers) > 0 || question.Test == "frames" || question.Test == fetch || question.Test == MPI) {
				return rows, fmt.Errorf("%w: two cores are needed, there are %d", ErrSpec, len(pair.Cores))
			}
			r := question
			r.Pair = pair
			r.prepare()
			for range c.Rounds {
				if err = c.round(ctx, &r); err != nil {
					err = fmt.Errorf("%s, %d bytes: %w", r.Test, r.Bytes, err)
					r.Incomplete = true
					break
				}
			}
			rows = append(rows, r.conclude()...)
			if err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

// crossingFor is the time that one look at the distance of the cores takes.
const crossingFor = 5 * time.Millisecond

// round asks all once, and looks before and after each answer how far the cores
// are from each other.
func (c *Comparison) round(ctx context.Context, r *Row) error {
	q := Question{Test: r.Test, Bytes: r.Bytes, For: c.For, Cores: r.Cores}
	var crossings []float64
	cross := func() error {
		ns, err := Crossing(ctx, r.Cores, crossingFor)
		crossings = append(crossings, ns)
		return err
	}
	if err := cross(); err != nil {
		return err
	}
	a, err := c.askUs(ctx, q)
	if err != nil {
		return err
	}
	r.answers[Us] = append(r.answers[Us], a)
	defer func() { r.crossings = append(r.crossings, crossings) }()
	if err := cross(); err != nil {
		return err
	}
	c.Progress.Step()
	for i := range c.Peers {
		p := &c.Peers[i]
		if !slices.Contains(p.Tests, r.Test) {
			continue
		}
		if r.Failures[p.Name] == "" {
			if a, err = p.Ask(ctx, q); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if r.Failures == nil {
					r.Failures = map[string]string{}
				}
				r.Failures[p.Name] = err.Error()
			} else {
				r.answers[p.Name] = append(r.answers[p.Name], a)
				if err := cross(); err != nil {
					return err
				}
			}
			if r.timed() {
				r.Statistics[p.Name] = p.Statistic
			}
		}
		c.Progress.Step()
	}
	return nil
}

// errNothing: a measurement came back empty.
var errNothing = errors.New("nothing was measured")

func (c *Comparison) askUs(ctx context.Context, q Question) (a Answer, err error) {
	switch q.Test {
	case "frames":
		return askFrames(ctx, q)
	case MPI:
		p := mpiPeer(Us)
		if err := p.Available(); err != nil {
			return a, err
		}
		return p.Ask(ctx, q)
	case fetch:
		return askFetch(ctx, c.task(q), q)
	case veth, vethJumbo, vethLong:
		return askVeth(ctx, c.task(q))
	}
	r, err := Run(ctx, c.task(q))
	if err != nil {
		return a, err
	}
	if r.Source.Messages == 0 {
		return a, errNothing
	}
	switch q.Test {
	case "latency", "put", "get":
		return Answer{Value: r.Source.Percentile(50), Tail: r.Source.Percentile(99.9), switches: r.SwitchRate()}, nil
	case "bandwidth":
		return Answer{Value: r.Source.MBPerSecond(), switches: r.SwitchRate()}, nil
	}
	return Answer{Value: r.Source.MessageRate(), switches: r.SwitchRate()}, nil
}

// task is our measurement for a question about messages.
func (c *Comparison) task(q Question) Task {
	t := Task{Wire: c.Wire, Placement: c.Placement, Cores: q.Cores,
		Spec: Spec{Role: Source, Bytes: q.Bytes, VIs: 1, Reliability: "reliable-delivery", Nanoseconds: int64(q.For), Core: -1}}
	switch t.Spec.Test = Test(q.Test); q.Test {
	case "rate":
		t.Spec.Test = Bandwidth
	case veth, vethJumbo, vethLong:
		t.Spec.Test, t.Wire = Bandwidth, q.Test
	}
	t.Spec.Window = UsualWindow(t.Spec.Test, q.Bytes)
	if t.Wire == vethLong {
		t.Spec.Window *= 2 // a message is two frames there, so that fewer are under way
	}
	return t
}

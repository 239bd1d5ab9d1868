package breakdown

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/via"
)

// warmUp is the number of messages before those that are measured.
const warmUp = 1000

// keep is the share of messages that count: those that took least. The others were
// interrupted.
const keep = 0.8

// However little time there is, so many messages, and lots of posts and completions, are
// measured that there are figures.
const (
	leastMessages = 100
	leastLots     = 10
)

// measured calls one, which adds to all, for about d after the warm-up, of which nothing stays.
func measured[T any](ctx context.Context, d time.Duration, all *[]T, one func() error) error {
	if err := bench.Rounds(ctx, 0, warmUp, one); err != nil {
		return err
	}
	*all = (*all)[:0]
	return bench.Rounds(ctx, d, leastMessages, one)
}

// phases is the mean time of each phase in ticks, borders taken off. Means of the
// same messages add up to the mean of their sum.
func (p *pair) phases(ctx context.Context, d time.Duration, border float64) (spent [phaseCount]float64, err error) {
	t := &p.line
	var all []timeline
	one := func() error {
		err := p.once(func() { t.begin(phasePost) }, t.turn, func() { t.turn(phaseRest); t.on = false })
		all = append(all, *t)
		return err
	}
	if err := measured(ctx, d, &all, one); err != nil {
		return spent, err
	}
	total := func(t *timeline) (sum uint64) {
		for _, s := range t.spent {
			sum += s
		}
		return sum
	}
	slices.SortFunc(all, func(a, b timeline) int { return int(total(&a)) - int(total(&b)) })
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

// whole is the mean time of a message with borders only at its ends, in ticks.
func (p *pair) whole(ctx context.Context, d time.Duration, border float64) (float64, error) {
	var all []float64
	var began uint64
	one := func() error {
		return p.once(func() { began = ticks.Now() }, func(phase) {}, func() { all = append(all, float64(ticks.Now()-began)) })
	}
	if err := measured(ctx, d, &all, one); err != nil {
		return 0, err
	}
	return least(all) - border, nil
}

// least is the mean of the share of values that count.
func least(values []float64) (mean float64) {
	slices.Sort(values)
	values = values[:max(int(keep*float64(len(values))), 1)]
	for _, v := range values {
		mean += v
	}
	return mean / float64(len(values))
}

// posts measures what has no border of its own, in ticks: a post with a doorbell of its
// own, and one of a batch that shares one. It posts receives to a VI that is not
// connected, for which the NIC does nothing but take the index.
func (p *pair) posts(ctx context.Context, d time.Duration) (single, batched float64, err error) {
	n := &p.sender
	var singles, batches []float64
	each := func() error {
		for _, d := range n.many {
			if err := n.lone.PostRecv(d); err != nil {
				return err
			}
		}
		return nil
	}
	all := func() error { _, err := n.lone.PostRecvBatch(n.many); return err }
	err = bench.Rounds(ctx, d, leastLots, func() error {
		if err := lotOf(&singles, each); err != nil {
			return err
		}
		// A disconnect flushes whatever is posted.
		if err := errors.Join(n.lone.Disconnect(ctx), n.takeBack(ctx, n.lone.RecvDone)); err != nil {
			return err
		}
		if err := lotOf(&batches, all); err != nil {
			return err
		}
		return errors.Join(n.lone.Disconnect(ctx), n.takeBack(ctx, n.lone.RecvDone))
	})
	if err != nil {
		return 0, 0, err
	}
	return least(singles), least(batches), nil
}

// completions measures a completion, in ticks, of a NIC that finds doorbells in memory:
// what is posted to a VI that is not connected completes, flushed, as soon as that NIC
// is stepped, which does not happen meanwhile.
func (p *pair) completions(ctx context.Context, d time.Duration) (float64, error) {
	n := &p.sender
	var all []float64
	err := bench.Rounds(ctx, d, leastLots, func() error {
		if _, err := n.lone.PostSendBatch(n.many); err != nil {
			return err
		}
		if err := lotOf(&all, func() error { n.device.Poll(); return nil }); err != nil {
			return err
		}
		return n.takeBack(ctx, n.lone.SendDone)
	})
	if err != nil {
		return 0, err
	}
	return least(all), nil
}

// lotOf notes how long f takes for each of a lot, in ticks.
func lotOf(into *[]float64, f func() error) error {
	began := ticks.Now()
	err := f()
	*into = append(*into, float64(ticks.Now()-began)/lot)
	return err
}

// takeBack takes a lot that has been flushed off a queue.
func (n *node) takeBack(ctx context.Context, done func() (*via.Descriptor, error)) error {
	for _, d := range n.many {
		_, err := done()
		for err == via.ErrNotDone && ctx.Err() == nil { // another thread was in the NIC
			n.device.Poll()
			_, err = done()
		}
		if !errors.Is(err, via.ErrDescriptor) {
			return errors.Join(errNotFlushed, err)
		}
		d.Rearm()
	}
	return nil
}

// errNotFlushed: a descriptor on a VI that is not connected has not been flushed.
var errNotFlushed = errors.New("a descriptor is not flushed")

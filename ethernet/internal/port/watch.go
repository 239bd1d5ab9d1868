package port

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// watchEvery is the time between two looks at a port; it is a quarter of Options.Timeout if that is
// shorter.
const watchEvery = 100 * time.Millisecond

// watch is the goroutine that looks after a port. It notices the end of the device, and renews
// rings that break the rules or stand still.
type watch struct {
	poked  chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newWatch() *watch {
	w := &watch{poked: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// end ends the goroutine.
func (w *watch) end() {
	w.cancel()
	w.done.Wait()
}

func (w *watch) poke() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// look looks after the port until the watch ends.
func (p *Port) look() {
	tick := time.NewTicker(min(watchEvery, max(p.options.Timeout/4, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-p.watch.ctx.Done():
			return
		case <-p.watch.poked:
		case <-tick.C:
		}
		p.Mu.Lock()
		p.lookOnce(p.watch.ctx)
		p.Mu.Unlock()
	}
}

// lookOnce looks once, with Mu held.
func (p *Port) lookOnce(ctx context.Context) {
	if p.Failed() != nil {
		return
	}
	up, err := p.nic.Look(ctx)
	if err != nil {
		p.Fail(err)
		return
	}
	now := time.Now()
	for _, q := range p.queues {
		if why := q.ring.Trouble(now, up); why != nil && ctx.Err() == nil {
			p.renew(ctx, q, why, now)
		}
		if p.Failed() != nil {
			return
		}
	}
}

// maxRenewals is the most times in a row that a queue gets new rings.
const maxRenewals = 4

// renew gives a queue new rings, or restarts the device if it cannot do that. A queue whose device
// goes on to break the rules, each time within Options.Timeout, fails the port.
func (p *Port) renew(ctx context.Context, q *Queue, why error, now time.Time) {
	if now.Sub(q.renewed) > p.options.Timeout {
		q.renewals = 0
	}
	q.renewed = now
	if q.renewals++; q.renewals > maxRenewals {
		p.Fail(fmt.Errorf("%w: %w, for the %d. time", ethernet.ErrProtocol, why, q.renewals))
		return
	}
	p.Log().Warn("a queue is restarted", "queue", q.Index, "why", why)
	switch err := q.ring.Renew(ctx); {
	case err == nil:
		q.Counters.Restarts.Add(1)
	case errors.Is(err, ethernet.ErrNotSupported):
		_ = p.restart(ctx) // its error fails the port
	default:
		p.Fail(err)
	}
}

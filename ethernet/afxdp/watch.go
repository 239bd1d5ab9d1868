package afxdp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// watchEvery is how often a port is looked at, and a quarter of Config.Timeout at least.
const watchEvery = 100 * time.Millisecond

// watch is the goroutine that looks after a port: it notices that the interface is gone,
// and gives queues whose rings break the rules or stand still a new socket.
type watch struct {
	poked  chan struct{} // something is wrong
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newWatch() *watch {
	w := &watch{poked: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *watch) start(p *port) { w.done.Go(p.look) }

// end ends the goroutine.
func (w *watch) end() {
	w.cancel()
	w.done.Wait()
}

// poke has the port looked at soon.
func (w *watch) poke() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// look looks after the port until the watch ends.
func (p *port) look() {
	tick := time.NewTicker(min(watchEvery, max(p.config.Timeout/4, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-p.watch.ctx.Done():
			return
		case <-p.watch.poked:
		case <-tick.C:
		}
		p.mu.Lock()
		p.lookOnce(p.watch.ctx)
		p.mu.Unlock()
	}
}

// lookOnce looks once, with mu held.
func (p *port) lookOnce(ctx context.Context) {
	if p.failed() != nil {
		return
	}
	a, err := p.host.look(p.index)
	if errors.Is(err, ethernet.ErrDeviceGone) {
		p.giveUp(err)
		return
	}
	up := err == nil && p.host.link(a).Up
	now := time.Now()
	for _, q := range p.queues {
		why := q.wrong(now, up)
		if why == nil {
			continue
		}
		if ctx.Err() == nil {
			p.restartQueue(ctx, q, why, now)
		}
		if p.failed() != nil {
			return
		}
	}
}

// wrong returns why a queue needs a new socket, nil if it does not. Without a link frames
// may stand still.
func (q *queue) wrong(now time.Time, up bool) error {
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.socket == nil {
		return nil
	}
	if !q.live {
		return q.socket.rings.Violation()
	}
	q.wake(true)
	if !q.full || !up {
		q.stuck = time.Time{}
		return nil
	}
	if q.complete(q.socket); q.socket.rings.Room() >= q.port.geometry.parts {
		q.full, q.stuck = false, time.Time{}
		return nil
	}
	switch {
	case q.stuck.IsZero():
		q.stuck = now
	case now.Sub(q.stuck) >= q.port.config.Timeout:
		return fmt.Errorf("%w: no frame was sent for %v", ethernet.ErrNotReady, now.Sub(q.stuck).Round(time.Millisecond))
	}
	return nil
}

// restartQueue gives a queue a new socket.
func (p *port) restartQueue(ctx context.Context, q *queue, why error, now time.Time) {
	if err := q.restarts.Again(why, now, p.config.Timeout); err != nil {
		p.giveUp(err)
		return
	}
	p.config.Logger.Warn("a queue is restarted", "device", p.info.Device, "queue", q.index, "why", why)
	err := q.stop()
	if err == nil {
		err = p.host.do(func() error { return p.startQueue(ctx, q) })
	}
	if err != nil {
		p.giveUp(err)
		return
	}
	q.counters.restarts.Add(1)
}

package virtio

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

// watch is the goroutine that looks after a port: it notices the end of the device,
// restarts rings that break the rules, and restarts or reports those that stand still.
type watch struct {
	poked   chan struct{} // a ring breaks the rules
	renewed chan struct{} // the device was reset
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

func (w *watch) start(p *port) {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() { p.look(ctx) })
}

// end ends the goroutine.
func (w *watch) end() {
	w.cancel()
	w.done.Wait()
}

// poke has the port looked at soon.
func (w *watch) poke() { signal(w.poked) }

// renew says that the device was reset.
func (w *watch) renew() { signal(w.renewed) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look looks after the port until ctx ends.
func (p *port) look(ctx context.Context) {
	tick := time.NewTicker(min(watchEvery, max(p.config.Timeout/4, time.Millisecond)))
	defer tick.Stop()
	gone := p.device.Gone()
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			gone = nil // until it is reset
		case <-p.watch.renewed:
			p.mu.Lock()
			gone = p.device.Gone()
			p.mu.Unlock()
		case <-p.watch.poked:
		case <-tick.C:
		}
		p.mu.Lock()
		p.lookOnce(ctx)
		p.mu.Unlock()
	}
}

// lookOnce looks once, with mu held.
func (p *port) lookOnce(ctx context.Context) {
	if p.failed() != nil {
		return
	}
	if err := p.device.Health(); err != nil {
		p.giveUp(err)
		return
	}
	now := time.Now()
	for _, q := range p.queues {
		switch why, restart := q.trouble(now); {
		case why == nil:
			continue
		case !restart:
			p.config.Logger.Warn("a queue stands still", "device", p.info.Device, "queue", q.index, "why", why, "hint", p.stillHint())
		case ctx.Err() == nil:
			p.restartQueue(ctx, q, why, now)
		}
		if p.failed() != nil {
			return
		}
	}
}

// stillHint says what may help if a queue stands still.
func (p *port) stillHint() string {
	if p.vhost() {
		return "is the back end stopped, or does it serve fewer queues than the port has?"
	}
	return "does the device serve fewer queues than the port has?"
}

// trouble returns what is wrong with the rings, nil for nothing, and whether they have to
// be restarted.
func (q *queue) trouble(now time.Time) (why error, restart bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.live {
		why = errors.Join(q.receiving.Violation(), q.sending.Violation())
		return why, why != nil
	}
	if n := q.sending.Lent(); n > 0 && !q.sending.Near(n) {
		// A notification may have been lost: QEMU 11.1 does not ask for one where it should,
		// with packed rings and the event index, after a frame had to wait for its receiver.
		q.sending.bell.Ring()
	}
	return q.standstill(now)
}

// standstill returns what is wrong with a send ring of which the device uses nothing, once
// for each time. A device restarts a ring that is full. A back end of vhost-user is a
// process that may be stopped: it would not answer, and goes on by itself.
func (q *queue) standstill(now time.Time) (why error, restart bool) {
	if q.collect(); q.sending.Room() > 0 {
		q.full = false
	}
	if q.sending.Lent() == 0 {
		q.moved()
		return nil, false
	}
	if q.stuck.IsZero() {
		q.stuck = now
	}
	restart = q.full && !q.port.vhost()
	if now.Sub(q.stuck) < q.port.config.Timeout || q.reported && !restart {
		return nil, false
	}
	q.reported = true
	return fmt.Errorf("%w: no frame was sent for %v", ethernet.ErrNotReady, now.Sub(q.stuck).Round(time.Millisecond)), restart
}

// moved notes that the device has used a buffer of the send ring, or has none.
func (q *queue) moved() { q.stuck, q.reported = time.Time{}, false }

// restartQueue restarts both rings of a queue, or the whole device if it cannot do that.
func (p *port) restartQueue(ctx context.Context, q *queue, why error, now time.Time) {
	if err := q.restarts.Again(why, now, p.config.Timeout); err != nil {
		p.giveUp(err)
		return
	}
	p.config.Logger.Warn("a queue is restarted", "device", p.info.Device, "queue", q.index, "why", why)
	q.pause()
	err := p.renewQueue(ctx, q)
	if errors.Is(err, ethernet.ErrNotSupported) {
		_ = p.restart(ctx) // its error fails the port
		return
	}
	if err != nil {
		p.giveUp(err)
		return
	}
	q.counters.restarts.Add(1)
}

// renewQueue stops the rings of a queue and makes them anew.
func (p *port) renewQueue(ctx context.Context, q *queue) error {
	rings := []*ring{&q.receiving, &q.sending}
	for _, r := range rings {
		if err := p.device.StopQueue(ctx, r.options.Index); err != nil {
			return err
		}
	}
	q.reclaimAll()
	for _, r := range rings {
		if err := r.make(p.memory); err != nil {
			return err
		}
		if err := p.enable(ctx, r); err != nil {
			return err
		}
	}
	if !q.fill() {
		return ethernet.ErrNoBuffers
	}
	q.run()
	return nil
}

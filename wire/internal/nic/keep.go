package nic

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

const (
	// The keeper asks for the state of a link every lookEvery, and of one that is down every
	// lookForLink: what waits for the link goes on soon after it is up.
	lookEvery   = 100 * time.Millisecond
	lookForLink = 10 * time.Millisecond
	// A sender for whose frames the NIC had no room is woken after stuckPause.
	stuckPause = time.Millisecond
	// A NIC that has failed is restarted after firstBackoff, and each time after twice as
	// long, up to lastBackoff.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// restartLimit bounds a restart.
	restartLimit = 10 * time.Second
)

// keep is the goroutine that looks after the NIC: it waits for frames while no receiver looks
// for them, watches the link, and restarts the NIC when it has failed.
func (p *Port) keep(ctx context.Context) {
	defer close(p.stopped)
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	next := time.Now().Add(p.look())
	for ctx.Err() == nil {
		switch now := time.Now(); {
		case p.failure.Load() != nil:
			p.revive(ctx)
		case now.After(next):
			next = now.Add(p.look())
		case p.stuck.Load() && p.Wake.IsSet():
			_ = pause.For(ctx, stuckPause)
			p.Wake.Call()
		case p.parked.Load() && p.Wake.IsSet():
			p.await(ctx)
		default:
			timer.Reset(time.Until(next))
			select {
			case <-ctx.Done():
			case <-p.poke:
			case <-timer.C:
			}
		}
	}
}

// await waits for frames, a while, and wakes their receiver.
func (p *Port) await(ctx context.Context) {
	if !p.catch() {
		if err := p.queue.Wait(ctx); err != nil {
			if ctx.Err() == nil {
				p.fail(err)
			}
			return
		}
		if !p.catch() {
			return
		}
	}
	p.parked.Store(false)
	p.counters.wakes.Add(1)
	p.Wake.Call()
}

// look asks the NIC for the state of its link, and returns the time until the next look.
func (p *Port) look() time.Duration {
	link, err := p.nic.Link()
	if err != nil {
		p.fail(err)
		return lookEvery
	}
	if p.set(noLink, !link.Up) {
		p.Link.Call()
	}
	if !link.Up {
		return lookForLink
	}
	return lookEvery
}

// revive restarts a NIC that has failed, again and again until it works.
func (p *Port) revive(ctx context.Context) {
	log := p.options.Logger.With("device", p.options.Address)
	log.Warn("the NIC of a wire has failed", "err", *p.failure.Load())
	p.Link.Call()
	for backoff := firstBackoff; pause.For(ctx, backoff) == nil; backoff = min(2*backoff, lastBackoff) {
		limited, cancel := context.WithTimeout(ctx, restartLimit)
		err := p.nic.Restart(limited)
		cancel()
		if err == nil {
			p.counters.restarts.Add(1)
			log.Info("the NIC of a wire works again")
			p.failure.Store(nil)
			p.set(failed, false)
			p.look()
			p.Link.Call()
			return
		}
		if ctx.Err() == nil && p.gone(err) {
			// Linux waits for the holder of a device that is to go, and the address is that
			// of another one from then on.
			log.Error("the NIC of a wire is gone", "err", err)
			_ = p.nic.Close()
			<-ctx.Done()
		}
	}
}

// gone says that a NIC will not come back.
func (p *Port) gone(err error) bool {
	return errors.Is(err, ethernet.ErrDeviceGone) && strings.HasPrefix(p.options.Address, "pci:")
}

package nic

import (
	"errors"

	"github.com/trapeze-nic/trapeze/ethernet"
)

const (
	// batch is the number of frames that are sent at once at most, and received.
	batch = 64
	// restock is the number of empty buffers that are taken at once.
	restock = 16
)

// transmitter belongs to the goroutine that sends.
type transmitter struct {
	// frames are n that were committed and not sent yet, and behind them buffers that are
	// empty: stock in all.
	frames   [batch]ethernet.Frame
	n, stock int
	reserved int  // the length of the frame that is reserved in frames[n]; -1 for none
	open     bool // as attached, for this goroutine

	// attached says that the goroutine may touch the pool. Guarded by the port's lock.
	attached bool
}

// Reserve has room while the link is down, for a frame that is lost.
func (p *Port) Reserve(n int) []byte {
	t := &p.tx
	t.reserved = -1
	if uint(n) > uint(p.Longest) {
		return nil
	}
	if (!t.open || t.n == t.stock || p.state.Load()&closed != 0) && !p.begin() {
		return nil
	}
	b := p.pool.Buffer(t.frames[t.n].Buffer)
	if len(b) < headroom+n {
		return nil
	}
	t.reserved = n
	return b[headroom : headroom+n : headroom+n]
}

// begin sees to an empty buffer, and reports whether there is one.
func (p *Port) begin() bool {
	t := &p.tx
	if t.n == len(t.frames) {
		p.push()
	}
	p.lock.Lock()
	if p.state.Load()&closed != 0 {
		p.retire()
		return false
	}
	t.open, t.attached = true, true
	if t.n == t.stock {
		most := min(restock, len(t.frames)-t.n)
		t.stock += clamp(p.cache.Alloc(t.frames[t.n:t.n+most]), most)
	}
	p.lock.Unlock()
	return t.n < t.stock
}

func (p *Port) Commit() {
	t := &p.tx
	if t.reserved < 0 {
		return
	}
	f := &t.frames[t.n]
	*f = ethernet.Frame{Buffer: f.Buffer, Offset: uint16(headroom), Length: uint16(t.reserved)}
	t.n++
	t.reserved = -1
}

// Flush costs one register access.
func (p *Port) Flush() {
	if p.tx.n > 0 {
		p.push()
	}
}

// push makes the NIC send what was committed. What it has no room for stays.
func (p *Port) push() {
	t := &p.tx
	p.lock.Lock()
	switch state := p.state.Load(); {
	case state&closed != 0:
		p.retire()
		return
	case state != 0:
		p.counters.lost.Add(uint64(t.n))
		p.drop(t.n)
	default:
		p.send()
	}
	if t.reserved < 0 {
		t.open, t.attached = false, false
	}
	p.lock.Unlock()
	if left := t.n > 0; left != p.stuck.Load() {
		p.stuck.Store(left)
		p.nudge()
	}
}

// send gives the NIC frames as long as it takes them. The lock is held.
func (p *Port) send() {
	t := &p.tx
	for {
		n, err := p.queue.Send(t.frames[:t.n])
		t.take(clamp(n, t.n))
		switch {
		case err == nil || t.n == 0:
			return
		case errors.Is(err, ethernet.ErrBadFrame):
			p.counters.bad.Add(1)
			p.drop(1)
		default:
			p.fail(err)
			p.counters.lost.Add(uint64(t.n))
			p.drop(t.n)
			return
		}
		if t.n == 0 {
			return
		}
	}
}

// take takes the first n frames, which have another owner now, out of the batch.
func (t *transmitter) take(n int) {
	copy(t.frames[:], t.frames[n:t.stock])
	t.n -= n
	t.stock -= n
}

// drop gives back the buffers of the first n frames. The lock is held.
func (p *Port) drop(n int) {
	p.cache.Free(p.tx.frames[:n])
	p.tx.take(n)
}

// retire gives everything back, as the port is closed. The lock is held, and is not
// afterwards.
func (p *Port) retire() {
	t := &p.tx
	p.counters.lost.Add(uint64(t.n))
	p.cache.Free(t.frames[:t.stock])
	t.n, t.stock, t.reserved, t.open, t.attached = 0, 0, -1, false, false
	p.lock.Unlock()
	_ = p.leave() // Close has said what there was to say
}

func (p *Port) Drained() bool {
	if p.state.Load() != 0 {
		return true
	}
	if p.tx.n > 0 {
		p.push()
	}
	p.lock.Lock()
	unsent, err := p.queue.Unsent()
	p.lock.Unlock()
	return p.tx.n == 0 && unsent <= 0 || err != nil
}

// clamp keeps what a driver says within what can be.
func clamp(n, most int) int { return max(0, min(n, most)) }

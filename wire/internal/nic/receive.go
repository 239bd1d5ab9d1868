package nic

import "github.com/trapeze-nic/trapeze/ethernet"

const (
	// idleLooks is the number of looks in vain that come before the keeper waits for frames: fewer
	// than those after which an engine's thread goes to sleep.
	idleLooks = 500
	// frameAlign is the alignment of a frame's first byte, as engine.Port wants it.
	frameAlign = 8
)

// receiver belongs to the goroutine that receives.
type receiver struct {
	burst [batch]ethernet.Frame
	at, n int
	idle  int // looks in vain in a row, up to idleLooks
	// shown has the frames that Receive has returned, until Release; nil for nothing.
	shown  []byte
	copied []byte // for frames that are not aligned

	// attached says that the goroutine may touch the pool. caught are frames that the
	// keeper has taken from the NIC. Guarded by the port's lock.
	attached bool
	caught   [batch]ethernet.Frame
	catches  int
}

func (p *Port) Receive() []byte {
	r := &p.rx
	if p.state.Load()&(pulled|closed) != 0 {
		r.shown, r.at = nil, r.n
	}
	if r.shown != nil {
		return r.shown
	}
	if r.at == r.n && !p.refill() {
		return nil
	}
	for ; r.at < r.n; r.at++ {
		if r.shown = p.bytes(&r.burst[r.at]); r.shown != nil {
			return r.shown
		}
	}
	return nil
}

func (p *Port) Release() {
	r := &p.rx
	if r.shown == nil {
		return
	}
	r.shown = nil
	if r.at++; r.at == r.n {
		p.lock.Lock()
		p.giveBack()
	}
}

// giveBack gives back the burst that was used up, and unlocks.
func (p *Port) giveBack() {
	r := &p.rx
	p.cache.Free(r.burst[:r.n])
	r.at, r.n, r.attached = 0, 0, false
	p.lock.Unlock()
	if p.state.Load()&closed != 0 {
		_ = p.leave() // Close has said what there was to say
	}
}

// bytes returns the bytes of a frame, nil if the driver says what cannot be.
func (p *Port) bytes(f *ethernet.Frame) []byte {
	b := p.pool.Bytes(*f)
	if len(b) < ethernet.HeaderSize {
		p.counters.bad.Add(1)
		return nil
	}
	if f.Offset%frameAlign == 0 {
		return b[:len(b):len(b)]
	}
	p.rx.copied = append(p.rx.copied[:0], b...)
	return p.rx.copied
}

// refill gives back the burst that has been used up and takes another one. It reports
// whether there is one.
func (p *Port) refill() bool {
	if p.stuck.Load() {
		p.push()
	}
	r := &p.rx
	p.lock.Lock()
	state := p.state.Load()
	if state&closed != 0 {
		p.giveBack()
		return false
	}
	p.cache.Free(r.burst[:r.n])
	r.at, r.n = 0, 0
	switch {
	case r.catches > 0:
		r.n = copy(r.burst[:], r.caught[:r.catches])
		r.catches = 0
	case state&failed == 0:
		r.n = p.take(r.burst[:])
	}
	if state&pulled != 0 {
		p.cache.Free(r.burst[:r.n])
		r.n = 0
	}
	r.attached = r.n > 0
	p.lock.Unlock()
	p.count(r.n > 0)
	return r.n > 0
}

// take takes frames from the NIC. The lock is held.
func (p *Port) take(frames []ethernet.Frame) int {
	n, err := p.queue.Receive(frames)
	if err != nil {
		p.fail(err)
	}
	return clamp(n, len(frames))
}

// count counts looks for frames. After many in vain the keeper is to wait for some.
func (p *Port) count(came bool) {
	r := &p.rx
	switch {
	case came:
		if r.idle = 0; p.parked.Load() {
			p.parked.Store(false)
		}
	case r.idle < idleLooks:
		if r.idle++; r.idle == idleLooks && p.Wake.IsSet() {
			p.parked.Store(true)
			p.nudge()
		}
	}
}

// catch takes frames from the NIC for the receiver, unless there are some already, and
// reports whether there are any.
func (p *Port) catch() bool {
	r := &p.rx
	p.lock.Lock()
	defer p.lock.Unlock()
	if r.catches == 0 && p.state.Load()&(failed|closed) == 0 {
		r.catches = p.take(r.caught[:])
	}
	return r.catches > 0
}

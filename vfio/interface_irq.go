package vfio

import "slices"

// IRQ describes the vectors that no other interface has. There are only those of MSI-X: others
// cannot be divided.
func (p *part) IRQ(index int) (info IRQInfo, err error) {
	err = p.do(func() error {
		info, err = p.function.IRQ(index)
		if err == nil && index != IRQMSIX {
			info = IRQInfo{Index: index}
		}
		p.function.mu.Lock()
		defer p.function.mu.Unlock()
		from, to := p.room(info.Count)
		info.Count = max(0, to-from)
		return err
	})
	return info, err
}

// room is where the vectors of the interface are or can be, of n that the function has. function.mu
// is held.
func (p *part) room(n int) (from, to int) {
	if p.count > 0 {
		from, to = p.base, n
		for _, other := range p.function.parts {
			if other.count > 0 && other.base > from {
				to = min(to, other.base)
			}
		}
		return from, to
	}
	for _, other := range p.function.parts {
		from = max(from, other.base+other.count)
	}
	return from, n
}

// SetIRQs implements Device. The vectors of all interfaces are told at once, as the kernel has no
// more vectors later than it was told of first.
func (p *part) SetIRQs(index, start int, eventfds []int) error {
	info, err := p.IRQ(index)
	if err != nil {
		return err
	}
	whole, err := p.function.IRQ(index)
	if err != nil {
		return err
	}
	f := p.function
	f.mu.Lock()
	defer f.mu.Unlock()
	if start < 0 || start+len(eventfds) > info.Count {
		return &Error{Op: "set interrupts of", Device: p.address, Err: ErrNoSuchIRQ}
	}
	p.base, _ = p.room(whole.Count)
	p.count = max(p.count, start+len(eventfds))
	vectors := slices.Clone(f.vectors)
	for len(vectors) < whole.Count {
		vectors = append(vectors, -1)
	}
	copy(vectors[p.base+start:], eventfds)
	return f.tell(vectors)
}

func (p *part) DisableIRQs(index int) error {
	if _, err := p.IRQ(index); err != nil || index != IRQMSIX {
		return err
	}
	f := p.function
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.count == 0 {
		return nil
	}
	vectors := slices.Clone(f.vectors)
	for i := range p.count {
		vectors[p.base+i] = -1
	}
	p.base, p.count = 0, 0
	return f.tell(vectors)
}

// tell connects all vectors of the function. mu is held.
func (f *function) tell(vectors []int) error {
	var err error
	if slices.ContainsFunc(vectors, func(fd int) bool { return fd >= 0 }) {
		err = f.Device.SetIRQs(IRQMSIX, 0, vectors)
	} else {
		err = f.Device.DisableIRQs(IRQMSIX)
	}
	if err == nil {
		f.vectors = vectors
	}
	return err
}

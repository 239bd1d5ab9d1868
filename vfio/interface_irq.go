package vfio

import "slices"

// IRQ describes the vectors that no other interface has. There are only those of MSI-X.
func (p *part) IRQ(index int) (info IRQInfo, err error) {
	err = p.do(func() error {
		if index != IRQMSIX {
			return &Error{Op: "look at interrupts of", Device: p.address, Err: ErrNoSuchIRQ}
		}
		info, err = p.function.IRQ(index)
		p.function.mu.Lock()
		defer p.function.mu.Unlock()
		info.Count = max(0, info.Count-p.from())
		return err
	})
	return info, err
}

// from is the first vector of the interface, or the first that no interface has if it has none yet.
func (p *part) from() int {
	if p.count > 0 {
		return p.base
	}
	from := 0
	for _, other := range p.function.parts {
		from = max(from, other.base+other.count)
	}
	return from
}

// SetIRQs implements Device. The vectors of all interfaces are told at once, as the kernel has no
// more vectors later than it was told of first.
func (p *part) SetIRQs(index, start int, eventfds []int) error {
	info, err := p.IRQ(index)
	if err != nil {
		return err
	}
	f := p.function
	f.mu.Lock()
	defer f.mu.Unlock()
	if start < 0 || start+len(eventfds) > info.Count {
		return &Error{Op: "set interrupts of", Device: p.address, Err: ErrNoSuchIRQ}
	}
	p.base, p.count = p.from(), max(p.count, start+len(eventfds))
	vectors := slices.Clone(f.vectors)
	for len(vectors) < p.base+info.Count {
		vectors = append(vectors, -1)
	}
	copy(vectors[p.base+start:], eventfds)
	return f.tell(vectors)
}

// DisableIRQs implements Device.
func (p *part) DisableIRQs(index int) error {
	if _, err := p.IRQ(index); err != nil {
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

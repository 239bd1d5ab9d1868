package pager

import "context"

// Sync writes back what was written to the mapped memory before the call, and returns when
// the source has all of it. It fails with the cause of ctx's end, or the pager's. After a
// mapper has gone it still writes back what that has left.
func (p *Pager) Sync(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.frames {
		f := &p.frames[i]
		for (f.state == mapped || f.state == moving) && f.dirty {
			if err := p.ended(ctx); err != nil {
				return err
			}
			if f.state == mapped && !f.writing && p.clean(f) {
				break
			}
			p.changed.Wait()
		}
	}
	last := p.ticket
	for i := range p.frames {
		f := &p.frames[i]
		for f.writing && f.ticket <= last {
			if err := p.ended(ctx); err != nil {
				return err
			}
			p.changed.Wait()
		}
	}
	return p.ended(ctx)
}

func (p *Pager) ended(ctx context.Context) error {
	if p.err != nil {
		return p.err
	}
	return context.Cause(ctx)
}

// clean begins to write back a page that stays in its place, if there is a buffer.
func (p *Pager) clean(f *frame) bool {
	b := p.takeBuffer()
	if b == none {
		return false
	}
	p.give(f, b)
	p.protect(f)
	if err := p.memory.read(p.bytes(f), p.offset(f)); err != nil {
		p.fail(err)
		return true
	}
	p.writeBack(f)
	return true
}

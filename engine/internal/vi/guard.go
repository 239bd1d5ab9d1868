package vi

// Memory of the program's own may be gone when it is touched. A call that may touch it runs by Host.Guard, and leaves the
// lock of the engine free. What it takes and returns stands beside the function that runs: a closure for each call would be
// an allocation.

// guardedCalls are those of one queue, made under the host's lock of the queue.
type guardedCalls struct {
	producer   uint32
	most       uint32
	what       polled
	post, poll func()
}

// guard prepares the guarded calls of a path.
func (p *Path) guard() {
	p.guardedSend.prepare(p, false, p.Post)
	p.guardedRecv.prepare(p, true, p.PostReceives)
}

func (g *guardedCalls) prepare(p *Path, receive bool, post func(uint32)) {
	g.post = func() {
		done := false
		defer func() {
			if !done {
				p.Mu.Unlock() // memory is only touched with the lock held
			}
		}()
		post(g.producer)
		done = true
	}
	g.poll = func() {
		defer p.Mu.Unlock()
		g.what = pollOther
		g.what = p.poll(receive, g.most)
	}
}

// pollGuarded is poll. The lock is held, and free at the end.
func (p *Path) pollGuarded(receive bool, most uint32) polled {
	g := &p.guardedSend
	if receive {
		g = &p.guardedRecv
	}
	g.most = most
	p.Guard(g.poll)
	return g.what
}

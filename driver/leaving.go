package driver

// leaving is how far the destruction of a VI or CQ has come.
type leaving struct {
	// ended is nil while nobody destroys the object, and closed when that is
	// over. Guarded by NIC.mu.
	ended chan struct{}
}

// begin begins the destruction. It fails with ErrClosed if that was done before,
// or with what inTheWay returns, which is called with NIC.mu held; nil for
// nothing.
func (l *leaving) begin(n *NIC, inTheWay func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.ended != nil {
		return ErrClosed
	}
	if inTheWay != nil {
		if err := inTheWay(); err != nil {
			return err
		}
	}
	l.ended = make(chan struct{})
	return nil
}

// begun reports whether the destruction has begun.
func (l *leaving) begun(n *NIC) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.ended != nil
}

// undo is called when the device refuses: the object stays.
func (l *leaving) undo(n *NIC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(l.ended)
	l.ended = nil
}

// end is called when nothing of the object is left.
func (l *leaving) end(n *NIC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(l.ended)
}

// wait waits for undo or end, for as long as the commands of one destruction
// take at most. It returns at once if none has begun.
func (l *leaving) wait(n *NIC) {
	n.mu.Lock()
	ended := l.ended
	n.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

package via

import "context"

// object is what a Ptag and a VI have in common: it belongs to one NIC, is used by
// others, and ends once. The counters are guarded by the NIC's mutex; no call of the
// data path touches them.
type object struct {
	nic *NIC
	// uses counts what would break if the object went away: regions and VIs of a
	// ptag, calls in progress on a VI.
	uses int
	gone bool
}

// acquire counts one more use of o, unless it belongs to another NIC or is gone.
func (n *NIC) acquire(op string, o *object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case o.nic != n:
		return n.refuse(op, ErrInvalidParameter, "objects can be used with the NIC that made them only", "an argument belongs to another NIC")
	case o.gone:
		return n.refuse(op, ErrClosed, "", "an argument has been destroyed")
	}
	o.uses++
	return nil
}

func (n *NIC) release(o *object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.uses--
}

// retire marks o as gone, so that nobody starts to use it, or fails with code
// busy if somebody does. If the destruction fails, revive takes it back.
func (o *object) retire(ctx context.Context, op string, busy Code, hint string) error {
	n := o.nic
	if err := n.check(ctx, op); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case o.gone:
		return n.refuse(op, ErrClosed, "", "destroyed already")
	case o.uses > 0:
		return n.refuse(op, busy, hint, "")
	}
	o.gone = true
	return nil
}

func (o *object) revive() {
	o.nic.mu.Lock()
	o.gone = false
	o.nic.mu.Unlock()
}

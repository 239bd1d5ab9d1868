package via

import (
	"context"
	"errors"
	"sync"
)

// object has what a Ptag and a VI have in common: it belongs to one NIC, is used by
// others, and ends once. The counters are guarded by the NIC's mutex; no call of the
// data path touches them.
type object struct {
	ends sync.Mutex // held while a call closes the object
	nic  *NIC
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
		return n.refuse(op, ErrClosed, "", "an argument has been closed")
	}
	o.uses++
	return nil
}

func (n *NIC) release(o *object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.uses--
}

// end closes o as f does, unless that was done before or the NIC is closed. While a call
// uses o it fails with code busy. f reports whether o is gone, be it with an error.
func (o *object) end(ctx context.Context, op string, busy Code, hint string, f func() (gone bool, err error)) error {
	n := o.nic
	if err := n.check(ctx, op); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return err
	}
	o.ends.Lock()
	defer o.ends.Unlock()
	first, err := o.retire(op, busy, hint)
	if err != nil || !first {
		return err
	}
	gone, err := f()
	n.mu.Lock()
	o.gone = gone
	n.mu.Unlock()
	return err
}

// retire marks o as gone, so that no call starts to use it, and reports whether it was not.
func (o *object) retire(op string, busy Code, hint string) (bool, error) {
	n := o.nic
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.gone {
		return false, nil
	}
	if o.uses > 0 {
		return false, n.refuse(op, busy, hint, "")
	}
	o.gone = true
	return true, nil
}

package emulator

import (
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// namedWires are the memory wires that addresses name: the first two devices
// that are opened with one name are the two ends of its wire.
var namedWires = wireNames{wires: map[string]*namedWire{}}

type wireNames struct {
	mu    sync.Mutex
	wires map[string]*namedWire
}

// namedWire is known by its name until both its ends are closed.
type namedWire struct {
	free  []*wire.Memory // ends that have not been opened, and are unplugged
	first *Device
	mtu   int
	open  int // ends that are open
}

var errEndsTaken = errors.New("both ends of this wire have been taken")

// open makes a device at a free end of the wire that s names.
func (n *wireNames) open(s *settings) (*Device, error) {
	fail := func(err error, hint string) (*Device, error) {
		return nil, &vfio.Error{Op: "open", Device: s.name, Err: err, Hint: hint}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wires[s.where]
	if w == nil {
		a, b, err := wire.NewMemory(wire.MemoryOptions{MTU: s.General.MTU})
		if err != nil {
			return fail(err, "")
		}
		b.SetLink(false)
		w = &namedWire{free: []*wire.Memory{a, b}, mtu: a.MTU()}
	}
	if len(w.free) == 0 {
		return fail(fmt.Errorf("%w: wire=mem:%s: %w", vfio.ErrBadAddress, s.where, errEndsTaken), "close both to use the name again")
	}
	if s.General.MTU != 0 && s.General.MTU != w.mtu {
		return fail(fmt.Errorf("%w: option mtu=%d: the wire's other end has %d", vfio.ErrBadAddress, s.General.MTU, w.mtu),
			"give both ends the same mtu, or only the first")
	}
	if err := s.checkBurst(w.mtu); err != nil {
		return fail(fmt.Errorf("%w: %w", vfio.ErrBadAddress, err), "give a smaller burst, or both ends a larger mtu")
	}
	end := w.free[0]
	w.free = w.free[1:]
	end.SetLink(true)
	d, err := s.plug(end)
	if err != nil {
		return nil, err
	}
	n.wires[s.where] = w
	w.open++
	d.atClose = func() { n.closed(s.where, w) }
	if w.first == nil {
		w.first = d
	} else if !w.first.closed.Load() {
		stepTogether(w.first, d)
	}
	return d, nil
}

// closed notes that one end of a wire was closed.
func (n *wireNames) closed(name string, w *namedWire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.open--; w.open == 0 {
		delete(n.wires, name)
	}
}

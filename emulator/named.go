package emulator

import (
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// namedWires are the memory wires that addresses name: the first two devices
// that are opened with a name are its two ends.
var namedWires = wireNames{wires: map[string]*namedWire{}}

type wireNames struct {
	mu    sync.Mutex
	wires map[string]*namedWire
}

// namedWire is known by its name until both its ends are closed.
type namedWire struct {
	// second is the end that has not been opened, unplugged until it is.
	second *wire.Memory
	first  *Device
	mtu    int
	open   int // ends that are open
}

var errEndsTaken = errors.New("both ends of this wire have been taken")

// open makes a device at a free end of the wire that s names.
func (n *wireNames) open(s *settings) (*Device, error) {
	fail := func(err error, hint string) (*Device, error) {
		return nil, &vfio.Error{Op: "open", Device: s.device.Name, Err: err, Hint: hint}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wires[s.where]
	if w == nil {
		return n.first(s, fail)
	}
	if w.second == nil {
		return fail(fmt.Errorf("%w: wire=mem:%s: %w", vfio.ErrBadAddress, s.where, errEndsTaken), "close both to use the name again")
	}
	if s.mtu != 0 && s.mtu != w.mtu {
		return fail(fmt.Errorf("%w: option mtu=%d: the wire's other end has %d", vfio.ErrBadAddress, s.mtu, w.mtu),
			"give both ends the same mtu, or only the first")
	}
	end := w.second
	w.second = nil
	end.SetLink(true)
	d, err := s.plug(end)
	if err != nil {
		return nil, err
	}
	w.open++
	d.atClose = func() { n.closed(s.where, w) }
	if !w.first.closed.Load() {
		stepTogether(w.first, d)
	}
	return d, nil
}

func (n *wireNames) first(s *settings, fail func(error, string) (*Device, error)) (*Device, error) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{MTU: s.mtu})
	if err != nil {
		return fail(err, "")
	}
	b.SetLink(false)
	d, err := s.plug(a)
	if err != nil {
		return nil, err
	}
	w := &namedWire{second: b, first: d, mtu: a.MTU(), open: 1}
	d.atClose = func() { n.closed(s.where, w) }
	n.wires[s.where] = w
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

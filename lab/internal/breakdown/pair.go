package breakdown

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// node is a host with its NIC, which runs only when it is stepped.
type node struct {
	device *emulator.Device
	nic    *via.NIC
	vi     *via.VI // connected to the other node
	d      *via.Descriptor
}

// pair is two nodes on a memory wire.
type pair struct {
	sender, receiver node
	line             timeline
}

// newPair makes and connects a pair. If its wire is watched its timeline has all borders, else the
// first and the last one alone.
func newPair(ctx context.Context, o *Options, watched bool) (p *pair, err error) {
	p = &pair{line: timeline{watched: watched}}
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	ports := [2]wire.Port{a, b}
	if watched {
		ports[0] = &probe{a, &p.line, phaseCopy, phaseRest}
		ports[1] = &probe{b, &p.line, phaseRest, phaseDeliver}
	}
	for i, n := range []*node{&p.sender, &p.receiver} {
		if err := n.open(ctx, ports[i], o); err != nil {
			return p, err
		}
	}
	if err := bench.Connect(ctx, p.sender.vi, p.receiver.vi); err != nil {
		return p, err
	}
	return p, p.receiver.vi.PostRecv(p.receiver.d)
}

// open makes the NIC, which owns the port, a VI, and its descriptor.
func (n *node) open(ctx context.Context, port wire.Port, o *Options) (err error) {
	opts, bytes := bench.Quiet(), max(int(o.Bytes), 1)
	opts.Eager = o.Eager
	if n.device, err = emulator.New(emulator.Options{Name: "emu:breakdown", Wire: port}); err != nil {
		return err
	}
	if n.nic, err = via.OpenDevice(ctx, n.device, opts); err != nil {
		return err
	}
	if n.vi, err = n.nic.CreateVI(ctx, via.VIAttributes{MaxTransfer: uint32(bytes), SendDepth: 2, RecvDepth: 2}, nil, nil); err != nil {
		return err
	}
	m, err := n.nic.Alloc(ctx, bytes, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	d, err := n.vi.NewDescriptors(ctx, 1, 1)
	if err != nil {
		return err
	}
	n.d = d[0]
	return m.AddTo(n.d, 0, int(o.Bytes))
}

// Close frees everything; a NIC closes its device and that its end of the wire.
func (p *pair) Close() (err error) {
	for _, n := range []*node{&p.sender, &p.receiver} {
		if n.nic != nil {
			err = errors.Join(err, n.nic.Close())
		}
	}
	return err
}

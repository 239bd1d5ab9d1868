package breakdown

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// node is a host with its NIC, which runs only when it is stepped.
type node struct {
	device *emulator.Device
	nic    *via.NIC
	vi     *via.VI           // connected to the other node
	lone   *via.VI           // not connected
	d      *via.Descriptor   // of vi
	many   []*via.Descriptor // of lone
}

// pair is two nodes on a memory wire.
type pair struct {
	sender, receiver node
	line             timeline
}

// lot is the number of posts or completions that are measured at a time.
const lot = 256

// newPair makes and connects a pair; probed says whether its wire is watched.
func newPair(ctx context.Context, o *Options, probed bool, mode emulator.DoorbellMode) (p *pair, err error) {
	p = &pair{}
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
	if probed {
		ports[0] = &probe{a, &p.line, phaseCopy, phaseRest}
		ports[1] = &probe{b, &p.line, phaseRest, phaseDeliver}
	}
	for i, n := range []*node{&p.sender, &p.receiver} {
		if err := n.open(ctx, ports[i], o, mode); err != nil {
			return p, err
		}
	}
	if err := bench.Connect(ctx, p.sender.vi, p.receiver.vi); err != nil {
		return p, err
	}
	return p, p.receiver.vi.PostRecv(p.receiver.d)
}

// open makes the NIC, which owns the port, and what a node has.
func (n *node) open(ctx context.Context, port wire.Port, o *Options, mode emulator.DoorbellMode) (err error) {
	opts, bytes := bench.Quiet(), o.Bytes
	opts.Eager = o.Eager
	if n.device, err = emulator.New(emulator.Options{Name: "emu:breakdown", Wire: port, Doorbells: mode}); err != nil {
		return err
	}
	if n.nic, err = via.OpenDevice(ctx, n.device, opts); err != nil {
		return err
	}
	a := via.VIAttributes{MaxTransfer: uint32(max(bytes, 1)), SendDepth: lot, RecvDepth: lot}
	if n.vi, err = n.nic.CreateVI(ctx, a, nil, nil); err != nil {
		return err
	}
	if n.lone, err = n.nic.CreateVI(ctx, a, nil, nil); err != nil {
		return err
	}
	at := (bytes + 63) &^ 63
	stride := descriptors.DescriptorBytes(1)
	m, err := n.nic.Alloc(ctx, at+(lot+1)*stride, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	for i := range lot + 1 {
		d, err := m.NewDescriptor(at+i*stride, 1)
		if err != nil {
			return err
		}
		if err := m.AddTo(d, 0, bytes); err != nil {
			return err
		}
		n.many = append(n.many, d)
	}
	n.d, n.many = n.many[lot], n.many[:lot]
	return nil
}

// Close frees everything; a NIC closes its device and that its end of the wire.
func (p *pair) Close() error {
	var errs []error
	for _, n := range []*node{&p.sender, &p.receiver} {
		if n.nic != nil {
			errs = append(errs, n.nic.Close())
		}
	}
	return errors.Join(errs...)
}

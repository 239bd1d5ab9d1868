package afxdp

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// program is the XDP program of a port, and the map of sockets that it redirects to. The
// kernel detaches it when the process ends.
type program struct {
	sockets *ebpf.Map
	program *ebpf.Program
	link    link.Link
	native  bool
	// why the driver has not taken it, if it was asked.
	why error
}

// What the program knows of the kernel: where in struct xdp_md the number of the queue is,
// and what it returns to have the kernel's network get a frame (include/uapi/linux/bpf.h).
const (
	queueIndexAt = 16
	xdpPass      = 2
)

// attach makes the program and attaches it to an interface. Frames that come in by a queue
// without a socket go on to the kernel.
func attach(ctx context.Context, d *device, index int) (_ *program, err error) {
	g := &program{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if g.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Name: "trapeze_sockets", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4,
		MaxEntries: uint32(d.options.First + d.config.Queues)}); err != nil {
		return nil, fmt.Errorf("map of sockets: %w", err)
	}
	if err = g.load(); err != nil {
		return nil, fmt.Errorf("XDP program: %w", err)
	}
	if d.options.Mode != generic {
		err = g.attachAs(ctx, d, index, link.XDPDriverMode)
		g.native = err == nil
		if err == nil || d.options.Mode == native || errors.Is(err, ethernet.ErrInUse) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
			return g, err
		}
		g.why = err
		d.port.Log().Debug("the driver does not take an XDP program", "why", err)
	}
	return g, g.attachAs(ctx, d, index, link.XDPGenericMode)
}

// load makes the program. It leaves what is in frames alone, so that it can take those in
// several buffers too, without which drivers refuse programs on a large MTU. Linux knows
// BPF_F_XDP_HAS_FRAGS from 5.18 on.
func (g *program) load() (err error) {
	spec := &ebpf.ProgramSpec{Name: "trapeze_redirect", Type: ebpf.XDP, License: "Apache-2.0", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, queueIndexAt, asm.Word),
			asm.LoadMapPtr(asm.R1, g.sockets.FD()),
			asm.Mov.Imm(asm.R3, xdpPass), // if there is no such socket
			asm.FnRedirectMap.Call(),
			asm.Return(),
		}}
	if g.program, err = ebpf.NewProgram(spec); errors.Is(err, unix.EINVAL) {
		spec.Flags = 0
		g.program, err = ebpf.NewProgram(spec)
	}
	return err
}

// attachAs attaches the program. One of a process that has ended may still be there for a
// moment.
func (g *program) attachAs(ctx context.Context, d *device, index int, how link.XDPAttachFlags) error {
	err := d.patiently(ctx, func() (err error) {
		g.link, err = link.AttachXDP(link.XDPOptions{Program: g.program, Interface: index, Flags: how})
		return err
	})
	return explainAttach(err)
}

// explainAttach makes an error of this package of why a program could not be attached.
// ERANGE and ENOSPC are veth's (Linux, drivers/net/veth.c: veth_xdp_set).
func explainAttach(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ERANGE):
		return fmt.Errorf("%w: %w", errLarge, err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: %w", errFew, err)
	case errBusy(err):
		return fmt.Errorf("%w: another XDP program is attached: %w", ethernet.ErrInUse, err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: XDP: %w", ethernet.ErrNotSupported, err)
	}
	return err
}

func (g *program) close() error {
	var errs []error
	if g.link != nil {
		errs = append(errs, g.link.Close())
	}
	if g.program != nil {
		errs = append(errs, g.program.Close())
	}
	if g.sockets != nil {
		errs = append(errs, g.sockets.Close())
	}
	return errors.Join(errs...)
}

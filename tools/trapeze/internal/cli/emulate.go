package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/activation"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/wire"
)

// emulateReport is the JSON output of emulate when it is ready.
type emulateReport struct {
	NICs []emulatedNIC `json:"nics"`
}

type emulatedNIC struct {
	// A program opens Address; QEMU takes Socket.
	Address string `json:"address"`
	Socket  string `json:"socket"`
	MAC     string `json:"mac"`
}

type emulateFlags struct {
	Sockets []string `flag:"socket" help:"socket to serve a NIC at; give it again for another NIC"`
	Wire    string   `flag:"wire" help:"what the NIC is plugged into, if it is one: loop, udp://HOST:PORT, shm:PATH, memif:PATH&role=server or a NIC as pci:FUNCTION, afxdp:INTERFACE, vhost-user:PATH"`
	Device  string   `flag:"device" default:"emu:" help:"options of the NICs, as an emu: or eth: address"`
	Mode    string   `flag:"mode" default:"0600" help:"permissions of the sockets: who can write to one can use its NIC"`
}

// listening is a socket with its path.
type listening struct {
	path string
	l    net.Listener
}

func (p *program) emulate(ctx context.Context, f *emulateFlags, _ []string) (err error) {
	address, err := f.address()
	if err != nil {
		return err
	}
	mode, err := strconv.ParseUint(f.Mode, 8, 9)
	if err != nil {
		return &option.Error{Option: "--mode", Value: f.Mode, Allowed: "octal permissions such as 0660"}
	}
	sockets, err := listenAll(f.Sockets, fs.FileMode(mode))
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range sockets {
			_ = s.l.Close() // those that serve are closed already
		}
	}()
	var names []string
	for _, s := range sockets {
		names = append(names, "vfio-user:"+s.path)
	}
	nics, err := emulator.Fleet(ctx, address, names)
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	defer func() {
		for _, d := range nics {
			err = errors.Join(err, d.Close())
		}
	}()
	return p.serve(ctx, sockets, nics)
}

// address is --device with --wire put in.
func (f *emulateFlags) address() (string, error) {
	a, err := vfio.ParseAddress(f.Device)
	if err != nil {
		return "", &command.DeviceError{Err: err}
	}
	if f.Wire == "" {
		return f.Device, nil
	}
	if a.Options.Has("wire") {
		return "", option.Errorf("--wire and the wire option of --device contradict each other: give one of them")
	}
	separator := "?"
	if strings.Contains(f.Device, "?") {
		separator = "&"
	}
	return f.Device + separator + "wire=" + f.Wire, nil
}

// listenAll opens the sockets at paths, or takes those of a service manager.
func listenAll(paths []string, mode fs.FileMode) (sockets []listening, err error) {
	handed, err := activation.Sockets()
	if err != nil {
		return nil, err
	}
	for _, s := range handed {
		sockets = append(sockets, listening{s.Addr().String(), s})
	}
	defer func() {
		if err != nil {
			for _, s := range sockets {
				err = errors.Join(err, s.l.Close())
			}
		}
	}()
	if len(handed) > 0 && len(paths) > 0 {
		return nil, option.Errorf("--socket was given, and the service manager has handed over sockets: use one of the two")
	}
	for _, path := range paths {
		l, err := vfiouser.Listen(path, mode)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, listening{path, l})
	}
	if len(sockets) == 0 {
		return nil, &option.Error{Option: "--socket", Allowed: "the path of a socket to serve a NIC at"}
	}
	return sockets, nil
}

// serve serves until ctx ends.
func (p *program) serve(ctx context.Context, sockets []listening, nics []*emulator.Device) error {
	log := command.Logger(ctx, slog.LevelWarn)
	stop := ctx // the command is meant to end with it
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving sync.WaitGroup
	report := emulateReport{NICs: []emulatedNIC{}}
	for i, d := range nics {
		server, err := vfiouser.NewServer(d, vfiouser.ServerOptions{Logger: log})
		if err != nil {
			return err
		}
		serving.Go(func() { cancel(server.Serve(ctx, sockets[i].l)) })
		report.NICs = append(report.NICs, emulatedNIC{d.Info().Address, sockets[i].path, d.MAC().String()})
	}
	serving.Go(func() { watchWires(ctx, log, nics) })
	if err := p.ready(report); err != nil {
		cancel(err)
	}
	serving.Wait()
	if err := activation.Notify(daemon.SdNotifyStopping); err != nil {
		log.Warn("cannot tell the service manager", "error", err)
	}
	if stop.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// watchWires logs each second the last frame of a NIC that broke off in the switch. At the end it
// logs the counters of the wires.
func watchWires(ctx context.Context, log *slog.Logger, nics []*emulator.Device) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := make([]*wire.PathError, len(nics))
	for {
		for i, d := range nics {
			if e := d.WireBroke(); e != last[i] {
				log.Warn("a frame broke off", "nic", d.Info().Address, "error", e)
				last[i] = e
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, d := range nics {
				log.Info("wire", "nic", d.Info().Address, "counters", d.WireStats())
			}
			return
		}
	}
}

// ready tells the caller's output and supervisor that clients may come.
func (p *program) ready(r emulateReport) error {
	if p.JSON {
		if err := p.PrintJSON(r); err != nil {
			return err
		}
	} else {
		for _, n := range r.NICs {
			fmt.Fprintf(p.Stdout, "%s  MAC %s\n", n.Address, n.MAC)
		}
		p.Note("serving; Ctrl-C ends it")
	}
	return activation.Notify(daemon.SdNotifyReady)
}

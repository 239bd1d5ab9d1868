package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// sendReport is the JSON output of send.
type sendReport struct {
	Name string `json:"name"`
	Peer string `json:"peer" help:"MAC"`
	transfer.Result
}

type sendFlags struct {
	Device  string        `flag:"device" help:"address of the NIC to send through"`
	To      string        `flag:"to" help:"MAC address of the receiver's NIC (default the NIC that waits on the wire)"`
	Name    string        `flag:"name" help:"name to send the file under (default its own)"`
	Timeout time.Duration `flag:"timeout" default:"10s" range:"1ns.." help:"how long to try to reach a receiver"`
}

func (p *program) send(ctx context.Context, f *sendFlags, args []string) (err error) {
	if err := peer.CheckDevice(f.Device); err != nil {
		return err
	}
	mac, err := peer.Target(f.To)
	if err != nil {
		return err
	}
	src, file, err := p.openSource(args[0], f.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	nic, err := peer.Open(ctx, f.Device, via.Options{})
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	c, err := dial(ctx, nic, via.Address{MAC: mac, Discriminator: fileDiscriminator}, fileOptions(min(chunk, int(nic.Query().MaxTransfer))), f.Timeout)
	if err != nil {
		return fmt.Errorf("send %s: %w", src.Name, explainDial(err, f.Timeout, "trapeze recv"))
	}
	e, err := c.Stream()
	if err != nil {
		return err
	}
	meter := p.Meter("sending "+src.Name, src.Size)
	res, err := transfer.Send(ctx, e, src, meter.Add)
	meter.Stop()
	if cerr := e.Close(); err == nil && cerr != nil {
		p.Note("trapeze: warning: %v", cerr)
	}
	if err != nil {
		return fmt.Errorf("send %s: %w", src.Name, explainLost(err, "is 'trapeze recv' still running there?"))
	}
	return p.Report(sendReport{src.Name, e.Conn().Remote().MAC.String(), res})
}

// openSource opens what is to be sent.
func (p *program) openSource(path, name string) (transfer.Source, io.Closer, error) {
	src := transfer.Source{Offer: transfer.Offer{Name: name, Size: transfer.UnknownSize, Mode: 0o644}, Reader: p.Stdin}
	var file io.Closer = io.NopCloser(nil)
	if path == "-" {
		if src.Name == "" {
			src.Name = "stdin"
		}
	} else {
		f, err := os.Open(path)
		if err != nil {
			return src, nil, err
		}
		st, err := f.Stat()
		if err == nil && st.IsDir() {
			err = shell.Hinted(&fs.PathError{Op: "send", Path: path, Err: errors.New("it is a directory")}, "send an archive of it: tar c DIR | trapeze send … -")
		}
		if err != nil {
			return src, nil, errors.Join(err, f.Close())
		}
		// Files that the kernel makes up say that they are empty and are not.
		if st.Mode().IsRegular() && st.Size() > 0 {
			src.Size = st.Size()
		}
		src.Mode, src.Reader, file = st.Mode().Perm(), f, f
		if src.Name == "" {
			src.Name = filepath.Base(path)
		}
	}
	if err := transfer.CheckName(src.Name); err != nil {
		return src, nil, errors.Join(option.Errorf("the name %q cannot be sent; choose another with --name", src.Name), file.Close())
	}
	return src, file, nil
}

// explainDial adds how long was tried and what to start at the other end.
func explainDial(err error, timeout time.Duration, command string) error {
	switch {
	case errors.Is(err, via.ErrTimeout):
		return shell.Hinted(fmt.Errorf("%w; tried for %v", err, timeout), "start '"+command+"' at the other end, check the peer address and that both have the same key= or none, or give it more --timeout")
	case errors.Is(err, via.ErrReject):
		return shell.Hinted(err, "it says there why")
	}
	return err
}

// explainLost adds a hint if the other side is gone.
func explainLost(err error, hint string) error {
	if errors.Is(err, via.ErrPathMTU) {
		return shell.Hinted(err, "set mtu= in the addresses of both devices to what the path carries")
	}
	if errors.Is(err, transfer.ErrPeerLost) {
		return shell.Hinted(err, hint)
	}
	return err
}

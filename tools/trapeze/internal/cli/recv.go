package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// recvReport is the JSON output of recv.
type recvReport struct {
	Name   string `json:"name" help:"the sender's"`
	Output string `json:"output"`
	Peer   string `json:"peer" help:"MAC"`
	transfer.Result
	Confirmed bool `json:"confirmed" help:"the sender has the receipt"`
}

type recvFlags struct {
	Device  string        `flag:"device" required:"the address of a NIC, as in --device 'emu:?wire=udp://127.0.0.1:9000'" help:"address of the NIC to receive through"`
	Output  string        `flag:"output,o" help:"where to store the file; - is stdout (default the sender's name for it, here)"`
	Timeout time.Duration `flag:"timeout" range:"0s.." help:"how long to wait for a sender (default until interrupted)"`
	cmdtable.Force
}

func (p *program) recv(ctx context.Context, f *recvFlags, _ []string) (err error) {
	if f.Output == "-" && p.JSON {
		return option.Errorf("--output - and --json cannot both have stdout")
	}
	// Better to know now than when a sender has come.
	if err := checkOutput(f.Output, f.Force.Force); err != nil {
		return explainOutput(err)
	}
	nic, err := peer.Open(ctx, f.Device, via.Options{})
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	e, err := p.awaitSender(ctx, nic, f)
	if err != nil {
		return err
	}
	r, err := p.receiveFile(ctx, e, f)
	if cerr := e.Close(); err == nil && cerr != nil {
		p.Note("trapeze: warning: %v", cerr)
	}
	if err != nil {
		hint := "what had arrived was removed"
		if r.Output == "-" {
			hint = "what went to stdout is not whole"
		}
		return fmt.Errorf("receive: %w", explainOutput(explainLost(err, hint)))
	}
	r.Peer = e.Conn().Remote().MAC.String()
	if !r.Confirmed {
		p.Note("trapeze: the file is complete, but the sender may not know")
	}
	return p.ReportBeside(r.Output, r)
}

// awaitSender waits for a sender to connect.
func (p *program) awaitSender(ctx context.Context, nic *via.NIC, f *recvFlags) (*via.Stream, error) {
	if to := peer.Hint(f.Device); to != "" {
		p.Note("waiting for a file; to send one:\n  trapeze send --device '%s' FILE", to)
	} else {
		p.Note("waiting for a file")
	}
	if f.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.Timeout)
		defer cancel()
	}
	l, err := via.Listen(nic, fileDiscriminator, via.ListenOptions{Conn: acceptOptions, Limit: 1,
		Refused: func(r via.Remote, err error) { p.Note("trapeze: turned down %v: %v", r.MAC, err) }})
	if err != nil {
		return nil, err
	}
	e, err := l.Accept(ctx)
	if cerr := l.Close(); err == nil && cerr != nil {
		p.Note("trapeze: warning: %v", cerr)
	}
	if errors.Is(err, via.ErrTimeout) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = shell.Hinted(fmt.Errorf("receive: no sender within %v: %w", f.Timeout, via.ErrTimeout), "give it more --timeout")
	}
	if err != nil {
		return nil, err
	}
	return e.Stream()
}

// receiveFile takes the file of a sender that has connected.
func (p *program) receiveFile(ctx context.Context, e *via.Stream, f *recvFlags) (recvReport, error) {
	r := recvReport{Output: f.Output}
	meter := p.Meter("", -1)
	var err error
	r.Result, err = transfer.Receive(ctx, e, func(o transfer.Offer) (transfer.Sink, error) {
		r.Name = o.Name
		if r.Output == "" {
			if err := checkOffered(o.Name); err != nil {
				return nil, err
			}
			r.Output = o.Name
		}
		meter = p.Meter("receiving "+o.Name, o.Size)
		return p.openSink(r.Output, o.Mode&^executable, f.Force.Force)
	}, func(n int) { meter.Add(n) })
	meter.Stop()
	r.Confirmed = !r.Unconfirmed
	return r, err
}

// executable are the permissions that no sender can give a file.
const executable = 0o111

// errOffered: the sender's name for a file is none that the receiver uses unasked.
var errOffered = errors.New("a name that is hidden, or that looks like an option, is not taken from a sender")

// checkOffered refuses names that are harmless in the sender's hands only: those of
// files that shells and programs read unasked, and those that a command would take
// for an option. The protocol has refused all that are no base names, or not
// printable.
func checkOffered(name string) error {
	if name[0] == '.' || name[0] == '-' {
		return &fs.PathError{Op: "create", Path: name, Err: errOffered}
	}
	return nil
}

// checkOutput looks whether a file can be stored where openSink will.
func checkOutput(output string, replace bool) error {
	switch output {
	case "-":
		return nil
	case "": // under a name that the sender will say
		return outfile.CheckDirectory(".")
	}
	return outfile.Check(output, replace)
}

// openSink opens where a file goes.
func (p *program) openSink(output string, mode fs.FileMode, replace bool) (transfer.Sink, error) {
	if output == "-" {
		return stream{p.Bytes}, nil
	}
	file, err := outfile.Create(output, mode, replace)
	if err != nil {
		return nil, alsoExists(err)
	}
	return fileSink{file}, nil
}

// fileSink tells the sender of a file that appeared meanwhile.
type fileSink struct{ *outfile.File }

func (s fileSink) Commit() error { return alsoExists(s.File.Commit()) }

// alsoExists marks the error of a file that stands in the way for the protocol.
func alsoExists(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", transfer.ErrExists, err)
	}
	return err
}

// explainOutput adds what can be done about a file that stands in the way.
func explainOutput(err error) error {
	switch {
	case errors.Is(err, errOffered):
		return shell.Hinted(err, "choose one with --output")
	case errors.Is(err, fs.ErrExist), errors.Is(err, outfile.ErrNotRegular):
		return outfile.Explain("--output", err)
	}
	return err
}

// stream is a sink that cannot take anything back.
type stream struct{ io.Writer }

func (stream) Commit() error  { return nil }
func (stream) Discard() error { return nil }

package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// captureFlag is --capture.
type captureFlag struct {
	Path  string `flag:"capture" help:"write the messages of channels to this pcapng file"`
	Given cmdtable.Given
	cmdtable.Force
}

// captureReport describes the capture at its end, in JSON.
type captureReport struct {
	File    string `json:"file"`
	PDUs    uint64 `json:"pdus"`
	Damaged uint64 `json:"damaged"`
}

// cellCapture writes the cells that cross a wire to a file. A nil one, for a command without
// --capture, does nothing.
type cellCapture struct {
	path string
	file *outfile.File

	mu     sync.Mutex          // guards what follows: the NIC goes on until it is closed
	writer *capture.CellWriter // nil once it is finished
	err    error               // the first of writing
	report *captureReport
}

// open starts the file, so that one that cannot be written is refused before anything else is
// done. device is captured.
func (f *captureFlag) open(device string) (*cellCapture, error) {
	if !f.Given("capture") {
		return nil, nil
	}
	file, err := outfile.Create(f.Path, 0o600, f.Force.Force)
	if err != nil {
		return nil, outfile.Explain("--capture", err)
	}
	w, err := capture.NewCellWriter(file, capture.Source{Name: device})
	if err != nil {
		return nil, fmt.Errorf("--capture: %w", errors.Join(err, file.Discard()))
	}
	return &cellCapture{path: f.Path, file: file, writer: w}, nil
}

// see is shown a frame.
func (c *cellCapture) see(sent bool, frame []byte) {
	now, d := time.Now(), capture.Received
	if sent {
		d = capture.Sent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writer != nil && c.err == nil {
		c.err = c.writer.Frame(now, d, frame)
	}
}

// finish puts the file in its place, once. Its error is added to *err.
func (c *cellCapture) finish(err *error) *captureReport {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writer == nil {
		return c.report
	}
	e := c.err
	if e == nil {
		e = c.writer.Flush()
	}
	if e == nil {
		e = c.file.Commit()
	}
	if e = errors.Join(e, c.file.Discard()); e != nil {
		*err = errors.Join(*err, outfile.Explain("--capture", e))
	} else {
		c.report = &captureReport{c.path, c.writer.PDUs(), c.writer.Damaged()}
	}
	c.writer = nil
	return c.report
}

// openNIC opens the NIC at an address, whose wire is captured.
func (c *cellCapture) openNIC(ctx context.Context, address string) (*via.NIC, error) {
	if c == nil {
		return peer.Open(ctx, address, via.Options{})
	}
	dev, err := emulator.OpenWatched(ctx, address, c.see)
	if err != nil {
		return nil, c.discard(&command.DeviceError{Err: err})
	}
	nic, err := peer.OpenDevice(ctx, dev, via.Options{})
	if err != nil {
		return nil, c.discard(err)
	}
	return nic, nil
}

// discard removes the file, since there is nothing to capture for a reason.
func (c *cellCapture) discard(reason error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writer = nil
	if err := c.file.Discard(); err != nil {
		return errors.Join(reason, err)
	}
	return reason
}

// openPair is openPair with a wire that is captured, at the end of a.
func (c *cellCapture) openPair(ctx context.Context) (a, b *via.NIC, err error) {
	if c == nil {
		return openPair(ctx, via.Options{})
	}
	if a, b, err = peer.OpenPair(ctx, via.Options{}, emulator.PairOptions{}, c.see); err != nil {
		return nil, nil, c.discard(err)
	}
	return a, b, nil
}

// noteCapture tells a person where the capture is.
func (p *program) noteCapture(r *captureReport) {
	if r == nil {
		return
	}
	p.Note("%d messages, %d of them damaged, in %s; to look at them:\n  tshark -r %s", r.PDUs, r.Damaged, r.File, r.File)
}

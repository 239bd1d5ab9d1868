package telemetrycmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/framering"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/match"
)

// ErrOwnerLost: the process whose NIC is looked at has ended meanwhile, without closing it.
var ErrOwnerLost = errors.New("the process that has the NIC has ended")

// captureReport is printed by capture --json.
type captureReport struct {
	Output  string `json:"output"`
	Frames  uint64 `json:"frames" help:"that came"`
	Matched uint64 `json:"matched" help:"that are in the file"`
	Bytes   uint64 `json:"bytes" help:"of them"`
	Dropped uint64 `json:"dropped" help:"for which there was no room"`
	Ended   string `json:"ended" help:"why: interrupted, count, duration, max-bytes, closed"`
}

type captureFlags struct {
	Device   string         `flag:"device,d" help:"address of the NIC, or the ID of its process, or PID:PORT (default the only one)"`
	Match    []string       `flag:"match" split:"comma" help:"only frames that have these fields, such as proto=udp,port=53"`
	Output   capture.Output `override:"output" required:"the file to write, or - for stdout"`
	Count    uint64         `flag:"count,c" help:"end after so many frames (default no limit)"`
	Duration time.Duration  `flag:"duration" range:"0s.." help:"end after so long (default no limit)"`
	MaxBytes option.Bytes   `flag:"max-bytes" default:"1G" help:"end when so many bytes of frames are written"`
}

const (
	// capturePause is the time from one look at an empty ring to the next, captureBatch bounds
	// the frames between two looks at the clock.
	capturePause, captureBatch = 2 * time.Millisecond, 256
	// matchedHeaders is the number of bytes of a frame that --match looks at.
	matchedHeaders = 256
	// captureAlive is the time from one question whether the owner lives to the next.
	captureAlive = time.Second
)

func (x *commands) capture(ctx context.Context, f *captureFlags, _ []string) error {
	if err := f.Output.Check(x.JSON); err != nil {
		return err
	}
	match, err := match.Parse(f.Match)
	if err != nil {
		return err
	}
	h := x.look(ctx, f.Device)
	defer h.close()
	n, err := h.one(f.Device)
	if err != nil {
		return err
	}
	snaplen := f.Output.Snaplen
	if snaplen > 0 && len(f.Match) > 0 {
		snaplen = max(snaplen, matchedHeaders)
	}
	ring, end, err := n.capture(ctx, snaplen)
	if err != nil {
		return err
	}
	defer end()
	file, err := f.Output.Create(x.Bytes, n.Address, strings.Join(f.Match, ","))
	if err != nil {
		return err
	}
	s := capturing{captureFlags: f, nic: n, ring: ring, match: match, file: file, report: captureReport{Output: f.Output.Path}}
	meter := x.Meter("captured", -1)
	x.Note("capturing frames of %s, process %s", n.Address, n.id())
	lost := s.run(ctx, meter.Add)
	meter.Stop()
	s.report.Dropped = ring.Dropped()
	if err := file.Finish(s.written); err != nil {
		return errors.Join(err, lost)
	}
	if lost != nil {
		return fmt.Errorf("%w; %s has the %d frames until then", lost, f.Output.Path, s.report.Matched)
	}
	return x.ReportBeside(f.Output.Path, s.report)
}

// capture borrows the ring of the NIC's frames. What it returns beside gives the memory back.
func (n *NIC) capture(ctx context.Context, snaplen int) (*framering.Reader, func(), error) {
	var answer telemetry.Capture
	memory, err := n.client.Borrow(ctx, fmt.Sprintf("/trapeze/capture,%d,%d", n.Port, snaplen), &answer)
	end := func() {
		if memory != nil {
			_ = unix.Munmap(memory) // it goes with the process at the latest
		}
	}
	switch {
	case errors.Is(err, telemetry.ErrNoAnswer):
		err = fmt.Errorf("%w: the NIC is gone, or its program is older than this one", err)
	case err == nil && answer.Refused != "":
		err = fmt.Errorf("%s cannot be captured: %s", n.Address, answer.Refused)
	case err == nil && memory == nil:
		err = fmt.Errorf("%s cannot be captured: its process lends nothing", n.Address)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	ring, err := framering.NewReader(memory)
	if err != nil {
		end()
	}
	return ring, end, err
}

// capturing is a capture that runs.
type capturing struct {
	*captureFlags
	nic     *NIC
	ring    *framering.Reader
	match   *match.Frames
	file    *capture.File
	report  captureReport
	written error // the first error of writing
}

// run writes frames until it is enough, ctx ends, or writing fails. It fails if the owner is
// lost.
func (s *capturing) run(ctx context.Context, progress func(int)) error {
	begin := time.Now()
	for asked := begin; ; {
		ended, interrupted, lost := s.ring.Ended(), ctx.Err() != nil, error(nil)
		if now := time.Now(); now.Sub(asked) >= captureAlive {
			asked, lost = now, s.alive(ctx)
		}
		before := s.report.Bytes
		n, err := s.take()
		progress(int(s.report.Bytes - before))
		switch {
		case err != nil:
			return err
		case s.written != nil || s.report.Ended != "":
			return nil
		case interrupted:
			s.report.Ended = "interrupted"
			return nil
		case s.Duration > 0 && time.Since(begin) >= s.Duration:
			s.report.Ended = "duration"
			return nil
		case n > 0: // there may be more
		case ended:
			s.report.Ended = "closed"
			return nil
		case lost != nil:
			return lost
		default:
			_ = pause.For(ctx, capturePause)
		}
	}
}

// alive asks whether the owner lives. A NIC that was closed has said so in the ring.
func (s *capturing) alive(ctx context.Context) error {
	var link map[string]any
	err := s.nic.ask(ctx, "/ethdev/link_status", &link)
	switch {
	case err == nil || s.ring.Ended() || ctx.Err() != nil:
		return nil
	case errors.Is(err, telemetry.ErrNoAnswer):
		return fmt.Errorf("%w: the NIC %s is gone", err, s.nic.Address)
	}
	return fmt.Errorf("%w: process %d, which had %s", ErrOwnerLost, s.nic.PID, s.nic.Address)
}

// take writes the frames that wait, a batch at most, and returns how many there were. It fails if
// the owner contradicts itself.
func (s *capturing) take() (n int, err error) {
	for ; n < captureBatch; n++ {
		f, ok, e := s.ring.Next()
		if err = e; err != nil || !ok {
			break
		}
		s.report.Frames++
		if !s.match.Match(f.Bytes) {
			continue
		}
		if s.written = s.file.Write(f.At, f.Bytes, f.Length); s.written != nil {
			return n, nil
		}
		s.report.Matched++
		kept := len(f.Bytes)
		if s.Output.Snaplen > 0 {
			kept = min(kept, s.Output.Snaplen)
		}
		s.report.Bytes += uint64(kept)
		switch {
		case s.Count > 0 && s.report.Matched >= s.Count:
			s.report.Ended = "count"
			return n, nil
		case s.report.Bytes >= uint64(s.MaxBytes):
			s.report.Ended = "max-bytes"
			return n, nil
		}
	}
	if n > 0 && s.Output.Path == "-" {
		s.written = s.file.Flush()
	}
	return n, err
}

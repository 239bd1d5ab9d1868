package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/trapeze-nic/trapeze/wire/memif"
)

// FramesCommand is the hidden command of one end of a measurement of frames.
const FramesCommand = "bench-frames"

// Frames is one end of a measurement of frames over memif: what dpdk-testpmd does
// as txonly and rxonly, with no NIC on top. It crosses to its process as JSON.
type Frames struct {
	Socket string        `json:"socket"`
	Send   bool          `json:"send"` // else receive, and be the server
	Bytes  int           `json:"bytes"`
	For    time.Duration `json:"ns"`
	Core   int           `json:"core"`
}

// framesBurst is how many frames go out with one Flush: as many as testpmd sends
// and receives at a time.
const framesBurst = 32

// askFrames measures frames between two processes of ours.
func askFrames(ctx context.Context, q Question) (a Answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, starting+2*q.For, fmt.Errorf("frames: %w", errNothing))
	defer cancel()
	folder, err := os.MkdirTemp("", "trapeze-bench-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(folder)
	f := Frames{Socket: filepath.Join(folder, "memif"), Bytes: q.Bytes, For: q.For, Core: q.Cores[0]}
	receiver, err := startFrames(ctx, f)
	if err != nil {
		return a, err
	}
	f.Send, f.Core = true, q.Cores[1]
	sender, err := startFrames(ctx, f)
	if err != nil {
		receiver.stop()
		return a, err
	}
	defer sender.stop()
	text, err := io.ReadAll(receiver.out)
	if end := receiver.end(); end != nil {
		err = end
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return a, err
	}
	values, err := numbers(string(text), " ", 1)
	if err != nil {
		return a, err
	}
	return Answer{Value: values[0]}, nil
}

func startFrames(ctx context.Context, f Frames) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	return start(ctx, nil, self, FramesCommand, string(spec))
}

// RunFrames is one end. The receiver prints frames a second and ends; the sender
// ends when it is told to, or the receiver has gone.
func RunFrames(ctx context.Context, w io.Writer, spec string) error {
	var f Frames
	if err := json.Unmarshal([]byte(spec), &f); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if f.Bytes < 1 || f.Bytes > memif.DefaultMTU {
		return fmt.Errorf("%w: frames of %d bytes (1 to %d)", ErrSpec, f.Bytes, memif.DefaultMTU)
	}
	if err := pin(f.Core); err != nil {
		return err
	}
	role := memif.Server
	if f.Send {
		role = memif.Client
	}
	p, err := memif.New(memif.Options{Socket: f.Socket, Role: role, Polling: true})
	if err != nil {
		return err
	}
	for !p.LinkUp() {
		if err := pause(ctx); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	if f.Send {
		f.send(ctx, p)
		return p.Close()
	}
	rate, err := f.receive(ctx, p)
	if err == nil {
		_, err = fmt.Fprintln(w, rate)
	}
	return errors.Join(err, p.Close())
}

// send copies frames from a buffer, as an application would.
func (f *Frames) send(ctx context.Context, p *memif.Port) {
	frame := make([]byte, f.Bytes)
	for rounds := 0; p.LinkUp(); rounds++ {
		if rounds%checkEvery == 0 && ctx.Err() != nil {
			return
		}
		for range framesBurst {
			b := p.Reserve(f.Bytes)
			if b == nil {
				break
			}
			copy(b, frame)
			p.Commit()
		}
		p.Flush()
	}
}

// receive copies frames into a buffer, for a tenth of the time to warm up and then
// for all of it. It returns frames a second.
func (f *Frames) receive(ctx context.Context, p *memif.Port) (float64, error) {
	if _, err := f.drain(ctx, p, f.For/10); err != nil {
		return 0, err
	}
	started := time.Now()
	n, err := f.drain(ctx, p, f.For)
	return float64(n) / time.Since(started).Seconds(), err
}

// errShort: a frame arrived that nobody sent.
var errShort = errors.New("a frame of another size")

func (f *Frames) drain(ctx context.Context, p *memif.Port, d time.Duration) (n uint64, err error) {
	frame := make([]byte, f.Bytes)
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		for range checkEvery {
			b := p.Receive()
			if b == nil {
				continue
			}
			if copy(frame, b) != len(frame) || len(b) != len(frame) {
				return n, fmt.Errorf("%w: %d bytes", errShort, len(b))
			}
			p.Release()
			n++
		}
	}
	return n, nil
}

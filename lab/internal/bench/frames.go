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

	"github.com/trapeze-nic/trapeze/wire"
)

// frames is one end of a measurement of frames over memif: what dpdk-testpmd does
// as txonly and rxonly, with no NIC on top.
type frames struct {
	Socket string
	Send   bool // else receive, and be the server
	Bytes  int
	For    time.Duration
	Core   int
}

// framesBurst is the number of frames that go out with one Flush: as many as testpmd sends and
// receives at a time.
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
	f := frames{Socket: filepath.Join(folder, "memif"), Bytes: q.Bytes, For: q.For, Core: q.Cores[0]}
	receiver, err := startWorker(ctx, job{Frames: &f})
	if err != nil {
		return a, err
	}
	f.Send, f.Core = true, q.Cores[1]
	sender, err := startWorker(ctx, job{Frames: &f})
	if err != nil {
		receiver.stop()
		return a, err
	}
	received, err := result[Side](receiver)
	if err != nil {
		sender.stop()
		return a, caused(ctx, err)
	}
	sent, err := result[Side](sender)
	return Answer{Value: received.MessageRate(), switches: received.SwitchRate() + sent.SwitchRate()}, err
}

// run is one end, which prints its Side. The receiver ends first; the sender does when
// the receiver has gone, or it is told to.
func (f *frames) run(ctx context.Context, w io.Writer) error {
	if f.Bytes < 1 || f.Bytes > wire.MemifDefaultMTU {
		return fmt.Errorf("%w: frames of %d bytes (1 to %d)", ErrSpec, f.Bytes, wire.MemifDefaultMTU)
	}
	if err := pin(f.Core); err != nil {
		return err
	}
	role := wire.MemifServer
	if f.Send {
		role = wire.MemifClient
	}
	p, err := wire.NewMemif(wire.MemifOptions{Socket: f.Socket, Role: role, Polling: true})
	if err != nil {
		return err
	}
	for !p.LinkUp() {
		if err := sleep(ctx, lookPause); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	var side Side
	if f.Send {
		a := startAccount()
		f.send(ctx, p)
		a.end(&side)
	} else {
		err = f.receive(ctx, p, &side)
	}
	if err == nil {
		err = json.NewEncoder(w).Encode(side)
	}
	return errors.Join(err, p.Close())
}

// send copies frames from a buffer, as an application would.
func (f *frames) send(ctx context.Context, p *wire.Memif) {
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
// for all of it, which it measures.
func (f *frames) receive(ctx context.Context, p *wire.Memif, side *Side) (err error) {
	if _, err := f.drain(ctx, p, f.For/10); err != nil {
		return err
	}
	a := startAccount()
	side.Messages, err = f.drain(ctx, p, f.For)
	a.end(side)
	return err
}

// errShort: a frame of a size arrived that was not sent.
var errShort = errors.New("a frame of another size")

func (f *frames) drain(ctx context.Context, p *wire.Memif, d time.Duration) (n uint64, err error) {
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

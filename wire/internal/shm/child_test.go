package shm_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// runChild does what a task says, until the input ends.
func runChild(s string) error {
	var do task
	if err := json.Unmarshal([]byte(s), &do); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	p, err := shm.New(ctx, shm.Options{Path: do.Path, Role: do.Role, MTU: do.MTU})
	if err != nil {
		return err
	}
	for !p.LinkUp() && do.Role == shm.RoleConnect && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("open")
	w := worker{p, ctx, do}
	switch do.Do {
	case "echo":
		err = w.echo()
	case "sleep":
		err = w.sleep()
	case "stream":
		err = w.stream()
	default:
		err = fmt.Errorf("task %q", do.Do)
	}
	return errors.Join(err, p.Close())
}

// worker is one end of a wire at work.
type worker struct {
	p    *shm.Port
	ctx  context.Context
	task task
}

// looksPerCheck is how often a worker looks for frames before it asks whether it
// is to end.
const looksPerCheck = 1 << 14

// wait waits for a frame; nil: it is to end.
func (w *worker) wait() []byte {
	for i := 1; ; i++ {
		if f := w.p.Receive(); f != nil {
			return f
		}
		if i%looksPerCheck == 0 {
			if w.ctx.Err() != nil {
				return nil
			}
			runtime.Gosched()
		}
	}
}

// space waits for room for a frame; nil: it is to end.
func (w *worker) space(n int) []byte {
	for i := 1; ; i++ {
		if b := w.p.Reserve(n); b != nil {
			return b
		}
		w.p.Flush()
		if i%looksPerCheck == 0 {
			if w.ctx.Err() != nil {
				return nil
			}
			runtime.Gosched()
		}
	}
}

// send sends a frame, in pieces if the task says so.
func (w *worker) send(frame []byte) bool {
	b := w.space(len(frame))
	if b == nil {
		return false
	}
	w.fill(b, frame)
	w.p.Flush()
	return true
}

func (w *worker) fill(b, frame []byte) {
	step := w.task.Piece
	if step == 0 || step >= len(frame) {
		copy(b, frame)
		w.p.Commit()
		return
	}
	at := 0
	for ; at+step < len(frame); at += step {
		copy(b[at:at+step], frame[at:])
		w.p.Publish(at + step)
	}
	copy(b[at:], frame[at:])
	w.p.Commit()
}

// receive copies a frame out as it comes in. It reports whether it came whole.
func (w *worker) receive(into []byte) (n int, ok bool) {
	f := w.wait()
	if f == nil {
		return 0, false
	}
	return len(f), w.copyOut(into, f)
}

func (w *worker) copyOut(into, f []byte) bool {
	for at := 0; ; {
		n, aborted := w.p.Arrived()
		if aborted {
			w.p.Release()
			return false
		}
		copy(into[at:], f[at:n])
		if at = n; at == len(f) {
			w.p.Release()
			return true
		}
	}
}

// echo sends back what comes.
func (w *worker) echo() error {
	buf := make([]byte, 1<<17)
	for i := 0; w.task.Frames == 0 || i < w.task.Frames; i++ {
		n, ok := w.receive(buf)
		if !ok {
			if w.ctx.Err() != nil {
				return nil
			}
			continue
		}
		if !w.send(buf[:n]) {
			return nil
		}
	}
	return nil
}

// sleep sends back each frame that comes, and blocks until one does.
func (w *worker) sleep() error {
	wake, woken := waittest.Bell()
	for w.ctx.Err() == nil {
		w.p.SetWake(wake)
		f := w.p.Receive() // what came before that wakes nobody
		if f == nil {
			select {
			case <-woken:
			case <-w.ctx.Done():
			}
			continue
		}
		w.p.SetWake(nil)
		copy(w.space(len(f)), f)
		w.p.Commit()
		w.p.Flush()
		w.p.Release()
	}
	return nil
}

// stream sends numbered frames until it is killed.
func (w *worker) stream() error {
	frame := make([]byte, w.task.Size)
	for i := uint64(0); w.ctx.Err() == nil; i++ {
		mark(frame, i)
		if !w.send(frame) {
			return nil
		}
	}
	return nil
}

// mark fills a frame with what belongs to number i.
func mark(frame []byte, i uint64) {
	for at := 0; at+8 <= len(frame); at += 8 {
		binary.LittleEndian.PutUint64(frame[at:], i^uint64(at)<<32)
	}
}

// marked reads the number back, and reports whether all of the frame has it.
func marked(frame []byte) (i uint64, ok bool) {
	i = binary.LittleEndian.Uint64(frame)
	for at := 8; at+8 <= len(frame); at += 8 {
		if binary.LittleEndian.Uint64(frame[at:])^uint64(at)<<32 != i {
			return i, false
		}
	}
	return i, true
}

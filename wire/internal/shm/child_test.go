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
		w.echo()
	case "sleep":
		w.sleep()
	case "stream":
		w.stream()
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

// until looks for a frame, or for room for one; nil: it is to end.
func (w *worker) until(look func() []byte) []byte {
	for i := 1; ; i++ {
		if b := look(); b != nil {
			return b
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
	return w.until(func() []byte {
		w.p.Flush()
		return w.p.Reserve(n)
	})
}

// send sends a frame, in pieces if the task says so.
func (w *worker) send(frame []byte) bool {
	b := w.space(len(frame))
	if b == nil {
		return false
	}
	at := 0
	for step := w.task.Piece; step > 0 && at+step < len(frame); at += step {
		copy(b[at:at+step], frame[at:])
		w.p.Publish(at + step)
	}
	copy(b[at:], frame[at:])
	w.p.Commit()
	w.p.Flush()
	return true
}

// receive copies a frame out as it comes in. It reports whether it came whole.
func (w *worker) receive(into []byte) (n int, ok bool) {
	f := w.until(w.p.Receive)
	defer w.p.Release()
	for at := 0; f != nil; {
		n, aborted := w.p.Arrived()
		if aborted {
			break
		}
		copy(into[at:], f[at:n])
		if at = n; at == len(f) {
			return n, true
		}
	}
	return 0, false
}

// echo sends back what comes.
func (w *worker) echo() {
	buf := make([]byte, 1<<17)
	for w.ctx.Err() == nil {
		if n, ok := w.receive(buf); ok {
			w.send(buf[:n])
		}
	}
}

// sleep sends back each frame that comes, and blocks until one does.
func (w *worker) sleep() {
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
}

// stream sends numbered frames until it is killed.
func (w *worker) stream() {
	frame := make([]byte, w.task.Size)
	for i := uint64(0); w.ctx.Err() == nil; i++ {
		mark(frame, i)
		w.send(frame)
	}
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

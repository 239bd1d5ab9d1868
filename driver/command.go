package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/trace"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func newCommand[B datasheet.CommandBody](op datasheet.Opcode, body B) *datasheet.Command {
	cmd := &datasheet.Command{Opcode: op}
	*datasheet.Body[B](cmd) = body
	return cmd
}

// execute carries out a command that the device answers at once. The context
// is looked at until the device has been given the command; from there on its
// outcome must be known, and the wait ends with the command timeout.
func (n *NIC) execute(ctx context.Context, cmd *datasheet.Command) (*datasheet.AdminEntry, error) {
	return n.executeUntil(ctx, n.done, newTimeLeft(n.options.CommandTimeout), cmd, nil)
}

// executeUntil is execute with another end: done, if not nil, gives the command
// up when it is closed; and of, see send.
func (n *NIC) executeUntil(ctx context.Context, done <-chan struct{}, left *timeLeft, cmd *datasheet.Command, of *leaving) (*datasheet.AdminEntry, error) {
	defer trace.StartRegion(ctx, "NIC command").End()
	s, err := n.send(ctx, done, classShort, cmd, of)
	if err != nil {
		return nil, err
	}
	left.looked = time.Now()
	w := waiter{n: n, ctx: context.Background(), done: done, left: left}
	return n.await(&w, s, cmd.Opcode)
}

// connect carries out a command that the network answers. When the context
// ends first the command is aborted. of is described at send.
func (n *NIC) connect(ctx context.Context, c class, cmd *datasheet.Command, of *leaving) (*datasheet.AdminEntry, error) {
	defer trace.StartRegion(ctx, "NIC connects").End()
	s, err := n.send(ctx, n.done, c, cmd, of)
	if outcomeUnknown(err) && ended(ctx, err) && !n.unanswering() && n.abort(cmd.ID) == nil {
		return nil, ctx.Err() // it ended while the device was told
	}
	if err != nil {
		return nil, err
	}
	reply, err := n.await(&waiter{n: n, ctx: ctx, done: n.done}, s, cmd.Opcode)
	if !errors.Is(err, errInterrupted) {
		return reply, err
	}
	if n.unanswering() {
		return nil, &unknownOutcome{ctx.Err()}
	}
	if err := n.abort(cmd.ID); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrDeviceGone) {
			err = &unknownOutcome{ctx.Err()}
		}
		return nil, err
	}
	w := waiter{n: n, ctx: context.Background(), done: n.done, left: newTimeLeft(n.options.CommandTimeout)}
	reply, err = n.await(&w, s, cmd.Opcode)
	if errors.Is(err, ErrAborted) || errors.Is(err, descriptors.ErrTimeout) {
		return nil, ctx.Err()
	}
	return reply, err
}

// abort makes the device end a command that waits for the network. The device may have
// answered meanwhile, and refuses then: that is as good.
func (n *NIC) abort(id uint16) error {
	timeout, cancel := context.WithTimeout(context.Background(), n.options.CommandTimeout)
	defer cancel()
	_, err := n.execute(timeout, newCommand(datasheet.OpAbort, datasheet.AbortBody{ID: id}))
	if isRefused(err) {
		return nil
	}
	return err
}

// send waits for a free slot and submits. of, unless nil, is the object that the command is about: it fails with errLeft once the
// closing of that has begun.
func (n *NIC) send(ctx context.Context, done <-chan struct{}, c class, cmd *datasheet.Command, of *leaving) (*pendingCommand, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := waiter{n: n, ctx: ctx, done: done}
	for {
		if n.admin.acquire(c) {
			p, err := n.admin.submit(ctx, c, cmd, func() bool { return of != nil && of.begun(n) })
			if err != nil && err != errLeft {
				n.admin.drain() // the device may have written, and not interrupted
				err = &unknownOutcome{err}
			}
			return p, err
		}
		n.admin.drain()
		if err := w.pause(nil, nil, nil); err != nil {
			return nil, err
		}
	}
}

// errInterrupted says that the context of a waiter has ended, but not what has
// become of the command: the caller may go on waiting.
var errInterrupted = errors.New("interrupted")

// await waits for the reply to a command.
func (n *NIC) await(w *waiter, p *pendingCommand, op datasheet.Opcode) (*datasheet.AdminEntry, error) {
	n.step() // who only gives commands makes progress too
	for {
		n.admin.drain()
		select {
		case <-p.done:
			if p.reply.Result != datasheet.ResultSuccess {
				return nil, &CommandError{Opcode: op, Result: p.reply.Result, Field: p.reply.Field}
			}
			return &p.reply, nil
		default:
		}
		err := w.pause(nil, nil, p.done)
		if err == nil {
			continue
		}
		if w.ctx.Err() != nil && err == w.ctx.Err() {
			return nil, errInterrupted
		}
		if errors.Is(err, errDeadline) {
			err = fmt.Errorf("%w: %v", ErrCommandTimeout, op)
		}
		return nil, &unknownOutcome{err}
	}
}

// timeoutMS returns the rest of a context's time in the unit of the commands, rounded
// up; the largest value if it has no deadline.
func timeoutMS(ctx context.Context) uint32 {
	d, ok := ctx.Deadline()
	if !ok {
		return math.MaxUint32
	}
	ms := (time.Until(d) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 1), math.MaxUint32))
}

// close closes the object with cmd, unless that was done before, and then calls free, which gives back what it had and is told
// whether the device has not answered. It fails with ErrInUse, and hint, while inUse, which is called with NIC.mu held.
func (l *leaving) close(ctx context.Context, n *NIC, hint string, inUse func() bool, cmd *datasheet.Command, free func(error) error) error {
	first, err := l.begin(n, func() error {
		if inUse() {
			return hinted(ErrInUse, hint)
		}
		return nil
	})
	if err != nil || !first {
		return err
	}
	if _, err = n.execute(ctx, cmd); err != nil && !outcomeUnknown(err) {
		l.undo(n)
		return err
	}
	defer l.end(n)
	return free(err)
}

// release frees b after the command that would have used it failed with err,
// unless the device may have understood the command and use it. Then it is kept
// until Close, which resets the device first.
func (n *NIC) release(b *dma.Buffer, err error) error {
	if outcomeUnknown(err) {
		return err
	}
	return errors.Join(err, n.space.Free(b))
}

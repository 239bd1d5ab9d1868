package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// stampSize is the size of a message: the time at which it was posted.
const stampSize = 8

// settle is the time in which a fresh process ends its own work before it is idle.
const settle = 100 * time.Millisecond

// monotonic is the time in ns of a clock that all processes share
// (clock_gettime(2), CLOCK_MONOTONIC).
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// run is a worker's whole life: it prints a ready line, if it only waits, and an
// IdleResult, if it waits.
func (s *idleSpec) run(ctx context.Context, w io.Writer) error {
	if err := s.Task.Validate(); err != nil {
		return err
	}
	if err := pinProcess(s.Core); err != nil {
		return err
	}
	alone := s.Sender == ""
	ready := func() {
		if alone {
			fmt.Fprintln(w, readyLine)
		}
	}
	var wait, send func(context.Context) error
	var result IdleResult
	switch {
	case s.Task.Place == IdleKernel || s.Task.Place == IdleRuntime:
		e, err := newEventEnds(s.Task.Place)
		if err != nil {
			return err
		}
		defer e.close()
		wait = func(ctx context.Context) error { return s.Task.wait(ctx, e, &result) }
		send = func(ctx context.Context) error { return s.Task.send(ctx, e) }
	default:
		wait = func(ctx context.Context) error {
			return s.withEnd(ctx, s.Waiter, ready, func(e *messageEnd) error { return s.Task.wait(ctx, e, &result) })
		}
		send = func(ctx context.Context) error {
			return s.withEnd(ctx, s.Sender, nil, func(e *messageEnd) error { return s.Task.send(ctx, e) })
		}
	}
	switch {
	case s.Waiter == "" && s.Sender != "":
		return send(ctx)
	case alone && s.Waiter != "":
		if err := wait(ctx); err != nil {
			return err
		}
	default:
		if err := together(ctx, wait, send); err != nil {
			return err
		}
	}
	return json.NewEncoder(w).Encode(result)
}

// together runs both; the one that fails first ends the other.
func together(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 2)
	for _, f := range []func(context.Context) error{a, b} {
		go func() {
			err := f(ctx)
			if err != nil {
				cancel(err)
			}
			ended <- err
		}()
	}
	<-ended
	<-ended
	return context.Cause(ctx)
}

// rareEnd is one end of a way on which something comes rarely.
type rareEnd interface {
	// start is called by the waiter, and lets started return at the sender.
	start(ctx context.Context) error
	started(ctx context.Context) error
	// rest is the sender's pause.
	rest(ctx context.Context, d time.Duration) error
	// notify sends the time, and returns when that is on its way.
	notify(ctx context.Context) error
	// await sleeps until something comes, and returns the time that was sent.
	await(ctx context.Context) (int64, error)
}

// send waits for as long as the task says, and then sends now and then.
func (t *IdleTask) send(ctx context.Context, e rareEnd) error {
	if err := e.started(ctx); err != nil {
		return err
	}
	pause := t.Idle
	for range t.Count + 1 {
		if err := e.rest(ctx, pause); err != nil {
			return err
		}
		if err := e.notify(ctx); err != nil {
			return err
		}
		pause = t.Pause
	}
	return nil
}

// wait waits for all that send sends.
func (t *IdleTask) wait(ctx context.Context, e rareEnd, r *IdleResult) error {
	r.Latencies = newHistogram()
	runtime.GC()
	settled := time.After(settle)
	if err := receive(ctx, settled); err != nil {
		return err
	}
	if err := e.start(ctx); err != nil {
		return err
	}
	began, cpu := time.Now(), processTime()
	for i := range t.Count + 1 {
		sent, err := e.await(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			r.Idle, r.IdleCPU = time.Since(began), processTime()-cpu
			began, cpu = time.Now(), processTime()
			continue
		}
		// Within the range, so that there can be no error.
		_ = r.Latencies.RecordValue(min(max(monotonic()-sent, 1), int64(longest)))
	}
	r.Waking, r.WakingCPU = time.Since(began), processTime()-cpu
	return nil
}

// messageEnd is a connection as a rareEnd.
type messageEnd struct{ *via.Conn }

func (e *messageEnd) start(ctx context.Context) error { return e.notify(ctx) }

// answering is for how long the sender runs its NIC after the start, so that an
// inline one acknowledges it: else the waiter's would ask again and again.
const answering = 20 * time.Millisecond

func (e *messageEnd) started(ctx context.Context) error {
	_, err := e.await(ctx)
	for end := time.Now().Add(answering); err == nil && time.Now().Before(end); {
		e.Poll()
		err = sleep(ctx, lookPause)
	}
	return err
}

// answerEvery is the time after which an inline NIC of the sender runs again in a pause. The waiter's asks
// after a second whether its peer is there, and takes it for dead after three more.
const answerEvery = 500 * time.Millisecond

func (e *messageEnd) rest(ctx context.Context, d time.Duration) error {
	for ; d > answerEvery; d -= answerEvery {
		if err := sleep(ctx, answerEvery); err != nil {
			return err
		}
		e.Poll()
	}
	return sleep(ctx, d)
}

func (e *messageEnd) notify(ctx context.Context) error {
	b, err := e.Acquire(ctx)
	if err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(b, uint64(monotonic()))
	if err := e.Post(stampSize); err != nil {
		return err
	}
	// An inline engine runs while a call waits.
	return e.Flush(ctx)
}

func (e *messageEnd) await(ctx context.Context) (int64, error) {
	m, err := e.Receive(ctx)
	if err != nil {
		return 0, err
	}
	if len(m) != stampSize {
		return 0, fmt.Errorf("a message of %d bytes arrived, not of %d", len(m), stampSize)
	}
	sent := int64(binary.NativeEndian.Uint64(m))
	return sent, e.Release()
}

// withEnd opens the NIC at an address, connects it and runs f. The side with
// ready, which is called when the other one may come, accepts.
func (s *idleSpec) withEnd(ctx context.Context, address string, ready func(), f func(*messageEnd) error) (err error) {
	nic, err := Open(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nic.Close()) }()
	set, cancel := context.WithTimeout(ctx, connectLimit+s.Task.limit())
	defer cancel()
	o := via.ConnOptions{MaxMessage: stampSize, SendDepth: 2, RecvDepth: 4}
	var c *via.Conn
	if ready == nil {
		c, err = via.Dial(set, nic, via.Address{MAC: datasheet.Broadcast, Discriminator: discriminator}.String(), o)
	} else {
		l, refused := via.Listen(nic, discriminator, via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }})
		if refused != nil {
			return refused
		}
		ready()
		c, err = l.Accept(set)
		err = errors.Join(err, l.Close())
	}
	if c != nil {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	if err != nil {
		return err
	}
	if err := f(&messageEnd{c}); err != nil || ready == nil {
		return err
	}
	// The sender disconnects once it knows that the last message has arrived.
	if _, err := c.Receive(set); !via.Ended(err) {
		return err
	}
	return nil
}

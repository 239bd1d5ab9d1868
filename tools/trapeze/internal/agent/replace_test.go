package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/via"
)

var quiet = slog.New(slog.DiscardHandler)

// replaceTimeout ends what does not end by itself.
const replaceTimeout = 5 * time.Minute

// running is an agent that serves.
type running struct {
	agent *agent.Agent
	stop  context.CancelFunc
	done  chan error
}

func runAgent(t testing.TB, a *agent.Agent, serve func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{a, cancel, make(chan error, 1)}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.done <- errors.Join(serve(ctx), a.Close())
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	return r
}

// end stops the agent, if it has not been replaced.
func (r *running) end(t testing.TB) {
	t.Helper()
	r.stop()
	should.OK(t, <-r.done)
}

func parse(t testing.TB, text string) *agent.Config {
	t.Helper()
	return must.Get(agent.Parse("agent.toml", []byte(text)))(t)
}

// begin starts the first agent.
func begin(t testing.TB, text string) *running {
	t.Helper()
	c := parse(t, text)
	a := must.Get(agent.New(t.Context(), c, quiet))(t)
	l := must.Get(agent.Listen(t.Context(), c))(t)
	return runAgent(t, a, func(ctx context.Context) error { return a.Serve(ctx, l) })
}

// replaced starts an agent that takes over, and waits for the old one's end. Where the machine is busy a step may take
// longer than it may: the old agent goes on then, and another takes over.
func (r *running) replaced(t testing.TB, text string) *running {
	t.Helper()
	var a *agent.Agent
	var l *unixsocket.Listener
	waittest.Until(t, "another agent takes over in time", func() bool {
		var err error
		a, l, err = agent.TakeOver(t.Context(), parse(t, text), quiet)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	next := runAgent(t, a, func(ctx context.Context) error { return a.Serve(ctx, l) })
	select {
	case err := <-r.done:
		_, ok := r.agent.Successor()
		should.Hold(t, err == nil && ok, "the old agent: %v, replaced: %v", err, ok)
	case <-time.After(replaceTimeout):
		t.Fatal("the old agent stays")
	}
	r.stop()
	return next
}

// checkAll fails a test that leaves goroutines, descriptors or memory behind.
func checkAll(t testing.TB) {
	t.Helper()
	collect()
	leaktest.Check(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		collect()
		should.OK(t, goleak.Find(before))
	})
}

// collect frees the memory of ports that are closed: it goes with the port (wire.SHM), behind what has finalizers.
func collect() {
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

// shared opens two clients of the agent of a socket.
func shared(t testing.TB, socket string) (from, to *via.NIC) {
	t.Helper()
	at := "agent:local?engine=thread&socket=" + socket
	nics := [2]*via.NIC{}
	for i := range nics {
		n := must.Get(via.Open(t.Context(), at, via.Options{NoTelemetry: true}))(t)
		nics[i] = n
		t.Cleanup(func() {
			_ = n.Close()
			n = nil // a test keeps its cleanups
		})
	}
	return nics[0], nics[1]
}

// stream is a connection on which numbered messages pass as long as it is wanted.
type stream struct {
	every   time.Duration // pause between two sends
	arrived atomic.Uint64
	gap     atomic.Int64 // longest pause between two messages, in ns
	stop    atomic.Bool
	both    sync.WaitGroup
	errs    [2]error
	limit   *time.Timer // ends it if no message arrives for replaceTimeout, however long it runs
}

// streamSize is the size of the messages: a number, and what follows from it.
const streamSize = 1000

func fill(b []byte, i uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b[:0], i)
	for len(b) < streamSize {
		b = append(b, byte(i)+byte(len(b)))
	}
	return b
}

// begin sends messages from one NIC to another until end, which checks that each has arrived once, in order.
func (s *stream) begin(t testing.TB, from, to *via.NIC) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.limit = time.AfterFunc(replaceTimeout, cancel)
	l := must.Get(via.Listen(to, "numbered", via.ListenOptions{}))(t)
	received := make(chan struct{})
	s.both.Go(func() {
		c, err := via.Dial(ctx, from, l.Address().String(), via.ConnOptions{})
		if err != nil {
			s.errs[0] = err
			return
		}
		var b []byte
		for i := uint64(0); !s.stop.Load() && err == nil; i++ {
			b = fill(b, i)
			err = c.Send(ctx, b)
			time.Sleep(s.every)
		}
		if err == nil {
			err = c.CloseSend(ctx)
		}
		<-received
		s.errs[0] = errors.Join(err, c.Close())
	})
	s.both.Go(func() {
		defer close(received)
		s.errs[1] = s.receive(ctx, l)
	})
	t.Cleanup(func() {
		s.limit.Stop()
		cancel()
	})
}

// receive takes the messages of one connection up to its end.
func (s *stream) receive(ctx context.Context, l *via.Listener) error {
	defer l.Close()
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var want []byte
	last := time.Now()
	for i := uint64(0); ; i++ {
		got, err := c.Receive(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if want = fill(want, i); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("message %d: %d bytes, %w", i, len(got), err)
		}
		now := time.Now()
		if i > 0 {
			s.gap.Store(max(s.gap.Load(), int64(now.Sub(last))))
		}
		last = now
		s.limit.Reset(replaceTimeout)
		s.arrived.Add(1)
		if err := c.Release(); err != nil {
			return err
		}
	}
}

// progress waits until n more messages have arrived.
func (s *stream) progress(t testing.TB, n uint64) {
	t.Helper()
	want := s.arrived.Load() + n
	for end := time.Now().Add(replaceTimeout); s.arrived.Load() < want; time.Sleep(100 * time.Microsecond) {
		must.Hold(t, !time.Now().After(end), "%d messages have arrived, and no more", s.arrived.Load())
	}
}

func (s *stream) end(t testing.TB) {
	t.Helper()
	s.stop.Store(true)
	s.both.Wait()
	should.OK(t, errors.Join(s.errs[:]...))
}

// indirect has frames of clients pass the agent.
func indirect(t testing.TB) (text, socket string) {
	socket = filepath.Join(t.TempDir(), "s")
	return "socket = \"" + socket + "\"\n" + local + "direct = false\n", socket
}

// TestReplaceOften: an agent is replaced 20 times in a row while messages pass it. None is lost, none comes twice,
// and clients keep what they have.
func TestReplaceOften(t *testing.T) {
	checkAll(t)
	text, socket := indirect(t)
	a := begin(t, text)
	from, to := shared(t, socket)
	var s stream
	s.begin(t, from, to)
	before := list(t, socket)
	for end := time.Now().Add(replaceTimeout); len(before) < 2 && time.Now().Before(end); before = list(t, socket) {
		time.Sleep(time.Millisecond) // a program has its NIC a little before it is listed
	}
	for range 20 {
		s.progress(t, 100)
		a = a.replaced(t, text)
	}
	s.progress(t, 100)
	s.end(t)
	after := list(t, socket)
	must.Hold(t, len(before) == 2 && len(after) == 2, "%d clients, then %d", len(before), len(after))
	frames := uint64(0)
	for i, c := range after {
		b := before[i]
		should.Hold(t, c.PID == b.PID && c.Grant == b.Grant && c.VIs == b.VIs && c.Program == b.Program, "client %+v was %+v", c, b)
		frames += c.Frames
	}
	should.Hold(t, frames >= s.arrived.Load(), "%d frames are counted, and %d messages have come", frames, s.arrived.Load())
	t.Logf("%d messages, longest gap %v", s.arrived.Load(), time.Duration(s.gap.Load()))
	exchange(t, from, to, "after")
	_, _ = from.Close(), to.Close()
	a.end(t)
}

// transfer sends 100 MB and compares sums. In the middle it calls meanwhile.
func transfer(t testing.TB, from, to *via.NIC, meanwhile func()) {
	t.Helper()
	const piece, pieces = 1 << 20, 100
	ctx, cancel := context.WithTimeout(t.Context(), replaceTimeout)
	defer cancel()
	l := must.Get(via.Listen(to, "large", via.ListenOptions{}))(t)
	defer l.Close()
	sent := sha256.New()
	done := make(chan error, 1)
	received := make(chan struct{})
	go func() {
		c, err := via.Dial(ctx, from, l.Address().String(), via.ConnOptions{})
		if err != nil {
			done <- err
			return
		}
		w, err := c.Stream()
		if err != nil {
			done <- err
			return
		}
		b := make([]byte, piece)
		for i := range pieces {
			for j := range b {
				b[j] = byte(j*7 + i + j>>9)
			}
			sent.Write(b)
			if _, err = w.Write(b); err != nil {
				break
			}
		}
		done <- err
		<-received
		_ = c.Close()
	}()
	c := must.Get(l.Accept(ctx))(t)
	r := must.Get(c.Stream())(t)
	got := sha256.New()
	b := make([]byte, piece)
	for n := 0; n < piece*pieces; {
		if n >= piece*pieces/2 && meanwhile != nil {
			go meanwhile()
			meanwhile = nil
		}
		k, err := r.Read(b)
		must.OK(t, err, "after %d bytes", n)
		got.Write(b[:k])
		n += k
	}
	should.OK(t, <-done)
	close(received)
	_ = c.Close()
	should.Same(t, got.Sum(nil), sent.Sum(nil), "what arrived has another sum than what was sent")
}

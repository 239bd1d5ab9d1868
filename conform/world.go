package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// Timeout bounds the waits of the helpers for what must happen; the test's own end may come first.
const Timeout = time.Minute

// World is where a check runs: a test, and two NICs that can reach each other.
type World struct {
	T
	A, B *via.NIC

	open Open        // opens another pair
	wire *faultyWire // at B's end, in checks of faults

	before [2]frameCounts // when the check began
	losing atomic.Bool    // frames have been lost on the wire: that stays true
	number uint64         // of the last message
}

// NewWorld makes the World of a test or a benchmark.
func NewWorld(t T, a, b *via.NIC) *World { return &World{T: t, A: a, B: b} }

// another is a World of the same check with two more NICs.
func (w *World) another() *World {
	a, b := w.open(w.T)
	return &World{T: w.T, A: a, B: b, open: w.open}
}

// part runs f as a part of the check with a name of its own.
func (w *World) part(name string, f func(w *World)) {
	as := func(t T) { f(&World{T: t, A: w.A, B: w.B, open: w.open, before: w.before}) }
	switch t := w.T.(type) {
	case *testing.T:
		t.Run(name, func(t *testing.T) { as(t) })
	case *run:
		t.part(name, as)
	default:
		w.Fatalf("a %T runs no checks with parts", t)
	}
}

// Context ends after Timeout, or with the test.
func Context(t T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// closeAtEnd closes what the check has not closed by then.
func closeAtEnd(t T, ends ...io.Closer) {
	t.Cleanup(func() {
		for _, c := range ends {
			if err := c.Close(); err != nil && !isClosed(err) {
				t.Error(err)
			}
		}
	})
}

func isClosed(err error) bool { return errors.Is(err, via.ErrClosed) }

// closeAfterwards ends objects of a NIC when the check, and with it its context, has ended.
func closeAfterwards(t T, ends ...func(context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		for _, end := range ends {
			OK(t, end(ctx))
		}
	})
}

// End is one end of a connection with memory and descriptors to use it.
type End struct {
	NIC *via.NIC
	VI  *via.VI
	// Memory to send from and to receive into.
	Memory *via.Memory
	// Send and Recv are descriptors without segments.
	Send, Recv []*via.Descriptor
}

// Setup describes the two ends that Connect makes.
type Setup struct {
	Attributes via.VIAttributes
	// Memory is the size in bytes of each end's memory; zero is 64 KiB.
	Memory int
	// Segments is the number of segments that each descriptor can hold; zero is 1.
	Segments int
}

// Connect makes a VI on each NIC and connects them: x on A, y on B.
func (w *World) Connect(s Setup) (x, y *End) {
	w.Helper()
	x, y = NewEnd(w, w.A, s), NewEnd(w, w.B, s)
	OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
	return x, y
}

// NewEnd makes an unconnected VI with memory and descriptors.
func NewEnd(t T, nic *via.NIC, s Setup) *End {
	t.Helper()
	if s.Memory == 0 {
		s.Memory = 64 << 10
	}
	if s.Segments == 0 {
		s.Segments = 1
	}
	ctx := Context(t)
	vi := Must(nic.CreateVI(ctx, s.Attributes, nil, nil))(t)
	return Must(Equip(ctx, nic, vi, s.Memory, s.Segments))(t)
}

// Equip gives a VI of nic memory bytes of memory, and as many descriptors as its queues
// hold, each with room for the given number of segments.
func Equip(ctx context.Context, nic *via.NIC, vi *via.VI, memory, segments int) (*End, error) {
	a := vi.Attributes()
	m, err := nic.Alloc(ctx, memory, via.MemoryAttributes{Ptag: a.Ptag})
	if err != nil {
		return nil, err
	}
	send, err := vi.NewDescriptors(ctx, a.SendDepth, segments)
	if err != nil {
		return nil, err
	}
	recv, err := vi.NewDescriptors(ctx, a.RecvDepth, segments)
	if err != nil {
		return nil, err
	}
	return &End{NIC: nic, VI: vi, Memory: m, Send: send, Recv: recv}, nil
}

// ConnectVIs connects client with server through the discriminator made of
// name.
func ConnectVIs(ctx context.Context, client, server *via.VI, name string) error {
	local := name[max(0, len(name)-via.MaxDiscriminator):]
	accepted := make(chan error, 1)
	go func() {
		for {
			c, err := server.NIC().ConnectWait(ctx, local)
			if err == nil {
				_, err = c.Accept(ctx, server)
			}
			// It may have been a late copy of a request that was answered by ErrNoMatch.
			if !errors.Is(err, via.ErrWithdrawn) {
				accepted <- err
				return
			}
		}
	}()
	_, err := Request(ctx, client, via.Address{MAC: server.NIC().Query().Address, Discriminator: local})
	return errors.Join(err, <-accepted)
}

// Request is client.ConnectRequest, repeated until the server waits.
func Request(ctx context.Context, client *via.VI, to via.Address) (via.Remote, error) {
	for {
		r, err := client.ConnectRequest(ctx, to, "client")
		if !errors.Is(err, via.ErrNoMatch) {
			return r, err
		}
		runtime.Gosched()
	}
}

// Until calls f, and polls both NICs, until f reports true.
func (w *World) Until(what string, f func() bool) {
	w.Helper()
	for start, i := time.Now(), 0; !f(); i++ {
		w.A.Poll()
		w.B.Poll()
		if i%64 == 63 {
			runtime.Gosched()
			time.Sleep(min(time.Since(start)-time.Millisecond, 100*time.Microsecond)) // others may need this processor
			if time.Since(start) > Timeout {
				w.Fatalf("waited %v for: %s", Timeout, what)
			}
		}
	}
}

// Take calls done, SendDone or RecvDone of some VI, until it says something
// else than ErrNotDone.
func (w *World) Take(done func() (*via.Descriptor, error)) (d *via.Descriptor, err error) {
	w.Helper()
	w.Until("a completion", func() bool {
		d, err = done()
		return err != via.ErrNotDone
	})
	return d, err
}

// MustTake is Take for what must complete without error.
func (w *World) MustTake(done func() (*via.Descriptor, error)) *via.Descriptor {
	w.Helper()
	return Must(w.Take(done))(w)
}

// Prepare makes d describe length bytes at offset of e's memory.
func (e *End) Prepare(t T, d *via.Descriptor, offset, length int) *via.Descriptor {
	t.Helper()
	return describe(t, d, e.Memory, offset, length)
}

// describe makes d describe length bytes at offset of m.
func describe(t T, d *via.Descriptor, m *via.Memory, offset, length int) *via.Descriptor {
	t.Helper()
	d.Prepare()
	OK(t, m.AddTo(d, offset, length))
	return d
}

// Must returns v, or fails the test.
func Must[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// OK fails the test if there is an error.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails the test unless err is a *via.Error, or one of the bare codes,
// that matches each of want.
func wantError(t T, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: error %v, want %v", what, err, w)
			return
		}
	}
	var e *via.Error
	var c via.Code
	if !errors.As(err, &e) && !errors.As(err, &c) {
		t.Errorf("%s: error %v is a %T", what, err, err)
	}
}

// wantStatus fails the test unless err says that a descriptor was returned that
// completed with all the bits of want.
func wantStatus(t T, what string, d *via.Descriptor, err error, want via.Status) {
	t.Helper()
	var s *via.StatusError
	if !errors.Is(err, via.ErrDescriptor) || !errors.As(err, &s) {
		t.Errorf("%s: error %v, want a *via.StatusError", what, err)
		return
	}
	if d == nil || s.Status&want != want || !s.Status.Done() || d.Status() != s.Status {
		t.Errorf("%s: status %v with descriptor %v, want %v", what, s.Status, d != nil, want)
	}
}

// wantState fails the test unless v is in the state want.
func wantState(t T, v *via.VI, want via.State) {
	t.Helper()
	wantEqual(t, Must(v.Query(Context(t)))(t).State, want, "the VI's state")
}

// wantEqual fails the test unless a value, which the format describes, is the wanted one.
func wantEqual[V comparable](t T, got, want V, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// checkFiles fails the test if files are left open after what is cleaned up later
// than this call.
func checkFiles(t T) {
	t.Helper()
	// The runtime opens what it keeps open: its poller.
	r, w, err := os.Pipe()
	OK(t, errors.Join(err, r.Close(), w.Close()))
	before := openFiles(t)
	t.Cleanup(func() {
		after := openFiles(t)
		// A server that a NIC has left closes its end by itself.
		for end := time.Now().Add(Timeout); after > before && time.Now().Before(end); after = openFiles(t) {
			time.Sleep(time.Millisecond)
		}
		if after > before {
			t.Errorf("%d files are open, %d before the test", after, before)
		}
	})
}

// openFiles counts the process's file descriptors.
func openFiles(t T) int {
	t.Helper()
	return len(Must(os.ReadDir("/proc/self/fd"))(t))
}

// release takes back all that is on the queues of ends and destroys their VIs.
func release(w *World, ends ...*End) {
	w.Helper()
	for _, e := range ends {
		OK(w, e.VI.Disconnect(Context(w)))
		for _, done := range []func() (*via.Descriptor, error){e.VI.SendDone, e.VI.RecvDone} {
			for {
				if _, err := w.Take(done); err == via.ErrQueueEmpty {
					break
				}
			}
		}
		OK(w, e.VI.Close(Context(w)))
		OK(w, e.Memory.Close(Context(w)))
	}
}

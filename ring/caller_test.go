package ring_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// alloc allocates memory of a NIC.
func alloc(t testing.TB, nic *via.NIC, size int) *via.Memory {
	t.Helper()
	return must.Get(nic.Alloc(conform.Context(t), size, via.MemoryAttributes{}))(t)
}

// serve runs Serve until the test ends, or the function that it returns is called, which
// returns what Serve did.
func serve(t testing.TB, r *ring.Ring, handler func(*ring.Request)) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ring.Serve(ctx, r, handler) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-served
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// pages answers a request, whose bytes are a page number, with that and the page.
func pages(t testing.TB, m *via.Memory, size int) func(*ring.Request) {
	return func(q *ring.Request) {
		n := int(binary.LittleEndian.Uint32(q.Bytes))
		if err := q.Reply(q.Bytes, ring.Frame{Memory: m, Offset: n * size, Length: size}, nil); err != nil && !errors.Is(err, ring.ErrPeerGone) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

func newCaller(t testing.TB, r *ring.Ring) *ring.Caller {
	t.Helper()
	c := must.Get(ring.NewCaller(r))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// fill fills pages with their numbers.
func fill(b []byte, size int) {
	for i := range b {
		b[i] = byte(i/size) ^ byte(i)
	}
}

func TestCalls(t *testing.T) {
	const size, count, callers, rounds = 4096, 16, 8, 50
	for _, options := range []string{"", "&engine=thread", "&loss=0.2&seed=1"} {
		t.Run(options, func(t *testing.T) {
			a, b := conform.OnMemory(t, options, via.Options{})
			x, y := connect(t, a, b, ring.Options{Reliability: via.ReliableDelivery, Entries: 8})
			lent := alloc(t, b, size*count)
			fill(lent.Bytes(), size)
			serve(t, y, pages(t, lent, size))
			c := newCaller(t, x)
			into := alloc(t, a, size*callers)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					f := ring.Frame{Memory: into, Offset: i * size, Length: size}
					for round := range rounds {
						n := (round + i) % count
						q := binary.LittleEndian.AppendUint32(nil, uint32(n))
						reply, err := c.Call(conform.Context(t), q, ring.Frame{}, f)
						if err != nil {
							t.Error(err)
							return
						}
						if !bytes.Equal(reply.Bytes(), q) || reply.Length != size || !bytes.Equal(f.Bytes(), lent.Bytes()[n*size:][:size]) {
							t.Errorf("call %d of %d: another page", round, i)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestCallDeadline(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	x, y := connect(t, a, b, ring.Options{Reliability: via.ReliableDelivery})
	late := make(chan *ring.Request, 1)
	serve(t, y, func(q *ring.Request) { late <- q })
	c := newCaller(t, x)
	into, page := alloc(t, a, 4096), alloc(t, b, 4096)
	page.Bytes()[0] = 1
	ctx, cancel := context.WithCancel(conform.Context(t))
	asked := make(chan *ring.Request)
	go func() { // the request is on its way when the time is over
		q := <-late
		cancel()
		asked <- q
	}()
	_, err := c.Call(ctx, []byte("late"), ring.Frame{}, ring.Frame{Memory: into, Length: 4096})
	if !errors.Is(err, ring.ErrDeadline) || !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	should.OK(t, (<-asked).Reply(nil, ring.Frame{Memory: page, Length: 4096}, nil))
	// The next call finds the late reply before its own.
	go func() { _ = (<-late).Reply([]byte("in time"), ring.Frame{}, nil) }()
	reply, err := c.Call(conform.Context(t), nil, ring.Frame{}, ring.Frame{})
	if err != nil || string(reply.Bytes()) != "in time" {
		t.Errorf("%q, %v", reply.Bytes(), err)
	}
	if c.Stats().Strays != 1 || into.Bytes()[0] != 0 {
		t.Errorf("%d strays; the late page begins with %d", c.Stats().Strays, into.Bytes()[0])
	}
}

func TestStats(t *testing.T) { statstest.Check(t, ring.CallerStats{}) }

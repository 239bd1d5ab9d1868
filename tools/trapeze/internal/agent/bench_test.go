package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/via"
)

// Both sides of a ratio are measured in one run and in turns, blocks of some hundred messages each. It holds on a busy machine too. The
// engines run inline, in the goroutine that sends and receives.

// block is the number of messages of a turn. NICs that are not measured rest meanwhile, for less than the three
// seconds after which a peer is taken for dead, however busy the machine is.
const block = 64

// lane is a connection, both ends of which are the benchmark's.
type lane struct{ from, to *via.Conn }

// dial connects two NICs whose engines run inline.
func dial(b testing.TB, from, to *via.NIC, name string) *lane {
	b.Helper()
	c := lay(b, from, to, name)
	b.Cleanup(func() {
		defer polled(from, to)()
		_, _ = c.from.Close(), c.to.Close()
	})
	return c
}

// lay is dial for connections that the caller closes.
func lay(b testing.TB, from, to *via.NIC, name string) *lane {
	b.Helper()
	l, err := via.Listen(to, name, via.ListenOptions{})
	must.OK(b, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	defer cancel()
	c := &lane{}
	defer polled(from, to)()
	dialled := make(chan error, 1)
	go func() {
		var err error
		c.from, err = via.Dial(ctx, from, l.Address().String(), small)
		dialled <- err
	}()
	c.to, err = l.Accept(ctx)
	must.OK(b, errors.Join(err, <-dialled))
	return c
}

// polled has engines run until stop is called, while a goroutine waits for what the other end has to do.
func polled(nics ...*via.NIC) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, n := range nics {
				n.Poll()
			}
			runtime.Gosched()
		}
	}()
	return func() { close(done); <-ended }
}

// pass sends a message of 64 bytes and receives it.
func (c *lane) pass(b testing.TB) {
	room, err := c.from.TryAcquire()
	for ; room == nil && err == nil; room, err = c.from.TryAcquire() {
		c.to.Poll() // which has to acknowledge, in this goroutine
	}
	must.OK(b, err)
	must.OK(b, c.from.Post(64))
	m, err := c.to.TryReceive()
	for tries := 0; m == nil && err == nil; tries++ {
		c.from.Poll()
		if m, err = c.to.TryReceive(); tries > 1000 {
			runtime.Gosched() // to the agent's goroutine
		}
	}
	if err == nil {
		err = c.to.Release()
	}
	must.OK(b, err)
}

// pong passes a message there, and one back.
func (c *lane) pong(b testing.TB) {
	c.pass(b)
	c.from, c.to = c.to, c.from
}

// turns measures messages of several kinds in turns, and returns the median of each in nanoseconds a message.
func turns(b *testing.B, kinds ...func()) (medians []float64) {
	times := make([][]float64, len(kinds))
	for b.Loop() {
		for i, f := range kinds {
			begin := time.Now()
			for range block {
				f()
			}
			times[i] = append(times[i], float64(time.Since(begin).Nanoseconds())/block)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, t := range times {
		slices.Sort(t)
		medians = append(medians, t[len(t)/2])
	}
	return medians
}

func nic(b testing.TB, address string) *via.NIC {
	b.Helper()
	n := must.Get(via.Open(b.Context(), address, via.Options{NoTelemetry: true}))(b)
	b.Cleanup(func() { _ = n.Close() })
	return n
}

// own are two NICs with a shm wire of their own.
func own(b *testing.B) (x, y *via.NIC) {
	at := "emu:?wire=shm:" + filepath.Join(b.TempDir(), "wire") + "&vis=128"
	return nic(b, at), nic(b, at)
}

// BenchmarkMessage is one way of 64 bytes between two clients of the agent that share memory. x-host is the ratio to two NICs of
// the wire that programs of a host share (emu: alone), x-shm to two with a shm wire of their own.
func BenchmarkMessage(b *testing.B) {
	x, y := own(b)
	at, host := "agent:local?socket="+serve(b, local), fmt.Sprint("emu:?wire=host:bench", os.Getpid())
	ours, shared := dial(b, x, y, "own"), dial(b, nic(b, at), nic(b, at), "agent")
	joined := dial(b, nic(b, host), nic(b, host), "host")
	for range 8 * block { // until the frames go the direct way
		shared.pong(b)
	}
	m := turns(b, func() { ours.pong(b) }, func() { joined.pong(b) }, func() { shared.pong(b) })
	b.ReportMetric(m[2], "agent-ns/one-way")
	b.ReportMetric(m[2]/m[0], "x-shm")
	b.ReportMetric(m[2]/m[1], "x-host")
}

package tcpip_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tcpip"
)

var cables atomic.Int64

// end opens an end of a cable.
func end(t testing.TB, name string, mtu int) ethernet.Port {
	t.Helper()
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{Buffers: 2048, Size: 10240}))(t)
	p := must.Get(ethernet.Open(t.Context(), cable.Scheme+":"+name, ethernet.Options{Pool: pool, MTU: mtu}))(t)
	t.Cleanup(func() {
		_ = p.Close()
		should.OK(t, pool.Close())
	})
	return p
}

// own is the configuration of host n: 10.0.0.n and fd00::n.
func own(n int) tcpip.Config {
	return tcpip.Config{Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", n)), netip.MustParsePrefix(fmt.Sprintf("fd00::%d/64", n))},
		Timeout: 10 * time.Second}
}

// run runs a stack on a port.
func run(t testing.TB, p ethernet.Port, c tcpip.Config) *tcpip.Stack {
	t.Helper()
	if c.MTU == 0 {
		c.MTU = p.Info().Options.MTU
	}
	s := must.Get(tcpip.New(t.Context(), p, c))(t)
	t.Cleanup(func() {
		should.OK(t, s.Close())
	})
	return s
}

// pair is two stacks on one cable, whose frames each pass through what faults say. It returns the cable's name.
func pair(t testing.TB, mtu int, f faults) (a, b *tcpip.Stack, name string) {
	t.Helper()
	name = fmt.Sprintf("t%d", cables.Add(1))
	x, y := end(t, name, mtu), end(t, name, mtu)
	var other sync.WaitGroup
	other.Go(func() { b = run(t, f.on(y), own(2)) })
	a = run(t, f.on(x), own(1))
	other.Wait()
	return a, b, name
}

// faults are what becomes of frames that are sent: shares of them.
type faults struct{ loss, double, reorder, corrupt float64 }

// on puts a port behind the faults.
func (f faults) on(p ethernet.Port) ethernet.Port {
	if f == (faults{}) {
		return p
	}
	return &faultyPort{Port: p, q: &faultyQueue{Queue: p.Queue(0), pool: p.Info().Options.Pool, faults: f, random: rand.New(rand.NewPCG(1, 2))}}
}

type faultyPort struct {
	ethernet.Port
	q *faultyQueue
}

func (p *faultyPort) Queue(int) ethernet.Queue { return p.q }

type faultyQueue struct {
	ethernet.Queue
	faults
	pool   *ethernet.Pool
	random *rand.Rand
	held   []ethernet.Frame // that others overtake
}

// Send sends what the faults leave of the frames.
func (q *faultyQueue) Send(frames []ethernet.Frame) (int, error) {
	for i, f := range frames {
		var out []ethernet.Frame
		switch r := q.random.Float64(); {
		case r < q.loss:
			q.Cache().Free([]ethernet.Frame{f})
		case r < q.loss+q.reorder && len(q.held) < 4:
			q.held = append(q.held, f)
		case r < q.loss+q.reorder+q.corrupt:
			b := q.pool.Bytes(f)
			b[q.random.IntN(len(b))] ^= 1 << q.random.IntN(8)
			out = append(out, f)
		case r < q.loss+q.reorder+q.corrupt+q.double:
			copies := make([]ethernet.Frame, 1)
			if out = append(out, f); q.Cache().Alloc(copies) == 1 {
				copies[0].Length = uint16(copy(q.pool.Buffer(copies[0].Buffer)[copies[0].Offset:], q.pool.Bytes(f)))
				out = append(out, copies[0])
			}
		default:
			out = append(append(out, f), q.held...)
			q.held = nil
		}
		for len(out) > 0 {
			n, err := q.Queue.Send(out)
			if out = out[n:]; err != nil {
				q.Cache().Free(out)
				return i + 1, err
			}
		}
	}
	return len(frames), nil
}

// within is a context that ends.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// output is what a program has said.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

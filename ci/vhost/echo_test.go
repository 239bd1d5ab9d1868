package vhost_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/ethernet"
)

var rings = []string{"split", "packed"}

// echo sends count frames, numbered from first on, and checks those that come back. At most
// 256 are under way, so that neither side drops any.
func echo(t *testing.T, pool *ethernet.Pool, q ethernet.Queue, first, count int, wait bool) {
	t.Helper()
	over := timeout(count)
	frames := make([]ethernet.Frame, 32)
	want := make([]byte, 1514)
	sent, received := first, first
	for received < first+count {
		must.Hold(t, !over(), "%d frames were sent, %d came back", sent-first, received-first)
		n := q.Cache().Alloc(frames[:min(len(frames), first+count-sent, 256-(sent-received))])
		for i := range n {
			frames[i].Length = uint16(lengthOf(sent + i))
			fill(pool.Bytes(frames[i]), sent+i)
		}
		taken := must.Get(q.Send(frames[:n]))(t)
		sent += taken
		q.Cache().Free(frames[taken:n])
		n = must.Get(q.Receive(frames))(t)
		for _, f := range frames[:n] {
			fill(want[:lengthOf(received)], received)
			must.Same(t, pool.Bytes(f), want[:lengthOf(received)], "frame %d: %d bytes differ from those sent", received, f.Length)
			received++
		}
		q.Cache().Free(frames[:n])
		if n == 0 && wait {
			must.OK(t, q.Wait(t.Context()))
		}
	}
}

// TestEcho has testpmd send everything back: ten million frames in a long run.
func TestEcho(t *testing.T) {
	needsTestpmd(t)
	for _, ring := range rings {
		for _, interrupts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, interrupts %v", ring, interrupts), func(t *testing.T) {
				count := 20_000
				if !interrupts && os.Getenv(soak.Variable) != "" { // not soak.Wanted: CI's step of that name has no DPDK
					count = 10_000_000
				}
				socket := socketPath(t)
				pmd := backEnd(t, socket, testpmd.Options{Mode: "io"})
				p, pool := newPort(t, socket, ring, ethernet.Options{Interrupts: interrupts})
				pmd.Do("start")
				began := time.Now()
				echo(t, pool, p.Queue(0), 0, count, interrupts)
				t.Logf("%.0f frames/s", float64(count)/time.Since(began).Seconds())
				c := p.Stats().Queues[0]
				if c.ReceivedFrames != uint64(count) || c.SentFrames != uint64(count) || c.ReceivedBytes != c.SentBytes || c.BadLengths+c.Unended+c.Lost+c.Restarts != 0 {
					t.Errorf("%+v", c)
				}
				if interrupts && c.Interrupts == 0 {
					t.Error("no interrupts")
				}
				l, err := p.Link()
				should.Hold(t, err == nil && l.Up, "%+v, %v", l, err)
			})
		}
	}
}

// TestQueues sends by two queues. testpmd sends what it has from one back by the same.
func TestQueues(t *testing.T) {
	needsTestpmd(t)
	for _, ring := range rings {
		t.Run(ring, func(t *testing.T) {
			socket := socketPath(t)
			pmd := backEnd(t, socket, testpmd.Options{Mode: "io", Queues: 2})
			p, pool := newPort(t, socket, ring, ethernet.Options{Queues: 2})
			pmd.Do("start")
			for round := range 3 {
				echo(t, pool, p.Queue(0), 1000*round, 1000, false)
				echo(t, pool, p.Queue(1), 1000*round, 1000, false)
			}
		})
	}
}

// TestRestart restarts the port while testpmd runs, and when another one has taken its place.
func TestRestart(t *testing.T) {
	needsTestpmd(t)
	for _, ring := range rings {
		t.Run(ring, func(t *testing.T) {
			socket := socketPath(t)
			pmd := backEnd(t, socket, testpmd.Options{Mode: "io"})
			p, pool := newPort(t, socket, ring, ethernet.Options{})
			pmd.Do("start")
			for round := range 3 {
				echo(t, pool, p.Queue(0), 0, 2000, false)
				must.OK(t, p.Restart(t.Context()), "restart %d", round)
			}
			pmd.Kill()
			over := timeout(0)
			for {
				_, err := p.Queue(0).Receive(make([]ethernet.Frame, 1))
				if errors.Is(err, ethernet.ErrDeviceGone) {
					break
				}
				must.Hold(t, err == nil && !over(), "the back end has ended: %v", err)
			}
			if err := p.Restart(t.Context()); err == nil {
				t.Fatal("restarted without a back end")
			}
			pmd = backEnd(t, socket, testpmd.Options{Mode: "io"})
			over = timeout(0)
			for err := p.Restart(t.Context()); err != nil; err = p.Restart(t.Context()) {
				must.Hold(t, !over(), "%+v", err)
			}
			pmd.Do("start")
			echo(t, pool, p.Queue(0), 0, 2000, false)
			should.Be(t, p.Stats().Restarts, 4, "restarts")
		})
	}
}

package vhost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// cable starts testpmd as a back end at two sockets, between which it carries frames.
func cable(t testing.TB, sockets [2]string, o testpmd.Options) *testpmd.Process {
	t.Helper()
	o.Mode = "io"
	o.More = append(o.More, "--disable-link-check")
	for i, socket := range sockets {
		_ = os.Remove(socket)
		o.Devices = append(o.Devices, fmt.Sprintf("net_vhost%d,iface=%s", i, socket))
	}
	p := testpmd.Launch(t, o)
	for _, socket := range sockets {
		p.Await("the socket", func() bool { _, err := os.Stat(socket); return err == nil })
	}
	return p
}

// openNIC opens a NIC that is closed with the test.
func openNIC(t testing.TB, address string, more via.Options) *via.NIC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testpmd.Timeout)
	defer cancel()
	more.Logger = slog.New(slog.DiscardHandler)
	nic, err := via.Open(ctx, address, more)
	for over := timeout(0); err != nil && !over(); nic, err = via.Open(ctx, address, more) {
		time.Sleep(time.Millisecond) // a testpmd that has just begun may be too slow to answer
	}
	must.OK(t, err)
	t.Cleanup(func() {
		if err := nic.Close(); err != nil && !errors.Is(err, via.ErrClosed) {
			t.Error(err)
		}
	})
	return nic
}

// overVhost is the address of a NIC whose wire is at a socket.
func overVhost(socket, ring, options string) string {
	return "emu:?wire=vhost-user:" + socket + "%3Fring=" + ring + options
}

// TestNICs runs what every pair of NICs must pass over two ports of vhost-user, between
// which testpmd carries frames: all of it with packed rings, a part with split ones.
func TestNICs(t *testing.T) {
	needsTestpmd(t)
	for ring, only := range map[string][]string{
		"packed": nil,
		"split":  {"send-receive/reliable", "send-receive/around the frame", "reliability/order and flow control", "send-receive/waits", "states/reconnect"},
	} {
		sockets := [2]string{socketPath(t), socketPath(t)}
		pmd := cable(t, sockets, testpmd.Options{})
		started := false
		conform.VIs().Run(t, ring, func(t *testing.T) (a, b *via.NIC) {
			a, b = openNIC(t, overVhost(sockets[0], ring, ""), via.Options{}), openNIC(t, overVhost(sockets[1], ring, ""), via.Options{})
			if !started {
				pmd.Do("start") // not before somebody is connected
				started = true
			}
			return a, b
		}, only...)
	}
}

// TestNICsFindTestpmdAgain: the back end ends, and another takes its place. The NICs
// connect to it by themselves.
func TestNICsFindTestpmdAgain(t *testing.T) {
	needsTestpmd(t)
	sockets := [2]string{socketPath(t), socketPath(t)}
	pmd := cable(t, sockets, testpmd.Options{})
	var links [2]atomic.Bool
	wait := func(up bool) {
		t.Helper()
		for over := timeout(0); links[0].Load() != up || links[1].Load() != up; time.Sleep(time.Millisecond) {
			must.Hold(t, !over(), "the links are not up=%v", up)
		}
	}
	var nics [2]*via.NIC
	for i := range nics {
		links[i].Store(true)
		nics[i] = openNIC(t, "eth:vhost-user:"+sockets[i], via.Options{OnError: func(e via.AsyncError) {
			if e.Code == via.AsyncLink {
				links[i].Store(e.Detail == 1)
			}
		}})
	}
	pair := conform.NewWorld(t, nics[0], nics[1])
	for round := range 3 {
		pmd.Do("start") // not before both are connected
		bounce(t, newBall(t, pair, 64), 100)
		if round < 2 {
			pmd.Kill()
			wait(false)
			pmd = cable(t, sockets, testpmd.Options{})
			wait(true)
		}
	}
}

// ball is a message that goes to and fro.
type ball struct {
	x, y   *conform.End
	thrown bool
}

func newBall(t testing.TB, p *conform.World, size int) *ball {
	t.Helper()
	x, y := p.Connect(conform.Setup{Memory: 2*size + 64})
	for _, e := range []*conform.End{x, y} {
		e.Prepare(t, e.Send[0], 0, size)
		must.OK(t, e.VI.PostRecv(e.Prepare(t, e.Recv[0], size, size)))
	}
	return &ball{x: x, y: y}
}

// bounce sends it there and back, so many times.
func bounce(t testing.TB, b *ball, times int) {
	over := timeout(0)
	// take polls for what is to come, and now and then the other end, which may have to
	// send something again.
	take := func(what string, done, other func() (*via.Descriptor, error)) *via.Descriptor {
		for i := 0; ; i++ {
			d, err := done()
			if err == nil {
				d.Rearm()
				return d
			}
			if i%64 == 63 && err == via.ErrNotDone {
				_, err = other()
			}
			if err != via.ErrNotDone || i%1024 == 0 && over() {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	for range times {
		for _, way := range [2][2]*conform.End{{b.x, b.y}, {b.y, b.x}} {
			from, to := way[0], way[1]
			if b.thrown { // the last one, which an answer has acknowledged
				take("send", from.VI.SendDone, to.VI.RecvDone)
			}
			b.thrown = b.thrown || from == b.y
			must.OK(t, from.VI.PostSend(from.Send[0]))
			must.OK(t, to.VI.PostRecv(take("receive", to.VI.RecvDone, from.VI.RecvDone)))
		}
	}
}

// BenchmarkNICs compares wires: a message of 64 bytes of VIA, one way, between two NICs of
// this process whose frames testpmd carries, over ports of vhost-user and over memifs. The
// engines run inline on one processor and testpmd on another, in turns; the best slice of
// each counts. Frames over vhost-user carry a checksum, those over a memif do not.
func BenchmarkNICs(b *testing.B) {
	needsTestpmd(b)
	if runtime.NumCPU() < 2 {
		b.Skip("needs two processors")
	}
	var split, packed, memif time.Duration
	for b.Loop() {
		for range rounds {
			split = least(split, vhostLatency(b, "split"))
			packed = least(packed, vhostLatency(b, "packed"))
			memif = least(memif, memifLatency(b))
		}
	}
	b.ReportMetric(float64(split.Nanoseconds()), "split-ns/one-way")
	b.ReportMetric(float64(packed.Nanoseconds()), "packed-ns/one-way")
	b.ReportMetric(float64(memif.Nanoseconds()), "memif-ns/one-way")
	b.ReportMetric(float64(packed)/float64(memif), "ratio")
	b.ReportMetric(0, "ns/op")
}

// least is the lesser time, of which the first may be none yet.
func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func vhostLatency(b *testing.B, ring string) time.Duration {
	sockets := [2]string{socketPath(b), socketPath(b)}
	pmd := cable(b, sockets, testpmd.Options{Core: 1})
	defer pmd.Kill()
	x, y := openNIC(b, overVhost(sockets[0], ring, "&engine=inline"), via.Options{}), openNIC(b, overVhost(sockets[1], ring, "&engine=inline"), via.Options{})
	defer x.Close()
	defer y.Close()
	pmd.Do("start")
	return latency(b, conform.NewWorld(b, x, y))
}

func memifLatency(b *testing.B) time.Duration {
	pair := conform.NewWorld(b, nil, nil)
	o := testpmd.Options{Core: 1, Mode: "io"}
	for i, nic := range []**via.NIC{&pair.A, &pair.B} {
		socket := socketPath(b)
		*nic = openNIC(b, "emu:?role=server&mode=poll&wire=memif:"+socket, via.Options{})
		defer (*nic).Close()
		o.Devices = append(o.Devices, fmt.Sprintf("net_memif%d,role=client,socket=%s,socket-abstract=no", i, socket))
	}
	pmd := testpmd.Launch(b, o)
	defer pmd.Kill()
	pmd.Do("start")
	return latency(b, pair)
}

// perSlice is how many messages go to and fro between two looks at the clock.
const perSlice = 500

// latency is how long a message takes one way.
func latency(b *testing.B, p *conform.World) (best time.Duration) {
	defer onSecondCore(b)()
	message := newBall(b, p, 64)
	bounce(b, message, perSlice)
	for range 10 * slices {
		started := time.Now()
		bounce(b, message, perSlice)
		best = least(best, time.Since(started)/(2*perSlice))
	}
	return best
}

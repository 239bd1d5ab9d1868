package vhost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

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
	if err != nil {
		t.Fatal(err)
	}
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
			if over() {
				t.Fatalf("the links are not up=%v", up)
			}
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
		if err := e.VI.PostRecv(e.Prepare(t, e.Recv[0], size, size)); err != nil {
			t.Fatal(err)
		}
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
			if err := from.VI.PostSend(from.Send[0]); err != nil {
				t.Fatal(err)
			}
			if err := to.VI.PostRecv(take("receive", to.VI.RecvDone, from.VI.RecvDone)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

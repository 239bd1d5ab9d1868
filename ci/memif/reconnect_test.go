package memif_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/wire"
)

// echo has testpmd send frames back, and compares them.
func echo(t *testing.T, p *wire.Memif, n int) {
	t.Helper()
	frames := makeFrames(n, 2048)
	sendAll(t, p, frames)
	wantFrames(t, "echo", receiveAll(t, p, n), frames)
}

// TestPeerDies kills testpmd with frames under way, and starts it again.
func TestPeerDies(t *testing.T) {
	needsTestpmd(t)
	for _, role := range []wire.MemifRole{wire.MemifClient, wire.MemifServer} {
		for _, abstract := range []bool{false, true} {
			t.Run(fmt.Sprintf("we are the %s, abstract %v", role, abstract), func(t *testing.T) {
				socket := socketPath(t)
				if abstract {
					socket = abstractName(socket)
				}
				p := newPort(t, wire.MemifOptions{Role: role, Socket: socket})
				const rounds = 3
				for range rounds {
					pmd := testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{memifDevice(0, role, socket, "")}, Mode: "io"})
					echo(t, p, 500)
					sendAll(t, p, makeFrames(200, 1500))
					pmd.Kill()
					if role == wire.MemifClient && !abstract {
						// DPDK does not replace what a dead server has left.
						should.OK(t, os.Remove(socket))
					}
					waittest.Until(t, "the link goes down", func() bool { return !p.LinkUp() })
				}
				waittest.Until(t, "it is counted", func() bool { return p.Stats().Disconnects >= rounds })
				if s := p.Stats(); s.Connections != rounds || s.Violations+s.Malformed+s.BadMemory != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		}
	}
}

// TestWeComeAgain closes our end and makes it again while testpmd runs on, and
// pulls our plug.
func TestWeComeAgain(t *testing.T) {
	needsTestpmd(t)
	for _, role := range []wire.MemifRole{wire.MemifClient, wire.MemifServer} {
		t.Run("we are the "+role.String(), func(t *testing.T) {
			socket := socketPath(t)
			o := wire.MemifOptions{Role: role, Socket: socket}
			p := newPort(t, o)
			pmd := testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{memifDevice(0, role, socket, "")}, Mode: "io",
				More: []string{"--disable-link-check"}})
			// A client of DPDK connects when its port is started. Frames stop
			// meanwhile, and the port is not stopped before the link is down: it
			// gives its memory back under its own hands, or twice.
			again := func() {
				t.Helper()
				if role == wire.MemifServer {
					pmd.Await("testpmd to see the link go down", func() bool {
						return strings.Contains(pmd.Ask("show port info 0"), "Link status: down")
					})
					pmd.Ask("port stop 0")
					pmd.Ask("port start 0")
				}
				pmd.Await("link up", p.LinkUp)
				pmd.Do("start")
			}
			echo(t, p, 500)
			for range 3 {
				pmd.Ask("stop")
				should.OK(t, p.Close())
				p = newPort(t, o)
				again()
				echo(t, p, 500)
				pmd.Ask("stop")
				p.SetLink(false)
				p.SetLink(true)
				again()
				echo(t, p, 500)
			}
			pmd.Quit()
		})
	}
}

// TestWrongSecretAndID: testpmd knows another secret, or another id.
func TestWrongSecretAndID(t *testing.T) {
	needsTestpmd(t)
	for _, tt := range []struct {
		role   wire.MemifRole
		device string
		want   error
	}{
		{wire.MemifClient, ",secret=sesame", wire.ErrRefused},
		{wire.MemifClient, ",secret=open,id=1", wire.ErrRefused},
		{wire.MemifServer, ",secret=sesame", wire.ErrNotWelcome},
		{wire.MemifServer, ",secret=open,id=1", wire.ErrNotWelcome},
		{wire.MemifServer, "", wire.ErrNotWelcome},
	} {
		t.Run(fmt.Sprintf("we are the %s, testpmd has %q", tt.role, tt.device), func(t *testing.T) {
			socket := socketPath(t)
			p := newPort(t, wire.MemifOptions{Role: tt.role, Socket: socket, Secret: "open"})
			pmd := testpmd.Launch(t, testpmd.Options{Devices: []string{memifDevice(0, tt.role, socket, tt.device)}, Mode: "io",
				More: []string{"--disable-link-check"}})
			pmd.Await("to be refused", func() bool { return errors.Is(p.Stats().Err, tt.want) })
			should.Hold(t, !p.LinkUp(), "link is up")
		})
	}
}

// TestInterrupts sleeps until testpmd signals its eventfd.
func TestInterrupts(t *testing.T) {
	needsTestpmd(t)
	for _, role := range []wire.MemifRole{wire.MemifClient, wire.MemifServer} {
		t.Run("we are the "+role.String(), func(t *testing.T) {
			socket := socketPath(t)
			p := newPort(t, wire.MemifOptions{Role: role, Socket: socket})
			wake, woken := waittest.Bell()
			p.SetWake(wake)
			testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{memifDevice(0, role, socket, "")}, Mode: "io"})
			timeout := time.NewTimer(timeout)
			defer timeout.Stop()
			for i := range 300 {
				// Nothing comes for a while, so an interrupt is asked for.
				for range 200 {
					if f := p.Receive(); f != nil {
						t.Fatalf("a frame of %d bytes too many", len(f))
					}
				}
				frame := makeFrame(i, 64+i)
				sendAll(t, p, [][]byte{frame})
				for f := p.Receive(); ; f = p.Receive() {
					if f != nil {
						wantFrames(t, "echo", [][]byte{f}, [][]byte{frame})
						p.Release()
						break
					}
					select {
					case <-woken:
					case <-timeout.C:
						t.Fatalf("frame %d: nobody was woken, stats %+v", i, p.Stats())
					}
				}
			}
			waittest.Until(t, "interrupts are counted", func() bool { return p.Stats().Interrupts > 0 })
		})
	}
}

// TestZeroCopyClient: testpmd as a client that has its own buffers mapped, in a
// file that it could cut off. All frames are copied then.
func TestZeroCopyClient(t *testing.T) {
	needsTestpmd(t)
	socket := socketPath(t)
	p := newPort(t, wire.MemifOptions{Role: wire.MemifServer, Socket: socket})
	pmd := testpmd.Launch(t, testpmd.Options{Devices: []string{memifDevice(0, wire.MemifServer, socket, ",zero-copy=yes")}, Mode: "io",
		EAL: []string{"--single-file-segments"}})
	pmd.Await("link up", p.LinkUp)
	pmd.Do("start")
	s := p.Stats()
	should.Hold(t, s.Guarded, "stats %+v", s)
	for range 10 {
		echo(t, p, 200)
	}
}

//go:build nffgo

package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	_ "github.com/trapeze-nic/trapeze/emulator" // emu:
	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/numbered"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestMain(m *testing.M) { numbered.Main(m, main) }

// start starts the command, and returns a socket that it listens at.
func start(t *testing.T) (*numbered.Command, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nffgo") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	return numbered.Start(t, "--socket", socket), socket
}

// TestMemif sends frames through nff-go and back, by a memif of ours.
func TestMemif(t *testing.T) {
	const frames = 2_000_000
	command, socket := start(t)
	p, err := wire.NewMemif(wire.MemifOptions{Socket: socket, Role: wire.MemifClient, Ring: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	end := time.Now().Add(numbered.Timeout)
	for !p.LinkUp() {
		if time.Sleep(time.Millisecond); command.Ended() || time.Now().After(end) {
			t.Fatal("no link")
		}
	}
	// As many are under way as neither a ring of the memif nor one of nff-go's overflows.
	const window = 3500
	var check numbered.Check
	started := time.Now()
	for sent := 0; check.Next() < frames; {
		idle := true
		for ; sent < frames && sent-check.Next() < window; sent++ {
			b := p.Reserve(numbered.Length(sent))
			if b == nil {
				break
			}
			numbered.Fill(b, sent)
			p.Commit()
			idle = false
		}
		p.Flush()
		for b := p.Receive(); b != nil; b = p.Receive() {
			if err := check.Frame(b); err != nil {
				t.Fatal(err)
			}
			p.Release()
			idle = false
		}
		if idle {
			if time.Sleep(numbered.Nap); command.Ended() || time.Now().After(end) {
				t.Fatalf("%d frames were sent, those before %d came back", sent, check.Next())
			}
		}
	}
	t.Logf("%d frames in %v", frames, time.Since(started))
	command.Interrupt(frames)
}

func health(t *testing.T, n *driver.NIC) driver.Health {
	t.Helper()
	h, err := n.Health(conform.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestNIC has an emulated NIC at the other end, and an application that sends and receives
// raw frames.
func TestNIC(t *testing.T) {
	const frames, depth, size = 20_000, 256, 2048
	command, socket := start(t)
	n, err := driver.Open(conform.Context(t), "emu:?mtu=2048&wire=memif:"+socket+"&role=client", driver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	nic, err := via.New(conform.Context(t), n, via.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nic.Close(); err != nil {
			t.Error(err)
		}
	})
	e := conform.NewEnd(t, nic, conform.Setup{Memory: 2 * depth * size,
		Attributes: via.VIAttributes{Frames: via.AllFrames, SendDepth: depth, RecvDepth: depth}})
	memory := e.Memory.Bytes()
	for i, d := range e.Recv {
		if err := e.VI.PostRecv(e.Prepare(t, d, (depth+i)*size, size)); err != nil {
			t.Fatal(err)
		}
	}
	end := time.Now().Add(numbered.Timeout)
	for up := false; !up; up = health(t, n).LinkUp {
		if time.Sleep(time.Millisecond); command.Ended() || time.Now().After(end) {
			t.Fatal("no link")
		}
	}
	var check numbered.Check
	for sent, done := 0, 0; check.Next() < frames; {
		// A descriptor is free when its send is done, and a receive is there for each frame.
		for ; sent < frames && sent-done < depth && sent-check.Next() < depth-5; sent++ {
			at, n := sent%depth*size, numbered.Length(sent)
			numbered.Fill(memory[at:at+n], sent)
			if err := e.VI.PostSend(e.Prepare(t, e.Send[sent%depth], at, n)); err != nil {
				t.Fatal(err)
			}
		}
		err := error(via.ErrNotDone)
		if done < sent {
			if _, err = e.VI.SendDone(); err == nil {
				done++
			}
		}
		d, again := e.VI.RecvDone()
		if again == nil {
			at := (depth + slices.Index(e.Recv, d)) * size
			if err := check.Frame(memory[at : at+int(d.Length())]); err != nil {
				t.Fatal(err)
			}
			d.Rearm()
			again = e.VI.PostRecv(d)
		}
		for _, err := range []error{err, again} {
			if err != nil && !errors.Is(err, via.ErrNotDone) {
				t.Fatal(err)
			}
		}
		if err != nil && again != nil {
			if time.Sleep(numbered.Nap); command.Ended() || time.Now().After(end) {
				t.Fatalf("%d frames were sent, those before %d came back", sent, check.Next())
			}
		}
	}
	command.Interrupt(frames)
}

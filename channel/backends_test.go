package channel_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

// open opens a NIC, which is closed at the end of the test.
func open(t testing.TB, address string) *via.NIC {
	t.Helper()
	nic, err := via.Open(contextFor(t), address, via.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nic.Close(); err != nil {
			t.Error(err)
		}
	})
	return nic
}

// onUDP opens two NICs on a wire over UDP.
func onUDP(t testing.TB) (a, b *via.NIC) {
	t.Helper()
	var at [2]string
	for i := range at {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at[i] = c.LocalAddr().String()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, "emu:?wire=udp://"+at[0]+"&peer="+at[1]), open(t, "emu:?wire=udp://"+at[1]+"&peer="+at[0])
}

// onSockets opens two NICs that are served over vfio-user.
func onSockets(t testing.TB, options string) (a, b *via.NIC) {
	t.Helper()
	folder := t.TempDir()
	names := []string{filepath.Join(folder, "nic0"), filepath.Join(folder, "nic1")}
	nics, err := emulator.Fleet(t.Context(), "emu:"+options, names)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for i, d := range nics {
		l, err := vfiouser.Listen(names[i], 0o600)
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			if err := vfiouser.Serve(ctx, l, d, vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Error(err)
			}
		})
	}
	// Clean-ups run last one first: the clients leave before the servers do.
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		for _, d := range nics {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return open(t, "vfio-user:"+names[0]), open(t, "vfio-user:"+names[1])
}

// TestBackEnds: messages cross both ways on every back end and wire.
func TestBackEnds(t *testing.T) {
	for name, both := range map[string]func(testing.TB) (a, b *via.NIC){
		"UDP": onUDP,
		"shm": func(t testing.TB) (a, b *via.NIC) {
			at := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire")
			return open(t, at), open(t, at)
		},
		"checksums":                    func(t testing.TB) (a, b *via.NIC) { return openBoth(t, "&loss=0&corrupt=0") },
		"vfio-user":                    func(t testing.TB) (a, b *via.NIC) { return onSockets(t, "") },
		"vfio-user, trapped doorbells": func(t testing.TB) (a, b *via.NIC) { return onSockets(t, "?doorbells=trapped") },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := both(t)
			clients, servers := openPairs(t, a, b, 2, nil, nil)
			for round := range 20 {
				for i := range clients {
					for _, way := range [][2]*channel.Channel{{clients[i], servers[i]}, {servers[i], clients[i]}} {
						if err := cross(t, way[0], way[1], round*8+i); err != nil {
							t.Fatalf("round %d, pair %d: %v", round, i, err)
						}
					}
				}
			}
		})
	}
}

// cross sends a message of some size, and compares what comes.
func cross(t testing.TB, from, to *channel.Channel, seed int) error {
	want := random(channel.Word*(1+seed*5%700), uint64(seed))
	if err := from.Send(channel.Priority(seed%2), 0, from.SendPages().Put(0, want)); err != nil {
		return err
	}
	m, err := to.Poll()
	for ctx := contextFor(t); err == channel.ErrEmpty && ctx.Err() == nil; m, err = to.Poll() {
		// The sender's NIC may be one that has to be stepped.
		if _, _, err := from.Left(channel.Priority(seed % 2)); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	got := make([]byte, m.Length)
	if to.Read(m, got); m.Err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%+v of %d bytes", m, len(want))
	}
	return to.Release(m)
}

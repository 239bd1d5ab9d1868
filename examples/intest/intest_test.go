// Package intest shows how a program that uses NICs is tested without any: with
// two emulated ones on a wire in memory.
package intest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// pair returns two NICs on one wire.
func pair(t *testing.T) (a, b *via.NIC) {
	da, db, err := emulator.Pair()
	if err != nil {
		t.Fatal(err)
	}
	return open(t, da), open(t, db)
}

func open(t *testing.T, device vfio.Device) *via.NIC {
	nic, err := driver.New(t.Context(), device, driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := via.New(t.Context(), via.Driver(nic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestMessage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	a, b := pair(t)
	from, message := newVI(ctx, t, a)
	to, buffer := newVI(ctx, t, b)

	receive := describe(ctx, t, to, buffer, buffer.Size())
	if err := to.PostRecv(receive); err != nil {
		t.Fatal(err)
	}
	connect(ctx, t, from, to)
	n := copy(message.Bytes(), "sent without hardware")
	if err := from.PostSend(describe(ctx, t, from, message, n)); err != nil {
		t.Fatal(err)
	}
	done, err := to.RecvWait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buffer.Bytes()[:done.Length()]); got != "sent without hardware" {
		t.Errorf("received %q", got)
	}
	if _, err := from.SendWait(ctx); err != nil {
		t.Error(err)
	}
}

// newVI makes a VI and memory that it may use.
func newVI(ctx context.Context, t *testing.T, n *via.NIC) (*via.VI, *via.Memory) {
	v, err := n.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := n.Alloc(ctx, 4096, via.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	return v, m
}

// describe makes a descriptor of the first length bytes of m.
func describe(ctx context.Context, t *testing.T, v *via.VI, m *via.Memory, length int) *via.Descriptor {
	ds, err := v.NewDescriptors(ctx, 1, 1)
	if err == nil {
		err = m.AddTo(ds[0], 0, length)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

// connect connects two VIs.
func connect(ctx context.Context, t *testing.T, client, server *via.VI) {
	name := []byte("test")
	accepted := make(chan error, 1)
	go func() {
		request, err := server.NIC().ConnectWait(ctx, name)
		if err == nil {
			_, err = request.Accept(ctx, server)
		}
		accepted <- err
	}()
	address := via.Address{MAC: server.NIC().Query().Address, Discriminator: name}
	err := error(via.ErrNoMatch)
	for errors.Is(err, via.ErrNoMatch) { // until the server waits
		_, err = client.ConnectRequest(ctx, address, nil)
	}
	if err := errors.Join(err, <-accepted); err != nil {
		t.Fatal(err)
	}
}

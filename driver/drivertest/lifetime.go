package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// testCloseStates closes NICs in every state that a program can leave them in.
func testCloseStates(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, a, b *driver.NIC)
	}{
		{"nothing", func(*testing.T, *driver.NIC, *driver.NIC) {}},
		{"idle VI", func(t *testing.T, a, b *driver.NIC) { newEnd(t, a, layout{sendCQ: 16, recvCQ: 16}) }},
		{"receives posted", func(t *testing.T, a, b *driver.NIC) {
			x := newEnd(t, a, layout{recvCQ: 16})
			if err := x.v.PostRecv(x.descriptor(t, 0, 8)); err != nil {
				t.Fatal(err)
			}
		}},
		{"connected", func(t *testing.T, a, b *driver.NIC) { connected(t, a, b, layout{}) }},
		{"sending", func(t *testing.T, a, b *driver.NIC) {
			x, _ := connected(t, a, b, layout{})
			for i := range 8 {
				if err := x.v.PostSend(x.descriptor(t, i, 4096)); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"completions not taken", func(t *testing.T, a, b *driver.NIC) {
			x, y := connected(t, a, b, layout{sendCQ: 16, recvCQ: 16})
			for i := range 8 {
				if err := errors.Join(y.v.PostRecv(y.descriptor(t, i, 64)), x.v.PostSend(x.descriptor(t, i, 64))); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := x.sendCQ.Wait(Context(t)); err != nil {
				t.Fatal(err)
			}
		}},
		{"error state", func(t *testing.T, a, b *driver.NIC) {
			x, y := connected(t, a, b, layout{})
			if err := y.v.Destroy(Context(t)); err != nil {
				t.Fatal(err)
			}
			x.reaches(t, descriptors.StateError)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, open)
			c.make(t, a, b)
			for range 2 {
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := a.CreatePtag(Context(t)); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
			if _, err := b.CreatePtag(Context(t)); err != nil {
				t.Errorf("the other NIC: %v", err)
			}
		})
	}
	t.Run("waiting", func(t *testing.T) {
		a, b := pair(t, open)
		closeWhileWaiting(t, a, b)
	})
	t.Run("peer closes", func(t *testing.T) {
		a, b := pair(t, open)
		x, y := connected(t, a, b, layout{})
		recv := y.descriptor(t, 0, 64)
		if err := y.v.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		_ = x
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		flushed(t, y, []*descriptors.Descriptor{recv}, driver.ErrDisconnected)
		y.reaches(t, descriptors.StateError)
	})
}

// closeWhileWaiting: Close ends every wait.
func closeWhileWaiting(t *testing.T, a, b *driver.NIC) {
	x, _ := connected(t, a, b, layout{recvCQ: 16})
	y, _ := connected(t, a, b, layout{})
	idle := newEnd(t, a, layout{})
	if err := errors.Join(x.v.PostRecv(x.descriptor(t, 0, 8)), y.v.PostRecv(y.descriptor(t, 0, 8))); err != nil {
		t.Fatal(err)
	}
	// Somebody whom idle asks, and who does not answer.
	asked := make(chan error, 1)
	go func() {
		_, err := b.ConnectWait(Context(t), []byte("silent"))
		asked <- err
	}()
	ends := make(chan error, 4)
	ctx := Context(t)
	go func() { _, err := x.recvCQ.Wait(ctx); ends <- err }()
	go func() { _, err := y.v.RecvWait(ctx); ends <- err }()
	go func() { _, err := a.ConnectWait(ctx, []byte("nobody")); ends <- err }()
	go func() { ends <- requestUntilWaiting(ctx, idle.v, b.Identity().MAC, []byte("silent")) }()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for range cap(ends) {
		if err := <-ends; !errors.Is(err, driver.ErrClosed) {
			t.Error(err)
		}
	}
	if err := context.Cause(ctx); err != nil {
		t.Errorf("the waits ended with their context: %v", err)
	}
}

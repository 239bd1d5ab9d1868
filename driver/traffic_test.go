package driver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// exchanged is the size of the messages of traffic and postOne: several frames.
const exchanged = 30_000

// traffic connects two NICs and sends messages both ways, each of several
// frames, a given number of times.
func traffic(t *testing.T, a, b *driver.NIC, times int) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 1})
	message := make([]byte, exchanged)
	for i := range times {
		for j := range message {
			message[j] = byte(i + j*7)
		}
		deliver(t, x, y, message)
		deliver(t, y, x, message)
	}
	for _, e := range []*end{x, y} {
		if err := e.v.Abandon(contextFor(t)); err != nil {
			t.Error(err)
		}
	}
}

// postOne connects two NICs and posts a message of several frames from a to b,
// which waits for it.
func postOne(t *testing.T, a, b *driver.NIC) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 1})
	if err := errors.Join(y.v.PostRecv(y.descriptor(t, 0, exchanged)), x.v.PostSend(x.descriptor(t, 0, exchanged))); err != nil {
		t.Fatal(err)
	}
}

// The first half of an end's slots is for sends, the second for receives.
const half = 8

// sendAll sends messages that say their number and are as long as it asks.
func sendAll(ctx context.Context, e *end, messages int) error {
	for i := range messages {
		if i >= half {
			if _, err := e.v.SendWait(ctx); err != nil {
				return fmt.Errorf("message %d: %w", i-half, err)
			}
		}
		slot := i % half
		size := messageSize(i)
		fill(e.buffer(slot)[:size], i)
		if err := post(e, e.v.PostSend, slot, size); err != nil {
			return err
		}
	}
	for i := range half {
		if _, err := e.v.SendWait(ctx); err != nil {
			return fmt.Errorf("message %d: %w", messages-half+i, err)
		}
	}
	return nil
}

func receiveAll(ctx context.Context, e *end, messages int) error {
	for i := range min(half, messages) {
		if err := post(e, e.v.PostRecv, half+i, 4096); err != nil {
			return err
		}
	}
	want := make([]byte, 4096)
	for i := range messages {
		d, err := e.v.RecvWait(ctx)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		slot := half + i%half
		size := messageSize(i)
		fill(want[:size], i)
		if int(d.Length()) != size || !bytes.Equal(e.buffer(slot)[:size], want[:size]) {
			return fmt.Errorf("message %d has %d bytes, want %d, or others", i, d.Length(), size)
		}
		if i+half < messages {
			if err := post(e, e.v.PostRecv, slot, 4096); err != nil {
				return err
			}
		}
	}
	return nil
}

func post(e *end, to func(*descriptors.Descriptor) error, slot, size int) error {
	d, err := e.lay(slot, size)
	if err != nil {
		return err
	}
	return to(d)
}

func messageSize(i int) int { return i * 577 % 4097 }

func fill(b []byte, i int) {
	for at := range b {
		b[at] = byte(i + at*3)
	}
}

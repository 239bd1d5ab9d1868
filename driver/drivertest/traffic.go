package drivertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// testConcurrency: several connections, both directions at once, a goroutine for
// each queue.
func testConcurrency(t *testing.T, a, b *driver.NIC) {
	const connections, messages = 4, 60
	ctx := Context(t)
	var wg sync.WaitGroup
	for c := range connections {
		x, y := newEnd(t, a, layout{depth: 8}), newEnd(t, b, layout{depth: 8})
		connectAt(t, x, y, fmt.Appendf(nil, "connection %d", c))
		for _, way := range [][2]*end{{x, y}, {y, x}} {
			from, to := way[0], way[1]
			wg.Go(func() { report(t, "send", sendAll(ctx, from, messages)) })
			wg.Go(func() { report(t, "receive", receiveAll(ctx, to, messages)) })
		}
	}
	// Meanwhile others come and go.
	wg.Go(func() {
		for range 20 {
			report(t, "memory", comeAndGo(ctx, a))
		}
	})
	wg.Wait()
}

// comeAndGo creates and destroys what a connection stands on.
func comeAndGo(ctx context.Context, n *driver.NIC) error {
	p, err := n.CreatePtag(ctx)
	if err != nil {
		return err
	}
	m, err := n.AllocMemory(ctx, 8192, driver.MemoryAttributes{Ptag: p})
	if err != nil {
		return err
	}
	return errors.Join(m.Deregister(ctx), n.DestroyPtag(ctx, p))
}

func report(t *testing.T, what string, err error) {
	if err != nil {
		t.Errorf("%s: %v", what, err)
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

// testStream: a receiver that is slower than the sender loses nothing on a
// reliable connection.
func testStream(t *testing.T, a, b *driver.NIC) {
	const messages = 400
	x, y := connected(t, a, b, layout{depth: 8, slots: 16})
	ctx := Context(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range messages {
			if i >= half {
				if _, err := x.v.SendWait(ctx); err != nil {
					t.Errorf("message %d: %v", i, err)
					return
				}
			}
			binary.LittleEndian.PutUint32(x.buffer(i%half), uint32(i))
			if err := post(x, x.v.PostSend, i%half, 2048); err != nil {
				t.Error(err)
				return
			}
		}
	})
	// One receive at a time: there is never more room than for one message.
	for i := range messages {
		recv := y.descriptor(t, 0, 2048)
		if err := y.v.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		takeRecv(t, y, recv)
		if got := binary.LittleEndian.Uint32(y.buffer(0)); got != uint32(i) {
			t.Fatalf("message %d came as number %d", got, i)
		}
	}
	wg.Wait()
	for range half {
		d, err := x.v.SendWait(ctx)
		if err != nil || d.Status() != descriptors.StatusDone {
			t.Errorf("%v, %v", d, err)
		}
	}
}

package driver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// completion completes token i of the VI's queue in CQ cq.
func (r *rig) completion(cq *driver.CQ, receive bool, i uint32) {
	flags := uint32(0)
	if receive {
		flags = datasheet.CompletionReceive
	}
	r.d.with(func() {
		r.d.complete(r.v.Number(), receive, i, 0, datasheet.StatusDone)
		r.d.completion(cq.Number(), datasheet.Completion{Endpoint: r.v.Number(), Index: i, Status: uint32(datasheet.StatusDone), Flags: flags})
	})
}

func TestCQOrder(t *testing.T) {
	r := newRig(t, nil, 3, 8)
	ds := r.descriptors(t, 4)
	for i := range uint32(20) { // wraps both CQs
		send, recv := ds[i%2], ds[2+i%2]
		send.Rearm()
		recv.Rearm()
		if err := errors.Join(r.v.PostSend(send), r.v.PostRecv(recv)); err != nil {
			t.Fatal(i, err)
		}
		if _, err := r.sendCQ.Done(); err != descriptors.ErrNotDone {
			t.Fatal(i, err)
		}
		r.completion(r.sendCQ, false, i)
		r.completion(r.recvCQ, true, i)
		e, err := r.sendCQ.Done()
		if err != nil || e.VI != r.v || e.Index != i || e.Receive {
			t.Fatalf("%d: %+v, %v", i, e, err)
		}
		if d, err := r.v.SendDone(); d != send || err != nil {
			t.Fatal(i, d, err)
		}
		e, err = r.recvCQ.Wait(contextFor(t))
		if err != nil || e.Index != i || !e.Receive {
			t.Fatalf("%d: %+v, %v", i, e, err)
		}
		if d, err := r.v.RecvDone(); d != recv || err != nil {
			t.Fatal(i, d, err)
		}
	}
}

// TestCQHostile: an impossible entry ends the CQ, and nothing else.
func TestCQHostile(t *testing.T) {
	good := datasheet.Completion{Endpoint: 1, Index: 0, Status: uint32(datasheet.StatusDone)}
	for name, change := range map[string]func(*datasheet.Completion){
		"no such endpoint":       func(e *datasheet.Completion) { e.Endpoint = 5 },
		"endpoint 0":             func(e *datasheet.Completion) { e.Endpoint = 0 },
		"endpoint out of range":  func(e *datasheet.Completion) { e.Endpoint = 0xffffffff },
		"other queue":            func(e *datasheet.Completion) { e.Flags = datasheet.CompletionReceive },
		"not posted":             func(e *datasheet.Completion) { e.Index = 1 },
		"index 2^32-1":           func(e *datasheet.Completion) { e.Index = 0xffffffff },
		"reserved flags":         func(e *datasheet.Completion) { e.Flags = 0x40 },
		"reserved status":        func(e *datasheet.Completion) { e.Status |= 0x400 },
		"status that is not one": func(e *datasheet.Completion) { e.Status = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 8, 0)
			ds := r.descriptors(t, 2)
			if err := errors.Join(r.v.PostSend(ds[0]), r.v.PostRecv(ds[1])); err != nil {
				t.Fatal(err)
			}
			e := good
			change(&e)
			r.d.with(func() { r.d.completion(r.sendCQ.Number(), e) })
			for range 2 {
				if _, err := r.sendCQ.Done(); !errors.Is(err, driver.ErrProtocol) {
					t.Error(err)
				}
			}
			if _, err := r.sendCQ.Wait(contextFor(t)); !errors.Is(err, driver.ErrProtocol) {
				t.Error(err)
			}
			r.complete(true, 0, 64, datasheet.StatusDone)
			if d, err := r.v.RecvDone(); d != ds[1] || err != nil {
				t.Errorf("the other queue: %v, %v", d, err)
			}
			if err := r.v.Close(contextFor(t)); err != nil {
				t.Error(err)
			}
			if err := r.sendCQ.Close(contextFor(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCQRepeatedEntry: the same completion twice.
func TestCQRepeatedEntry(t *testing.T) {
	r := newRig(t, nil, 8, 0)
	if err := r.v.PostSend(r.descriptors(t, 1)[0]); err != nil {
		t.Fatal(err)
	}
	r.completion(r.sendCQ, false, 0)
	r.completion(r.sendCQ, false, 0)
	if _, err := r.sendCQ.Done(); err != nil {
		t.Error(err)
	}
	if _, err := r.sendCQ.Done(); !errors.Is(err, driver.ErrProtocol) {
		t.Error(err)
	}
}

// TestCQNotRead: who takes descriptors back without reading the CQ can go on
// posting, and cannot overrun the CQ.
func TestCQNotRead(t *testing.T) {
	r := newRig(t, nil, 3, 0)
	ds := r.descriptors(t, 4)
	for i := range uint32(20) { // wraps the CQ
		d := ds[i%3]
		d.Rearm()
		if err := r.v.PostSend(d); err != nil {
			t.Fatal(i, err)
		}
		r.completion(r.sendCQ, false, i)
		if got, err := r.v.SendDone(); got != d || err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := r.sendCQ.Done(); err != descriptors.ErrNotDone {
		t.Errorf("all descriptors have been taken back, but the CQ says: %v", err)
	}
	for _, d := range ds {
		d.Rearm()
	}
	if n, err := r.v.PostSendBatch(ds); n != 3 || err != descriptors.ErrQueueFull {
		t.Fatalf("%d posts to a queue of 3: %v", n, err)
	}
	// What is in the CQ for descriptors that were not taken back stays.
	for i := range uint32(2) {
		r.completion(r.sendCQ, false, 20+i)
	}
	if got, err := r.v.SendDone(); got != ds[0] || err != nil {
		t.Fatal(err)
	}
	if err := r.v.PostSend(ds[3]); err != nil {
		t.Error(err)
	}
	if e, err := r.sendCQ.Done(); err != nil || e.Index != 21 {
		t.Errorf("%+v, %v, want the second of two completions", e, err)
	}
	if got, err := r.v.SendDone(); got != ds[1] || err != nil {
		t.Error(err)
	}
}

// TestCQEntryMissing: a device that never writes the completion entry keeps the queue
// full, and holds nobody up.
func TestCQEntryMissing(t *testing.T) {
	r := newRig(t, nil, 3, 0)
	ds := r.descriptors(t, 3)
	if n, err := r.v.PostSendBatch(ds); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	r.complete(false, 0, 0, datasheet.StatusDone)
	if _, err := r.v.SendDone(); err != nil {
		t.Fatal(err)
	}
	ds[0].Rearm()
	if err := r.v.PostSend(ds[0]); err != descriptors.ErrQueueFull {
		t.Error(err)
	}
	r.d.with(func() {
		r.d.completion(r.sendCQ.Number(), datasheet.Completion{Endpoint: r.v.Number(), Status: uint32(datasheet.StatusDone)})
	})
	if err := r.v.PostSend(ds[0]); err != nil {
		t.Errorf("after the entry has come: %v", err)
	}
}

func TestCQTooSmall(t *testing.T) {
	r := newRig(t, nil, 10, 0)
	create := func(send, recv int, a, b *driver.CQ) (*driver.VI, error) {
		return r.n.CreateVI(contextFor(t), driver.VIAttributes{MaxTransfer: 64, SendDepth: send, RecvDepth: recv}, a, b)
	}
	// 3 of the 10 are promised to the rig's VI.
	if _, err := create(4, 4, r.sendCQ, r.sendCQ); !errors.Is(err, driver.ErrCQTooSmall) {
		t.Error(err)
	}
	if _, err := create(8, 1, r.sendCQ, nil); !errors.Is(err, driver.ErrCQTooSmall) {
		t.Error(err)
	}
	v, err := create(4, 3, r.sendCQ, r.sendCQ)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create(1, 1, nil, r.sendCQ); !errors.Is(err, driver.ErrCQTooSmall) {
		t.Error(err)
	}
	if err := v.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := create(1, 6, nil, r.sendCQ); err != nil {
		t.Errorf("after a VI has gone: %v", err)
	}
	if err := r.sendCQ.Close(contextFor(t)); !errors.Is(err, driver.ErrInUse) {
		t.Error(err)
	}
}

// TestCQForgetsDestroyedVI: entries of a VI that is destroyed do not come up
// later, those of others do.
func TestCQForgetsDestroyedVI(t *testing.T) {
	r := newRig(t, nil, 16, 0)
	first := r.v
	second, err := r.n.CreateVI(contextFor(t), first.Attributes(), r.sendCQ, r.sendCQ)
	if err != nil {
		t.Fatal(err)
	}
	ds := r.descriptors(t, 4)
	if err := errors.Join(first.PostSend(ds[0]), second.PostSend(ds[1]), first.PostSend(ds[2]), second.PostRecv(ds[3])); err != nil {
		t.Fatal(err)
	}
	r.completion(r.sendCQ, false, 0)
	r.v = second
	r.completion(r.sendCQ, false, 0)
	r.v = first
	r.completion(r.sendCQ, false, 1)
	r.v = second
	r.completion(r.sendCQ, true, 0)
	if err := first.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	// Its number is given out again.
	third, err := r.n.CreateVI(contextFor(t), first.Attributes(), r.sendCQ, nil)
	if err != nil || third.Number() != first.Number() {
		t.Fatal(third, err)
	}
	for _, receive := range []bool{false, true} {
		e, err := r.sendCQ.Done()
		if err != nil || e.VI != second || e.Receive != receive {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if _, err := r.sendCQ.Done(); err != descriptors.ErrNotDone {
		t.Error(err)
	}
	ds[0].Rearm()
	if err := third.PostSend(ds[0]); err != nil {
		t.Fatal(err)
	}
	r.v = third
	r.completion(r.sendCQ, false, 0)
	if e, err := r.sendCQ.Done(); err != nil || e.VI != third {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestCQWait(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*rig, context.CancelFunc)
		want error
	}{
		"interrupt": {func(r *rig, _ context.CancelFunc) { r.completion(r.sendCQ, false, 0) }, nil},
		"canceled":  {func(_ *rig, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"removed":   {func(r *rig, _ context.CancelFunc) { r.d.remove() }, driver.ErrDeviceGone},
		"overrun": {func(r *rig, _ context.CancelFunc) {
			r.d.with(func() { r.d.event(datasheet.Event{Code: datasheet.EventCQOverrun, CQ: r.sendCQ.Number()}) })
		}, driver.ErrCQOverrun},
		"closed": {func(r *rig, _ context.CancelFunc) { _ = r.n.Close() }, descriptors.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 8, 0)
			r.n.OnEvent(func(datasheet.Event) {})
			if err := r.v.PostSend(r.descriptors(t, 1)[0]); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(10*time.Millisecond, func() { c.end(r, cancel) })
			if _, err := r.sendCQ.Wait(ctx); !errors.Is(err, c.want) {
				t.Error(err)
			}
		})
	}
}

// TestWaitOnQueueWithCQ is not allowed: the CQ is where to wait.
func TestWaitOnQueueWithCQ(t *testing.T) {
	r := newRig(t, nil, 8, 0)
	if _, err := r.v.SendWait(contextFor(t)); !errors.Is(err, descriptors.ErrInvalidState) {
		t.Error(err)
	}
	if _, err := r.v.RecvWait(contextFor(t)); err != descriptors.ErrQueueEmpty {
		t.Error(err)
	}
}

func TestBadSizes(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	for _, entries := range []int{-1, 0, 257, 1 << 40} {
		if _, err := r.n.CreateCQ(contextFor(t), entries); !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%d entries: %v", entries, err)
		}
	}
	for _, depth := range []int{-1, 0, 65, 1 << 40} {
		a := driver.VIAttributes{MaxTransfer: 64, SendDepth: depth, RecvDepth: 1}
		if _, err := r.n.CreateVI(contextFor(t), a, nil, nil); !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("depth %d: %v", depth, err)
		}
		a.SendDepth, a.RecvDepth = 1, depth
		if _, err := r.n.CreateVI(contextFor(t), a, nil, nil); !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	for _, size := range []int{-1, 0} {
		if _, err := r.n.AllocMemory(contextFor(t), size, driver.MemoryAttributes{}); !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := r.n.ConnectWait(contextFor(t), strings.Repeat("x", 33)); !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Error(err)
	}
	if _, err := r.v.ConnectRequest(contextFor(t), driver.Address{Discriminator: strings.Repeat("x", 33)}, ""); !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Error(err)
	}
	if _, err := r.v.ConnectRequest(contextFor(t), driver.Address{}, strings.Repeat("x", 33)); !errors.Is(err, descriptors.ErrInvalidParameter) {
		t.Error(err)
	}
}

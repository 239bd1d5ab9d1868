package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// tokensOf are attributes of a VI of a rig's NIC whose tokens are eager.
func tokensOf(r *pingRig, depth int, room driver.NoRoom) driver.VIAttributes {
	return driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 4096, Ptag: r.memory.Attributes().Ptag,
		SendDepth: depth, RecvDepth: depth, EagerTokens: true, NoRoom: room}
}

// TestEagerTokenBatch: tokens that share a block are pushed by one write of it, wherever in
// the ring a batch begins, and a batch that wraps too. Only the tokens are eager here.
func TestEagerTokenBatch(t *testing.T) {
	r := newPingRigIn(t, false, driver.EagerAttributes{})
	ctx := contextFor(t)
	const depth, perBlock = 16, 4
	v := must.Get(r.nic.CreateVI(ctx, tokensOf(r, depth, driver.NoRoomFails), nil, nil))(t)
	must.Be(t, v.Attributes().EagerTokens, true, "the tokens are ordinary")
	at := 0
	for _, n := range []int{1, 3, 4, 5, 16, 2, 15, 16} {
		m := must.Get(r.nic.Alloc(ctx, 4096, driver.MemoryAttributes{Ptag: r.memory.Attributes().Ptag}))(t)
		batch := make([]*descriptors.Descriptor, n)
		for i := range batch {
			batch[i] = descriptor(t, m, i*descriptors.DescriptorBytes(1), 0)
		}
		blocks := map[int]bool{}
		for i := range n {
			blocks[(at+i)%depth/perBlock] = true
		}
		want := uint64(len(blocks))
		if at%depth+n > depth && at%perBlock != 0 && n > depth-perBlock {
			want++ // it begins and ends in the same block
		}
		before := r.nic.EagerCounts().Pushed
		must.Give(v.PostSendBatch(batch))(t, n)
		if got := r.nic.EagerCounts().Pushed - before; got > want || got < uint64(len(blocks)) {
			t.Errorf("%d tokens from number %d on: %d blocks pushed, want %d", n, at, got, want)
		}
		// It is not connected: they come back, flushed.
		for range n {
			if d, err := v.SendWait(ctx); d == nil {
				t.Fatal(err)
			}
		}
		at += n
	}
	should.Be(t, counter(t, r.nic, datasheet.CounterEagerReads), 0, "tokens were read from host memory")
	should.Be(t, counter(t, r.nic, datasheet.CounterEagerBlocks), uint64(at), "tokens were taken from the device, %d were posted", at)
	pushed := r.nic.EagerCounts().Pushed
	must.OK(t, v.Close(ctx))
	should.Be(t, r.nic.EagerCounts().Pushed, pushed, "blocks were pushed, once the VI was destroyed")
}

// TestEagerTokensNoRoom: who asks for more than the device has memory for gets what it said.
func TestEagerTokensNoRoom(t *testing.T) {
	r := newPingRigIn(t, false, driver.EagerAttributes{})
	ctx := contextFor(t)
	free, _ := must.Two(r.nic.FreeSRAM())(t)
	m := must.Get(r.nic.Alloc(ctx, int(free)-int(free)/16, driver.MemoryAttributes{Ptag: r.memory.Attributes().Ptag, Eager: written}))(t)
	depth := r.nic.Identity().MaxQueueDepth
	should.Refuse(r.nic.CreateVI(ctx, tokensOf(r, depth, driver.NoRoomFails), nil, nil))(t, descriptors.ErrResource, "no room")
	before := r.nic.EagerCounts().FellBack
	v, err := r.nic.CreateVI(ctx, tokensOf(r, depth, driver.NoRoomOrdinary), nil, nil)
	if err != nil || v.Attributes().EagerTokens || r.nic.EagerCounts().FellBack != before+1 {
		t.Fatalf("no room, ordinary: %v, %+v", err, r.nic.EagerCounts())
	}
	should.OK(t, v.SetAttributes(ctx, v.Attributes()))
	got := make(chan error, 1)
	go func() {
		v, err := r.nic.CreateVI(ctx, tokensOf(r, depth, driver.NoRoomWaits), nil, nil)
		switch {
		case err != nil:
		case !v.Attributes().EagerTokens:
			err = errors.New("the tokens are ordinary")
		default:
			a := v.Attributes()
			a.EagerTokens, a.MaxTransfer = false, 1000
			if err = v.SetAttributes(ctx, a); err == nil && !v.Attributes().EagerTokens {
				err = errors.New("SetAttributes has changed it")
			}
			err = errors.Join(err, v.Close(ctx))
		}
		got <- err
	}()
	should.OK(t, errors.Join(m.Close(ctx), <-got))
	if now, _, err := r.nic.FreeSRAM(); err != nil || now != free {
		t.Errorf("%d bytes are free at last, %d were; %v", now, free, err)
	}
	for name, change := range map[string]func(*driver.VIAttributes){
		"frames": func(a *driver.VIAttributes) {
			a.Frames, a.Reliability, a.MaxTransfer = driver.StationFrames, datasheet.Unreliable, 1500
		},
		"no such way": func(a *driver.VIAttributes) { a.NoRoom = driver.NoRoomWaits + 1 },
	} {
		a := tokensOf(r, 8, driver.NoRoomFails)
		change(&a)
		should.Refuse(r.nic.CreateVI(ctx, a, nil, nil))(t, descriptors.ErrInvalidParameter, "%s", name)
	}
}

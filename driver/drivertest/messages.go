package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

func testIdentity(t *testing.T, a, b *driver.NIC) {
	for _, n := range []*driver.NIC{a, b} {
		id := n.Identity()
		if id.MaxEndpoints < 2 || id.MaxQueueDepth < 16 || id.MaxTransfer < 32<<10 || id.MTU < descriptors.MinMTU || len(id.Blocks) < 3 {
			t.Errorf("identity %+v", id)
		}
		h, err := n.Health(Context(t))
		if err != nil || !h.Ready || h.Fatal || h.Resets == 0 {
			t.Errorf("health %+v, %v", h, err)
		}
		first, err := n.Clock()
		if err != nil {
			t.Error(err)
		}
		if second, err := n.Clock(); err != nil || second < first {
			t.Errorf("clock %v, then %v, %v", first, second, err)
		}
		counters, err := n.Counters()
		if _, ok := counters[descriptors.CounterMessagesSent.String()]; !ok || err != nil {
			t.Errorf("counters %v, %v", counters, err)
		}
	}
	if a.Identity().MAC == b.Identity().MAC {
		t.Error("both have the same address")
	}
}

func testMessages(t *testing.T, a, b *driver.NIC) {
	for _, level := range []descriptors.Reliability{descriptors.Unreliable, descriptors.ReliableDelivery, descriptors.ReliableReception} {
		if missing(a, level) {
			continue
		}
		t.Run(level.String(), func(t *testing.T) {
			x, y := connected(t, a, b, layout{reliability: level, room: 64 << 10, slots: 4})
			mtu := a.Identity().MTU
			random := rand.New(rand.NewPCG(1, uint64(level)))
			for _, size := range []int{0, 1, 63, 64, 65, mtu - descriptors.HeaderSize, mtu - descriptors.HeaderSize + 1, 3*mtu + 7, 64 << 10} {
				message := make([]byte, size)
				for i := range message {
					message[i] = byte(random.Uint32())
				}
				transfer(t, x, y, message)
				transfer(t, y, x, message)
			}
			scatterGather(t, x, y)
			immediate(t, x, y)
		})
	}
}

// missing reports whether the NIC does not have a reliability level.
func missing(n *driver.NIC, level descriptors.Reliability) bool {
	need := map[descriptors.Reliability]uint64{
		descriptors.ReliableDelivery:  descriptors.FeatureReliableDelivery,
		descriptors.ReliableReception: descriptors.FeatureReliableReception,
	}[level]
	return n.Identity().Features&need != need
}

func scatterGather(t *testing.T, x, y *end) {
	t.Helper()
	for i := range 1000 {
		x.buffer(0)[i] = byte(i * 7)
	}
	clear(y.buffer(0))
	send, recv := x.descriptor(t, 0, 1, 0, 499, 500), y.descriptor(t, 0, 700, 3, 0, 297)
	if err := errors.Join(y.v.PostRecv(recv), x.v.PostSend(send)); err != nil {
		t.Fatal(err)
	}
	takeSend(t, x, send)
	takeRecv(t, y, recv)
	if !bytes.Equal(x.buffer(0)[:1000], y.buffer(0)[:1000]) {
		t.Error("segments were put together wrongly")
	}
}

func immediate(t *testing.T, x, y *end) {
	t.Helper()
	send, recv := x.descriptor(t, 0), y.descriptor(t, 0, 10)
	send.SetImmediate(0xfeedbeef)
	if err := errors.Join(y.v.PostRecv(recv), x.v.PostSend(send)); err != nil {
		t.Fatal(err)
	}
	takeSend(t, x, send)
	takeRecv(t, y, recv)
	if v, ok := recv.Immediate(); v != 0xfeedbeef || !ok || recv.Length() != 0 {
		t.Errorf("immediate data %#x, %v, with %d bytes", v, ok, recv.Length())
	}
}

func testLargeMessage(t *testing.T, a, b *driver.NIC) {
	size := int(min(a.Identity().MaxTransfer, b.Identity().MaxTransfer))
	x, y := connected(t, a, b, layout{maxTransfer: uint32(size), room: size, slots: 1})
	message := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(message); err != nil {
		t.Fatal(err)
	}
	transfer(t, x, y, message)
}

func testBatches(t *testing.T, a, b *driver.NIC) {
	x, y := connected(t, a, b, layout{depth: 5, slots: 6})
	for round := range 7 { // the rings of 8 wrap
		var send, recv []*descriptors.Descriptor
		for i := range 6 {
			copy(x.buffer(i), fmt.Sprintf("message %d of round %d", i, round))
			send, recv = append(send, x.descriptor(t, i, 64)), append(recv, y.descriptor(t, i, 64))
		}
		if n, err := y.v.PostRecvBatch(recv); n != 5 || err != driver.ErrQueueFull {
			t.Fatal(n, err)
		}
		if n, err := x.v.PostSendBatch(send); n != 5 || err != driver.ErrQueueFull {
			t.Fatal(n, err)
		}
		if err := x.v.PostSend(send[5]); err != driver.ErrQueueFull {
			t.Fatal(err)
		}
		for i := range 5 {
			takeSend(t, x, send[i])
			takeRecv(t, y, recv[i])
			if want := fmt.Sprintf("message %d of round %d", i, round); string(y.buffer(i)[:len(want)]) != want {
				t.Errorf("%q, want %q", y.buffer(i)[:len(want)], want)
			}
		}
		if _, err := x.v.SendDone(); err != driver.ErrQueueEmpty {
			t.Error(err)
		}
	}
}

func testCompletionQueue(t *testing.T, a, b *driver.NIC) {
	x, y := connected(t, a, b, layout{depth: 4, slots: 4, sendCQ: 4, recvCQ: 8})
	for i := range uint32(25) { // wraps both
		slot := int(i % 4)
		send, recv := x.descriptor(t, slot, 8), y.descriptor(t, slot, 8)
		if err := errors.Join(y.v.PostRecv(recv), x.v.PostSend(send)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			e    *end
			cq   *driver.CQ
			flag uint32
			d    *descriptors.Descriptor
			done func() (*descriptors.Descriptor, error)
		}{
			{x, x.sendCQ, 0, send, x.v.SendDone},
			{y, y.recvCQ, descriptors.CompletionReceive, recv, y.v.RecvDone},
		} {
			got, err := c.cq.Wait(Context(t))
			if err != nil || got.Endpoint != c.e.v.Number() || got.Index != i || got.Flags&descriptors.CompletionReceive != c.flag {
				t.Fatalf("%d: %+v, %v", i, got, err)
			}
			if d, err := c.done(); d != c.d || err != nil {
				t.Fatal(i, d, err)
			}
			if _, err := c.cq.Done(); err != driver.ErrNotDone {
				t.Fatal(i, err)
			}
		}
	}
	if _, err := x.v.SendWait(Context(t)); !errors.Is(err, driver.ErrInvalidState) {
		t.Errorf("a wait past the completion queue: %v", err)
	}
}

// testSharedCompletionQueue: several VIs, send and receive, complete in one CQ.
func testSharedCompletionQueue(t *testing.T, a, b *driver.NIC) {
	const count = 3
	cq, err := b.CreateCQ(Context(t), 2*4*count)
	if err != nil {
		t.Fatal(err)
	}
	byNumber := map[uint32]int{}
	var xs, ys []*end
	for i := range count {
		x, y := newEnd(t, a, layout{depth: 4}), newEnd(t, b, layout{depth: 4})
		if err := y.v.Destroy(Context(t)); err != nil {
			t.Fatal(err)
		}
		if y.v, err = b.CreateVI(Context(t), y.v.Attributes(), cq, cq); err != nil {
			t.Fatal(err)
		}
		connect(t, x, y)
		byNumber[y.v.Number()] = i
		xs, ys = append(xs, x), append(ys, y)
	}
	if _, err := b.CreateVI(Context(t), ys[0].v.Attributes(), cq, nil); !errors.Is(err, driver.ErrCQTooSmall) {
		t.Errorf("one VI too many: %v", err)
	}
	for i := range count {
		if err := errors.Join(ys[i].v.PostRecv(ys[i].descriptor(t, 0, 8)), xs[i].v.PostRecv(xs[i].descriptor(t, 0, 8))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(ys[i].v.PostSend(ys[i].descriptor(t, 1, 8)), xs[i].v.PostSend(xs[i].descriptor(t, 1, 8))); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[[2]uint32]bool{}
	for range 2 * count {
		e, err := cq.Wait(Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := byNumber[e.Endpoint]; !ok {
			t.Errorf("completion of VI %d", e.Endpoint)
		}
		seen[[2]uint32{e.Endpoint, e.Flags & descriptors.CompletionReceive}] = true
	}
	if len(seen) != 2*count {
		t.Errorf("completions of %d queues, want %d", len(seen), 2*count)
	}
}

package afxdp_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp"
)

// queuesOf is how many queues an end of a veth pair sends by and receives by.
type queuesOf struct{ send, receive int }

// unevenPair makes two interfaces with a wire between them, and queues as they are asked.
func unevenPair(t testing.TB, left, right queuesOf) (string, string) {
	t.Helper()
	if noNamespace != "" {
		t.Skip("it needs " + noNamespace)
	}
	n := names.Add(1)
	a, b := fmt.Sprintf("left%d", n), fmt.Sprintf("right%d", n)
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.NumTxQueues, attributes.NumRxQueues = a, left.send, left.receive
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: b, PeerNumTxQueues: uint32(right.send), PeerNumRxQueues: uint32(right.receive)}
	must.OK(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	up(t, a)
	up(t, b)
	return a, b
}

// opening opens a port, and returns what it has logged.
func opening(t testing.TB, address string, c ethernet.Options) (ethernet.Port, string) {
	t.Helper()
	var said bytes.Buffer
	c.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p := open(t, address, c)
	return p, said.String()
}

// TestDeafQueues: the queues that get nothing of what the peer sends by any of its queues
// are those, and only those, that a port warns of.
func TestDeafQueues(t *testing.T) {
	leaktest.Parallel(t)
	for _, tt := range []struct {
		options     string
		left, right queuesOf // frames go to the right
	}{
		{"?mode=native", queuesOf{4, 4}, queuesOf{4, 4}},
		{"?mode=generic", queuesOf{4, 4}, queuesOf{4, 4}},
		{"?mode=native", queuesOf{2, 4}, queuesOf{4, 4}},
		{"?mode=generic", queuesOf{2, 4}, queuesOf{4, 4}},
		{"?mode=generic", queuesOf{1, 4}, queuesOf{4, 4}},
		{"", queuesOf{4, 4}, queuesOf{3, 3}}, // the driver refuses it
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			leaktest.Check(t)
			a, b := unevenPair(t, tt.left, tt.right)
			c := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), ReceiveDescriptors: 64, Queues: tt.left.send}
			left, _ := opening(t, "afxdp:"+a, c)
			c.Queues = tt.right.receive
			right, said := opening(t, "afxdp:"+b+tt.options, c)
			got := make([]int, c.Queues)
			for i := range tt.left.send {
				must.Be(t, porttest.Send(t, left.Queue(i), i, 1), 1, "not")
				frames := make([]ethernet.Frame, 1)
				waittest.Until(t, "a frame", func() bool {
					for q := range got {
						n := must.Get(right.Queue(q).Receive(frames))(t)
						right.Queue(q).Cache().Free(frames[:n])
						if n > 0 {
							got[q]++
							return true
						}
					}
					_, err := left.Queue(i).Unsent()
					return err != nil
				})
			}
			for q, n := range got {
				warned := strings.Contains(said, fmt.Sprintf("queue %d receives nothing", q))
				should.Hold(t, warned == (n == 0), "queue %d has got %d frames; it said: %s", q, n, said)
			}
		})
	}
}

// TestOneWayQueues: queues that have only one direction are refused, with their number.
func TestOneWayQueues(t *testing.T) {
	leaktest.Parallel(t)
	for _, queues := range []queuesOf{{1, 4}, {4, 1}} {
		a, _ := unevenPair(t, queues, queuesOf{1, 4})
		_, err := ethernet.Open(t.Context(), "afxdp:"+a, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Queues: 2, Logger: quiet})
		want := fmt.Sprintf("number 1 is wanted, the interface has 1 (%d to receive, %d to send)", queues.receive, queues.send)
		if !errors.Is(err, ethernet.ErrNotSupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ethtool -L "+a) {
			t.Errorf("%+v: %v", queues, err)
		}
	}
}

// TestFewReceiveQueues: the driver wants as many as its peer has to send by, and the error
// says so.
func TestFewReceiveQueues(t *testing.T) {
	leaktest.Parallel(t)
	a, _ := unevenPair(t, queuesOf{1, 1}, queuesOf{4, 1})
	_, err := ethernet.Open(t.Context(), "afxdp:"+a+"?mode=native", ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Logger: quiet})
	should.Hold(t, errors.Is(err, ethernet.ErrNotSupported) && strings.Contains(err.Error(), "ethtool -L "+a+" rx N"), "%v", err)
}

// TestMissingSums: who takes frames for all stations learns that they lack checksums, and
// what helps, until that is done.
func TestMissingSums(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	c := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Promiscuous: true}
	help := "ethtool -K " + b + " tx off"
	p, said := opening(t, "afxdp:"+a, c)
	should.Contain(t, said, help)
	must.OK(t, errors.Join(p.Close(), afxdp.LeaveSums(b, false)))
	_, said = opening(t, "afxdp:"+a, c)
	should.Hold(t, said == "", "without a reason it said: %s", said)
}

// TestOtherQueues: who takes frames for all stations learns of queues whose frames do not
// come.
func TestOtherQueues(t *testing.T) {
	leaktest.Parallel(t)
	a, _ := pair(t, 4)
	c := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Promiscuous: true, ReceiveDescriptors: 64, Queues: 3}
	p, said := opening(t, "afxdp:"+a, c)
	should.Hold(t, strings.Contains(said, "by 1 other queues") && strings.Contains(said, "open 4 queues"), "it said: %s", said)
	must.OK(t, p.Close())
	c.Queues = 4
	_, said = opening(t, "afxdp:"+a, c)
	should.Hold(t, !strings.Contains(said, "other queues"), "it said: %s", said)
}

// TestLateBuffers: a queue for which the pool had too few buffers says so, and gets them
// when there are some.
func TestLateBuffers(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 160})
	held := make([]ethernet.Frame, 150)
	cache := pool.NewCache()
	defer cache.Close()
	must.Be(t, cache.Alloc(held), len(held), "no buffers")
	p, said := opening(t, "afxdp:"+a, ethernet.Options{Pool: pool, ReceiveDescriptors: 64})
	should.Contain(t, said, "queue 0 begins with 10 of 64 buffers")
	cache.Free(held)
	q, frames := p.Queue(0), make([]ethernet.Frame, 64)
	must.Give(q.Receive(frames))(t, 0)
	sender := open(t, "afxdp:"+b, ethernet.Options{ReceiveDescriptors: 64})
	must.Be(t, porttest.Send(t, sender.Queue(0), 0, 60), 60) // more than 10
	waittest.Until(t, "all are sent", func() bool { n, err := sender.Queue(0).Unsent(); return n == 0 && err == nil })
	got := 0
	waittest.Until(t, "all frames", func() bool {
		n := must.Get(q.Receive(frames))(t)
		q.Cache().Free(frames[:n])
		got += n
		return got == 60
	})
}

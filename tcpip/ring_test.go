package tcpip_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/tcpip"
	"github.com/trapeze-nic/trapeze/via"
)

// ringPair is two stacks over a ring between two NICs.
func ringPair(t testing.TB) (a, b *tcpip.Stack) {
	t.Helper()
	x, y, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var nics []*via.NIC
	for _, d := range []*emulator.Device{x, y} {
		n := must.Get(via.OpenDevice(t.Context(), d, via.Options{}))(t)
		t.Cleanup(func() { _ = n.Close() })
		nics = append(nics, n)
	}
	o := ring.Options{Entries: 256, Reliability: via.ReliableDelivery}
	l, err := ring.Listen(nics[1], "ip", o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var far *ring.Ring
	var accepted sync.WaitGroup
	accepted.Go(func() { far, err = l.Accept(t.Context()) })
	near, e := ring.Dial(t.Context(), nics[0], l.Address().String(), o)
	accepted.Wait()
	if e != nil || err != nil {
		t.Fatal(e, err)
	}
	for i, r := range []*ring.Ring{near, far} {
		s := must.Get(tcpip.OnRing(t.Context(), nics[i], r, own(i+1)))(t)
		t.Cleanup(func() {
			should.OK(t, s.Close())
		})
		if a == nil {
			a = s
		} else {
			b = s
		}
	}
	return a, b
}

// TestOverRing: TCP over a Trapeze ring, with packets of 8320 bytes whose headers are in the message and whose payload is in a page.
func TestOverRing(t *testing.T) {
	a, b := ringPair(t)
	l := echoing(t, b, ":7")
	defer l.Close()
	for _, host := range []string{"10.0.0.2", "[fd00::2]"} {
		c := must.Get(a.DialContext(within(t, 20*time.Second), "tcp", host+":7"))(t)
		sent, got := bytes.Repeat([]byte("over the ring "), 200_000), make([]byte, 14*200_000)
		go func() { _, _ = c.Write(sent) }()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%s: %v", host, err)
		}
		_ = c.Close()
	}
	if n := a.Counters().SentBytes.Load() / a.Counters().Sent.Load(); n < 2000 {
		t.Errorf("packets have %d bytes in the mean", n)
	}
	for _, size := range []int{0, 56, 8292, 20_000} {
		if _, err := a.Ping(within(t, 10*time.Second), netip.MustParseAddr("10.0.0.2"), size); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if c := b.Counters(); c.Malformed.Load()+c.NoBuffer.Load()+c.TooLong.Load() != 0 {
		t.Errorf("%d malformed, %d without a buffer, %d too long", c.Malformed.Load(), c.NoBuffer.Load(), c.TooLong.Load())
	}
}

// TestRingEnds: when the other end of a ring goes, connections end with an error, and a listener with the reason.
func TestRingEnds(t *testing.T) {
	a, b := ringPair(t)
	defer echoing(t, b, ":7").Close()
	c, err := a.DialContext(within(t, 20*time.Second), "tcp", "10.0.0.2:7")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	l := must.Get(a.Listen("tcp", ":8"))(t)
	should.OK(t, b.Close())
	if _, err := l.Accept(); !errors.Is(err, tcpip.ErrPortDead) {
		t.Errorf("accept: %v", err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("something is read")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a read waits for a ring that has ended")
	}
}

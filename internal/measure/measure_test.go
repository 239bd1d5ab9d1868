package measure_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/via"
)

const most = 8 << 10

func pair(t *testing.T, opts via.Options) (a, b *via.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	address := "emu:?wire=mem:" + rand.Text()
	o := via.ConnOptions{MaxMessage: most, SendDepth: 4, RecvDepth: 4}
	opts.OnError = func(via.AsyncError) {}
	var nics []*via.NIC
	for range 2 {
		n, err := via.Open(ctx, address, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		nics = append(nics, n)
	}
	l, err := via.Listen(nics[1], "x", via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if a, err = via.Dial(ctx, nics[0], l.Address().String(), o); err == nil {
		b, err = l.Accept(ctx)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestLatencyAndBandwidth(t *testing.T) {
	for place, opts := range map[string]via.Options{"in the NIC": {}, "at the host": via.Options{Policy: via.Policy{At: via.AtHost}}} {
		t.Run(place, func(t *testing.T) { testLatencyAndBandwidth(t, opts) })
	}
}

func testLatencyAndBandwidth(t *testing.T, opts via.Options) {
	a, b := pair(t, opts)
	for _, n := range []int{0, 1, 64, most} {
		h, err := measure.Latency(t.Context(), a, b, n, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if h.TotalCount() == 0 || h.Min() <= 0 || h.ValueAtPercentile(50) > h.Max() {
			t.Errorf("%d bytes: %d round trips, %d to %d ns", n, h.TotalCount(), h.Min(), h.Max())
		}
		bytes, d, err := measure.Bandwidth(t.Context(), a, b, n, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if d < 20*time.Millisecond || (n > 0 && (bytes == 0 || bytes%uint64(n) != 0)) {
			t.Errorf("%d bytes: %d bytes arrived in %v", n, bytes, d)
		}
	}
	// Nothing is left under way.
	if m, err := b.TryReceive(); m != nil || err != nil {
		t.Errorf("left over: %v, %v", m, err)
	}
}

func TestPeerLost(t *testing.T) {
	a, b := pair(t, via.Options{})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// The news takes a moment to arrive.
	for end := time.Now().Add(10 * time.Second); ; {
		_, err := a.TryReceive()
		if via.Ended(err) {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := measure.Latency(t.Context(), a, b, 64, time.Second); !via.Ended(err) && !errors.Is(err, via.ErrClosed) {
		t.Errorf("Latency: %v", err)
	}
	if _, _, err := measure.Bandwidth(t.Context(), a, b, 64, time.Second); !via.Ended(err) && !errors.Is(err, via.ErrClosed) {
		t.Errorf("Bandwidth: %v", err)
	}
}

// TestBurst: all messages arrive, and one that cannot be sent is refused.
func TestBurst(t *testing.T) {
	a, b := pair(t, via.Options{})
	for _, count := range []int{1, 4, 0} {
		if err := measure.Burst(t.Context(), a, b, most, count); err != nil {
			t.Fatal(count, err)
		}
	}
	if err := measure.Burst(t.Context(), a, b, most+1, 1); err == nil {
		t.Error("a message larger than the buffers was sent")
	}
}

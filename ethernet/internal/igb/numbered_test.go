package igb_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestQEMUNumbered has two of QEMU's models exchange many numbered frames, none of which may
// be lost, as at most 64 are under way: a million each way in a long run.
func TestQEMUNumbered(t *testing.T) {
	count := 5_000
	if os.Getenv(soak.Variable) != "" { // not soak.Wanted: CI's step of that name has no QEMU
		count = 1_000_000
	}
	m := qemutest.Start(t, "igb,mac=02:00:00:00:00:01", "igb,mac=02:00:00:00:00:02")
	var ports [2]ethernet.Port
	for n := range ports {
		if err := m.Connect(n, m.NetAddr(1-n)); err != nil {
			t.Fatal(err)
		}
		d, err := m.Open(contextFor(t), n)
		if err != nil {
			t.Fatal(err)
		}
		if ports[n], err = ethernet.New(contextFor(t), d, config(t, ethernet.Options{})); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ports[n].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, p := range ports {
		if _, err := ethernet.WaitLink(contextFor(t), p); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	numbered(t, ports[0], ports[1], count)
	numbered(t, ports[1], ports[0], count)
	t.Logf("%.0f frames/s", 2*float64(count)/time.Since(began).Seconds())
	for _, p := range ports {
		c := p.Stats()
		if q := c.Queues[0]; q.SentFrames != uint64(count) || q.ReceivedFrames != uint64(count) || q.ReceiveErrors+q.BadLengths+q.Unended+q.Lost+q.Restarts != 0 {
			t.Errorf("%+v", q)
		}
		if d := c.Device; d == nil || d.SentFrames != uint64(count) || d.ReceivedFrames != uint64(count) || d.Missed != 0 {
			t.Errorf("the device counted %+v", d)
		}
	}
}

// numbered sends count numbered frames from one port to another, at most 64 at a time.
func numbered(t *testing.T, from, to ethernet.Port, count int) {
	t.Helper()
	const window, perFrame = 64, 200 * time.Microsecond
	tx, rx := from.Queue(0), to.Queue(0)
	pattern := porttest.FrameTo(to.MAC(), 1514)
	length := func(n int) int { return 60 + n*389%1455 }
	frames := make([]ethernet.Frame, 32)
	sent, received := 0, 0
	for end := time.Now().Add(timeout + time.Duration(count)*perFrame); received < count; {
		if time.Now().After(end) {
			t.Fatalf("%d frames were sent, %d have come", sent, received)
		}
		n := tx.Cache().Alloc(frames[:min(len(frames), count-sent, window-(sent-received))])
		for i := range n {
			frames[i].Length = uint16(length(sent + i))
			b := tx.Cache().Pool().Bytes(frames[i])
			copy(b, pattern)
			binary.BigEndian.PutUint32(b[14:], uint32(sent+i))
		}
		taken, err := tx.Send(frames[:n])
		if err != nil {
			t.Fatal(err)
		}
		tx.Cache().Free(frames[taken:n])
		sent += taken
		if n, err = rx.Receive(frames); err != nil {
			t.Fatal(err)
		}
		for _, f := range frames[:n] {
			b := rx.Cache().Pool().Bytes(f)
			if len(b) != length(received) || binary.BigEndian.Uint32(b[14:]) != uint32(received) ||
				!bytes.Equal(b[:14], pattern[:14]) || !bytes.Equal(b[18:], pattern[18:len(b)]) {
				t.Fatalf("frame %d: got % x", received, b)
			}
			received++
		}
		rx.Cache().Free(frames[:n])
		if n == 0 {
			if err := rx.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

package channel_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// TestCloseBehindAFullWire closes a channel whose last message waits for room on the wire, once there
// is some: the message that Flush has told of goes before the word of the end.
func TestCloseBehindAFullWire(t *testing.T) {
	a, b := openBoth(t, "")
	clients, servers := openPairs(t, a, b, 1, channel.Options{}, channel.Options{})
	x, y := clients[0], servers[0]
	frames := func() uint64 {
		c, err := a.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return c["frames_sent"]
	}
	sent := 0
	for left := uint64(0); frames() != left; sent++ {
		left = frames()
		if err := errors.Join(x.Send(channel.High, 0, 40), x.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	b.Poll() // takes some of them
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	taken := 0
	_, err := y.Wait(t.Context())
	for ; err == nil; taken++ {
		_, err = y.Wait(t.Context())
	}
	if taken != sent || !errors.Is(err, via.ErrDisconnected) {
		t.Errorf("%d of %d messages have come, then: %v", taken, sent, err)
	}
}

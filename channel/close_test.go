package channel_test

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/via"
)

// TestCloseBehindAFullWire closes a channel whose last message waits for room on the wire, once there
// is some: the message that Flush has told of goes before the word of the end.
func TestCloseBehindAFullWire(t *testing.T) {
	a, b := openBoth(t, "")
	clients, servers := openPairs(t, a, b, 1, channel.Options{}, channel.Options{})
	x, y := clients[0], servers[0]
	frames := func() uint64 {
		c := must.Get(a.Counters())(t)
		return c["frames_sent"]
	}
	sent := 0
	for left := uint64(0); frames() != left; sent++ {
		left = frames()
		must.OK(t, errors.Join(x.Send(channel.High, 0, 40), x.Flush(t.Context())))
	}
	b.Poll() // takes some of them
	must.OK(t, x.Close())
	taken := 0
	_, err := y.Wait(t.Context())
	for ; err == nil; taken++ {
		_, err = y.Wait(t.Context())
	}
	if taken != sent || !errors.Is(err, via.ErrDisconnected) {
		t.Errorf("%d of %d messages have come, then: %v", taken, sent, err)
	}
}

// TestKernel: the program that has channel 0 sends on any channel of the NIC, and no other program gets it.
func TestKernel(t *testing.T) {
	a, b := openBoth(t, "")
	clients, servers := openPairs(t, a, b, 3, channel.Options{}, channel.Options{})
	k := must.Get(channel.OpenKernel(contextFor(t), a, 0))(t)
	should.Refuse(channel.OpenKernel(contextFor(t), a, 8192))(t, via.ErrResource, "a second channel 0")
	should.Refuse(channel.OpenKernel(contextFor(t), a, 5000))(t, via.ErrInvalidParameter, "pages of 5000 bytes")
	at := 1000 // over the end of the double page, at some time
	for i, c := range clients {
		message := random(700+i, uint64(i))
		stop := k.Put(at, c.Number(), message)
		must.OK(t, k.Send(channel.Low, at, stop))
		m, err := servers[i].Wait(contextFor(t))
		got := make([]byte, len(message))
		if err != nil || m.Err != nil || servers[i].Read(m, got) != len(message) || !bytes.Equal(got, message) {
			t.Errorf("channel %d: %+v, %v", c.Number(), m, err)
		}
		at = stop
	}
	should.Fail(t, k.Send(channel.Low, 5, 5), via.ErrInvalidParameter, "nothing")
	should.OK(t, k.Flush(contextFor(t)))
	should.Give(k.Sent(channel.Low))(t, channel.Sent{Taken: 3, Left: 3})
	should.OK(t, k.Close())
	should.Fail(t, k.Send(channel.Low, 0, 2), net.ErrClosed, "after Close")
}

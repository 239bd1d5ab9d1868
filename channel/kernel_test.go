package channel_test

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// TestKernel: whoever has channel 0 sends on any channel of the NIC, and nobody else has it.
func TestKernel(t *testing.T) {
	a, b := openBoth(t, "")
	clients, servers := openPairs(t, a, b, 3, channel.Options{}, channel.Options{})
	k, err := channel.OpenKernel(contextFor(t), a, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.OpenKernel(contextFor(t), a, 8192); !errors.Is(err, via.ErrResource) {
		t.Errorf("a second channel 0: %v", err)
	}
	if _, err := channel.OpenKernel(contextFor(t), a, 5000); !errors.Is(err, via.ErrInvalidParameter) {
		t.Errorf("pages of 5000 bytes: %v", err)
	}
	at := 1000 // over the end of the double page, at some time
	for i, c := range clients {
		message := random(700+i, uint64(i))
		stop := k.Put(at, c.Number(), message)
		if err := k.Send(channel.Low, at, stop); err != nil {
			t.Fatal(err)
		}
		m, err := servers[i].Wait(contextFor(t))
		got := make([]byte, len(message))
		if err != nil || m.Err != nil || servers[i].Read(m, got) != len(message) || !bytes.Equal(got, message) {
			t.Errorf("channel %d: %+v, %v", c.Number(), m, err)
		}
		at = stop
	}
	if err := k.Send(channel.Low, 5, 5); !errors.Is(err, via.ErrInvalidParameter) {
		t.Errorf("nothing: %v", err)
	}
	if err := k.Flush(contextFor(t)); err != nil {
		t.Error(err)
	}
	if sent, err := k.Sent(channel.Low); err != nil || sent != (channel.Sent{Taken: 3, Left: 3}) {
		t.Errorf("%+v, %v", sent, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := k.Send(channel.Low, 0, 2); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

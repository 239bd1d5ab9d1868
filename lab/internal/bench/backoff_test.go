package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	// Make "emu:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
)

// TestBackOff: who has looked in vain for long naps, but not while a long message may be
// on its way, nor beside an engine or a wire that has a thread.
func TestBackOff(t *testing.T) {
	for _, tt := range []struct {
		address string
		bytes   int
		waited  time.Duration
		looks   int // until the next call
	}{
		{"emu:?wire=loop", 64, 0, checkEvery},
		{"emu:?wire=loop", 64, time.Second, 1},
		{"emu:?wire=loop", 1 << 40, time.Second, checkEvery}, // hours would be fine
		{"emu:?wire=loop", 1 << 20, time.Minute, 1},
		{"emu:?wire=loop&engine=thread", 64, time.Second, checkEvery},
		{"emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9", 64, time.Second, checkEvery},
	} {
		nic, err := Open(t.Context(), tt.address)
		if err != nil {
			t.Fatal(err)
		}
		for nic.Poll() { // what opening it has left to do
		}
		var since time.Time
		if tt.waited > 0 {
			since = time.Now().Add(-tt.waited)
		}
		looks, err := backOff(t.Context(), nic.NIC, tt.bytes, &since)
		if looks != tt.looks || err != nil {
			t.Errorf("%s, %d bytes, after %v: %d looks until the next call, want %d; %v", tt.address, tt.bytes, tt.waited, looks, tt.looks, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		cancel(why)
		if _, err := backOff(ctx, nic.NIC, tt.bytes, &since); !errors.Is(err, why) {
			t.Errorf("%s: %v", tt.address, err)
		}
		if err := nic.Close(); err != nil {
			t.Error(err)
		}
	}
}

package channel_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// TestChannels runs the suite that every NIC must pass; via's tests run it over all back ends.
func TestChannels(t *testing.T) {
	for _, options := range []string{"", "&doorbells=mapped&engine=thread"} {
		conform.Channels().Run(t, "emulated"+options, func(t *testing.T) (a, b *via.NIC) { return openBoth(t, options) })
	}
}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

// TestNothingIsAllocated: neither by a send, nor by a look, nor by a message that is taken.
func TestNothingIsAllocated(t *testing.T) {
	x, y := openPair(t, "", nil)
	if n := testing.AllocsPerRun(1000, func() {
		if err := x.Send(channel.High, 0, 5); err != nil {
			t.Fatal(err)
		}
		m, err := y.Poll()
		for err == channel.ErrEmpty {
			m, err = y.Poll()
		}
		if err != nil || m.Err != nil {
			t.Fatal(m, err)
		}
		if err := y.Release(m); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

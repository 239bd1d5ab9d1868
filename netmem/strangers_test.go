package netmem_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// TestStrangers: connections that never ask for a page shut no client out, and the oldest of them
// are ended.
func TestStrangers(t *testing.T) {
	const page = 4096
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: 16 * page, Strangers: 4})
	good := r.open(netmem.Options{Cache: 8 * page, ReadAhead: -1}, s)
	content := randomBytes(1, 16*page)
	r.write(good, content, 0)
	r.sync(good)
	const many = 40
	for i := range many {
		x, err := ring.Dial(t.Context(), r.near, s.Address().String(), ring.Options{Entries: 2, MaxPayload: netmem.MaxPage, Reliability: via.ReliableDelivery})
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer x.Close()
	}
	r.until("the strangers to be ended", func() bool { return s.Stats().Clients <= 1+4 })
	good.Drop()
	should.Same(t, r.read(good, len(content), 0), content, "the client that was there reads something else")
	late := r.open(netmem.Options{Cache: 8 * page, ReadAhead: -1}, s)
	should.Same(t, r.read(late, len(content), 0), content, "a late client reads something else")
	if n := s.Stats().Clients; n < 2 || n > 2+4 {
		t.Errorf("%d clients are connected", n)
	}
}

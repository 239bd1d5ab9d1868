package netmem_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestLoss: over a wire that loses a fifth of its frames, and doubles and reorders others,
// pages arrive as they are.
func TestLoss(t *testing.T) {
	const page, pages = 8192, 48
	r := newRig(t, emulator.PairOptions{Faults: wire.FaultOptions{Loss: 0.2, Duplicate: 0.05, Reorder: 0.05, Seed: 7}})
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 8 * page, Timeout: 40 * time.Second, ReadAhead: 2 * page}, s)
	model := randomBytes(3, page*pages)
	r.write(c, model, 0)
	for i := range 8 {
		b := randomBytes(uint64(i), 3000)
		r.write(c, b, int64(i*40_000))
		copy(model[i*40_000:], b)
	}
	r.sync(c)
	c.Drop()
	if got := r.read(c, len(model), 0); !bytes.Equal(got, model) {
		t.Error("other bytes than were written")
	}
	if st := c.Stats(); st.Failures != 0 {
		t.Errorf("%d connections broke", st.Failures)
	}
}

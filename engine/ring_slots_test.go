package engine_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func reliableBody(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }

// zeroes checks that nobody has written to mem.
func zeroes(t testing.TB, what string, mem []byte) {
	t.Helper()
	if i := slices.IndexFunc(mem, func(c byte) bool { return c != 0 }); i >= 0 {
		t.Fatalf("%s: byte %d of %d was written", what, i, len(mem))
	}
}

// A control program cannot choose entries of a ring's table: it has tags.
func TestRingIgnoresPrograms(t *testing.T) {
	_, a, b := ringPair(t, nil)
	b.place(3, 1000)
	p := b.n.use(&scripted{demux: func(_ []byte, number uint32) (uint32, uint32, bool) { return number, 3, true }}, engine.HookDemultiplex)
	s, _ := exchange(a, b, pattern(ringMessage, 1), pattern(1000, 1), 0, 1000)
	arrived(t, s, pattern(ringMessage, 1), 1000, 1000, 0, 0)
	if p.misled[engine.HookDemultiplex] != 1 {
		t.Errorf("misled %d times", p.misled[engine.HookDemultiplex])
	}
}

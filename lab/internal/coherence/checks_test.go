package coherence

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// TestChecks: protocols that are broken on purpose are found out, so that a Run without an
// error says something.
func TestChecks(t *testing.T) {
	s := must.Get(profile.Systems.Load("sonic-via"))(t)
	for name, c := range map[string]struct {
		breaks func(m *machine)
		want   error
	}{
		"as it should be": {func(*machine) {}, nil},
		"the NIC keeps a block that the host owns": {func(m *machine) {
			m.blocks[m.starts[Payload]+1].nic = shared
			m.write(m.bus.free, m.starts[Payload]+1)
		}, ErrOwners},
		"both own a block": {func(m *machine) {
			m.blocks[m.starts[Payload]+1].nic = modified
			m.write(m.bus.free, m.starts[Payload]+1)
		}, ErrOwners},
		"the NIC misses the last block": {func(m *machine) { m.writing = -1 }, ErrStale},
		"the NIC takes memory's copy of a block that is in the cache": {func(m *machine) {
			b := m.starts[Payload] + 1
			m.writing = -1
			m.bus.post(m.bus.free, func() phases {
				m.blocks[b].host, m.blocks[b].nic, m.blocks[b].local = shared, shared, m.blocks[b].memory
				return phases{Read, NIC, b, m.NIC.Block, 0, m.full()}
			})
		}, ErrStale},
		"an owner's block is dropped": {func(m *machine) {
			m.blocks[m.starts[Payload]+1].host = invalid
		}, ErrStale},
	} {
		o := &Options{System: s, Mechanism: EDT, Bytes: 64}
		must.OK(t, o.complete())
		m := newMachine(o, Sender)
		m.place(Payload, o.Bytes, shared, true)
		end := m.program(0, Payload, o.Words)
		c.breaks(m)
		m.finish(end)
		m.bus.drain(end)
		m.sent(Payload)
		if !errors.Is(m.err, c.want) || (m.err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, m.err, c.want)
		}
	}
}

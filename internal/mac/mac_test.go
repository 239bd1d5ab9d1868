package mac_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/mac"
)

func TestRandom(t *testing.T) {
	seen := map[mac.MAC]bool{}
	for range 1000 {
		m := mac.Random()
		if !m.IsStation() || m[0]&2 == 0 || seen[m] {
			t.Fatalf("%v is no new, locally administered address of a station", m)
		}
		seen[m] = true
	}
}

func TestKinds(t *testing.T) {
	for m, want := range map[mac.MAC]struct{ group, station bool }{
		{}: {}, {2, 0, 0, 0, 0, 1}: {station: true}, {1, 0, 0x5e}: {group: true}, {255, 255, 255, 255, 255, 255}: {group: true},
	} {
		if m.IsMulticast() != want.group || m.IsStation() != want.station {
			t.Errorf("%v: group %v, station %v", m, m.IsMulticast(), m.IsStation())
		}
	}
	should.Be(t, (mac.MAC{2, 0, 0, 0, 0xa, 0xff}).String(), "02:00:00:00:0a:ff")
}

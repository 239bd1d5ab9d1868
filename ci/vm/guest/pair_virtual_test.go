package guest

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestPairVirtual has Linux's igb on the physical function and ours on a virtual one. It
// talks to the other NIC over the hub, and to another virtual function that Linux's igbvf
// drives over the switch in the NIC.
func TestPairVirtual(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		p.onlyIGB(t)
		eventfd(t) // has the runtime open what it keeps
		checkFiles(t)
		pf := p.ours(t)
		load(t, "igb")
		bind(t, pf, "igb")
		t.Cleanup(func() { bind(t, pf, "none") })
		up(t, pf)
		write(t, "0", pciDevices, pf, "sriov_drivers_autoprobe")
		write(t, "2", pciDevices, pf, "sriov_numvfs")
		t.Cleanup(func() { write(t, "0", pciDevices, pf, "sriov_numvfs") })
		vfs := find(t, igbVFID)
		if len(vfs) != 2 {
			t.Fatalf("virtual functions %q", vfs)
		}
		talk := func(t *testing.T, l *peer) {
			port := openOurs(t, vfs[0], ethernet.Options{})
			if in, out := exchange(t, port, l, 3000); in+out > 0 {
				t.Errorf("lost %d and %d; counted %+v, %+v", in, out, port.Stats(), port.Stats().Device)
			}
			answer(t, port, nil)
			l.ping(ourIP, sequence(1472, 16))
		}
		t.Run("over the hub", func(t *testing.T) { talk(t, p.linux(t)) })
		t.Run("beside igbvf", func(t *testing.T) {
			load(t, "igbvf")
			talk(t, newPeer(t, vfs[1], "igbvf"))
		})
	})
}

package igb_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/fakeigb"
)

func TestFilters(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{})
	testFilters(t, p, func(b []byte) bool {
		arrived := d.Arrive(b)
		if frames, _ := receiveAll(t, p, 0); (len(frames) == 1) != arrived {
			t.Errorf("%d frames came", len(frames))
		}
		return arrived
	})
}

// testFilters changes the filters of a port; passes says whether a frame is received.
func testFilters(t *testing.T, p ethernet.Port, passes func(b []byte) bool) {
	other := ethernet.MAC{2, 0, 0, 0, 0, 2}
	group, group2 := ethernet.MAC{1, 0, 0x5e, 0, 0, 1}, ethernet.MAC{0x33, 0x33, 0, 0, 0, 0xfb}
	broadcast := ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	tagged := func(id byte) []byte {
		b := frame(p.MAC(), 100)
		copy(b[12:], []byte{0x81, 0, 0, id})
		return b
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, b []byte, want bool) {
		t.Helper()
		if got := passes(b); got != want {
			t.Errorf("%s: %t, want %t", what, got, want)
		}
	}
	expect("own", frame(own, 60), true)
	expect("broadcast", frame(broadcast, 60), true)
	expect("another's", frame(other, 60), false)
	expect("a group", frame(group, 60), false)
	expect("a tagged frame", tagged(9), true)

	do(p.SetMulticast([]ethernet.MAC{group, group2}))
	expect("a group", frame(group, 60), true)
	expect("another group", frame(group2, 60), true)
	do(p.SetMulticast([]ethernet.MAC{group2}))
	expect("a group that was left", frame(group, 60), false)
	do(p.SetMulticast(nil))
	expect("all groups left", frame(group2, 60), false)

	do(p.SetMAC(other))
	if p.MAC() != other {
		t.Errorf("address %v", p.MAC())
	}
	expect("the new address", frame(other, 60), true)
	expect("the old address", frame(own, 60), false)
	do(p.SetMAC(own))

	do(p.SetVLANs([]uint16{5, 9}))
	expect("VLAN 9", tagged(9), true)
	expect("VLAN 8", tagged(8), false)
	expect("no VLAN", frame(own, 60), true)
	do(p.SetPromiscuous(true))
	expect("promiscuous: VLAN 8", tagged(8), true)
	expect("promiscuous: another's", frame(other, 60), true)
	expect("promiscuous: a group", frame(group, 60), true)
	do(p.SetPromiscuous(false))
	expect("VLAN 8 again", tagged(8), false)
	expect("another's again", frame(other, 60), false)
	do(p.SetVLANs([]uint16{}))
	expect("no VLAN is let through", tagged(9), false)
	do(p.SetVLANs(nil))
	expect("all VLANs", tagged(8), true)

	for name, err := range map[string]error{
		"a group as address": p.SetMAC(group), "zero": p.SetMAC(ethernet.MAC{}),
		"a station as group": p.SetMulticast([]ethernet.MAC{other}), "a VLAN": p.SetVLANs([]uint16{4096}),
	} {
		if !errors.Is(err, ethernet.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

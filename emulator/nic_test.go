package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/emulator"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestNICDevices connects two NICs whose wires are Ethernet ports on a cable, however the
// address is written and wherever the engines run.
func TestNICDevices(t *testing.T) {
	for _, tt := range []struct {
		name, first, second string
		polls               bool // both run inline
	}{
		{"long", "emu:?wire=cable:%s", "emu:?wire=cable:%s", false},
		{"short", "eth:cable:%s", "emu:?wire=cable:%s", false},
		{"faults", "eth:cable:%s?loss=0.2", "eth:cable:%s?loss=0.2&seed=4", false},
		{"jumbo", "eth:cable:%s?mtu=9014&promiscuous=on", "eth:cable:%s?mtu=9014&promiscuous=off", false},
		{"inline", "eth:cable:%s?engine=inline", "eth:cable:%s?engine=inline", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFiles(t)
			server := openAddress(t, fmt.Sprintf(tt.first, tt.name))
			client := openAddress(t, fmt.Sprintf(tt.second, tt.name))
			if polls := server.(vfio.InProcess).Polled(); polls != tt.polls {
				t.Errorf("the server is a Poller: %v", polls)
			}
			a, b := newAdminHost(t, client), newAdminHost(t, server)
			waitLink(t, true, server, client)
			if tt.polls {
				pollWith(t, b, func() { connect(t, a, b) })
			} else {
				connect(t, a, b)
			}
			// A NIC that fails takes the link with it, and the port brings both back.
			cable.End(tt.name, 0).Fail(errors.New("a fuse has blown"), 1)
			waitLink(t, false, server)
			waitLink(t, true, server, client)
			closeDevice(t, client)
			waitLink(t, false, server)
		})
	}
}

// TestNICStation: the station is the NIC's address unless the address says another.
func TestNICStation(t *testing.T) {
	own := datasheet.MAC{2, 'c', 'a', 'b', 'l', 'A'}
	for options, want := range map[string]datasheet.MAC{"": own, "?mac=02:00:00:00:00:09": {2, 0, 0, 0, 0, 9}} {
		nics, err := emulator.Fleet(context.Background(), "eth:cable:station"+options, []string{"served"})
		if err != nil {
			t.Fatal(err)
		}
		if m := nics[0].MAC(); m != want || m != cable.End("station", 0).MAC() {
			t.Errorf("%q: station %v, the NIC has %v", options, m, cable.End("station", 0).MAC())
		}
		closeDevice(t, nics[0])
	}
}

func TestBadNICAddresses(t *testing.T) {
	checkFiles(t)
	for _, tt := range []struct{ address, says string }{
		{"emu:?wire=pci:", "pci:FUNCTION"},
		{"emu:?wire=afxdp:", "afxdp:INTERFACE"},
		{"emu:?wire=cable:", "vhost-user:PATH"},
		{"emu:?wire=cable:x&mtu=9015", "160..9014"},
		{"emu:?wire=cable:x&mtu=65344", "160..9014"},
		{"emu:?wire=cable:x&peer=127.0.0.1:9", "UDP"},
		{"emu:?wire=cable:x&ring=64", "memif"},
		{"emu:?wire=cable:x&key=k", "UDP"},
		{"emu:?wire=cable:x&mac=01:00:00:00:00:01", "station"},
		{"emu:?wire=cable:x&promiscuous=perhaps", "on or off"},
		{"emu:?promiscuous=on", "only a NIC as wire has it, as in wire=pci:FUNCTION"},
		{"eth:", "eth:eth0"},
		{"eth:?mtu=1514", "eth:eth0"},
		{"eth:mem:x", "is no NIC"},
		{"eth:cable:x%", "escape"},
		{"eth:udp://127.0.0.1:9", "is no NIC"},
		{"eth:pigeon:x", "is no NIC"},
		{"eth:cable:x?wire=loop", "option wire"},
		{"eth:cable:x?colour=green", "unknown option"},
		{"eth:cable:x?ring=64", "memif"},
	} {
		d, err := vfio.Open(context.Background(), tt.address)
		if d != nil || !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, error %v, want one that says %q", tt.address, d, err, tt.says)
		}
		a, err := vfio.ParseAddress(tt.address)
		if err = errors.Join(err, emulator.CheckAddress(a)); !errors.Is(err, vfio.ErrBadAddress) {
			t.Errorf("%s: checked: %v", tt.address, err)
		}
	}
	// The address is good, the place is not.
	nobody := filepath.Join(t.TempDir(), "s")
	first := openAddress(t, "eth:cable:taken")
	second := openAddress(t, "eth:cable:taken")
	for address, says := range map[string]string{
		"eth:cable:taken":                                  "in use",
		"eth:vhost-user:" + nobody:                         nobody,
		"emu:?wire=vhost-user:relative":                    "whole path",
		"emu:?wire=vhost-user:" + nobody + "%3Fring=round": "ring=packed or ring=split",
		"eth:vhost-user:" + nobody + "%3Fring=round":       "ring=packed or ring=split",
		"eth:no-such-interface":                            "give the name of an interface",
		"eth:pci:ffff:ff:1f.7":                             "vfio/kernel", // no machine has it
	} {
		d, err := vfio.Open(context.Background(), address)
		var e *vfio.Error
		if d != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), says) || e.Device != address {
			t.Errorf("%s: %v, want one that says %q", address, err, says)
		}
	}
	closeDevice(t, first)
	closeDevice(t, second)
}

// TestNICFleet: a NIC is one end of a wire, for one NIC behind a socket.
func TestNICFleet(t *testing.T) {
	for _, address := range []string{"eth:cable:fleet", "emu:?wire=cable:fleet"} {
		if d, err := emulator.Fleet(context.Background(), address, []string{"a", "b"}); d != nil || !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "a NIC as wire takes one NIC") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

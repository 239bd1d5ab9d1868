package emulator_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestDevices connects two NICs that their addresses describe, over each kind of wire between
// devices, in either order, with engines inline and on threads.
func TestDevices(t *testing.T) {
	shm, memif := "wire=shm:"+filepath.Join(t.TempDir(), "wire"), "wire=memif:"+memifSocket(t)
	abstract := fmt.Sprintf("@trapeze-emulator-%d", os.Getpid())
	free := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	where, key := free.LocalAddr().String(), "&key="+keyFile(t, "5a")
	must.OK(t, free.Close())
	for _, tt := range []struct {
		name, first, second string
		polls               bool // both run inline
	}{
		{"shm", "emu:?" + shm, "emu:?" + shm, true},
		{"shm, abstract, listen and connect", "emu:?role=connect&wire=shm:" + abstract, "emu:?role=listen&wire=shm:" + abstract, true},
		{"shm, shared", "emu:?share=on&" + shm, "emu:?share=on&" + shm, true},
		{"shm, shared for writing", "emu:?share=write&" + shm, "emu:?share=write&" + shm, true},
		{"shm, MTUs", "emu:?mtu=65344&" + shm, "emu:?mtu=1500&" + shm, true},
		{"shm, threads", "emu:?engine=thread&" + shm, "emu:?engine=thread&role=auto&" + shm, false},
		{"shm, faults", "emu:?engine=thread&loss=0.2&" + shm, "emu:?engine=thread&loss=0.2&seed=4&" + shm, false},
		{"memif", "emu:?role=server&" + memif, "emu:?role=client&" + memif, false},
		{"memif, abstract, polling", "emu:?role=server&mode=poll&wire=memif:" + abstract, "emu:?role=client&mode=poll&wire=memif:" + abstract, true},
		{"memif, queues, secret, id", "emu:?role=server&id=3&secret=x&" + memif, "emu:?role=client&id=3&secret=x&queues=4&" + memif, false},
		{"memif, chains", "emu:?role=server&mtu=8256&" + memif, "emu:?role=client&mtu=8256&buffer=1024&ring=64&" + memif, false},
		{"memif, threads that poll", "emu:?role=server&mode=poll&engine=thread&" + memif, "emu:?role=client&mode=poll&engine=thread&" + memif, false},
		{"memif, faults", "emu:?role=server&loss=0.2&" + memif, "emu:?role=client&loss=0.2&seed=4&" + memif, false},
		{"NIC", "emu:?wire=cable:long", "emu:?wire=cable:long", false},
		{"NIC, short address", "eth:cable:short", "emu:?wire=cable:short", false},
		{"NIC, faults", "eth:cable:faults?loss=0.2", "eth:cable:faults?loss=0.2&seed=4", false},
		{"NIC, jumbo", "eth:cable:jumbo?mtu=9014&promiscuous=on", "eth:cable:jumbo?mtu=9014&promiscuous=off", false},
		{"NIC, inline", "eth:cable:inline?engine=inline", "eth:cable:inline?engine=inline", true},
		{"UDP, faults", "emu:?wire=udp://" + where, "emu:?wire=udp://127.0.0.1:0&loss=0.2&seed=4&peer=" + where, false},
		{"UDP, key and faults", "emu:?wire=udp://" + where + "&corrupt=0.1" + key,
			"emu:?wire=udp://127.0.0.1:0&loss=0.2&duplicate=0.1&seed=4&peer=" + where + key, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFiles(t)
			first, second := openAddress(t, tt.first), openAddress(t, tt.second)
			should.Be(t, first.(vfio.InProcess).Polled(), tt.polls, "it is a Poller")
			a, b := newAdminHost(t, second), newAdminHost(t, first)
			waitLink(t, true, first, second)
			if tt.polls { // only polls step the other end
				pollWith(t, b, func() { connect(t, a, b) })
			} else {
				connect(t, a, b)
			}
			if _, name, nic := strings.Cut(tt.first, "cable:"); nic {
				// A NIC that fails takes the link with it, and the port brings both back.
				name, _, _ = strings.Cut(name, "?")
				cable.End(name, 0).Fail(errors.New("a fuse has blown"), 1)
				waitLink(t, false, first)
				waitLink(t, true, first, second)
			}
			closeDevice(t, second)
			if !strings.Contains(tt.first, "udp:") {
				waitLink(t, false, first)
			}
			closeDevice(t, first)
			should.Be(t, sharedMappings(t), 0, "mappings are left")
		})
	}
}

// TestBadPlaces: the address is good, the place is not.
func TestBadPlaces(t *testing.T) {
	checkFiles(t)
	taken := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer taken.Close()
	nobody := filepath.Join(t.TempDir(), "s")
	first, second := openAddress(t, "eth:cable:taken"), openAddress(t, "eth:cable:taken")
	for address, says := range map[string]string{
		"emu:?role=listen&wire=shm:/no/such/folder/wire": "folder",
		"emu:?role=server&wire=memif:/no/such/folder/s":  "folder",
		"emu:?wire=udp://" + taken.LocalAddr().String():  "in use",
		"eth:cable:taken":                                  "in use",
		"eth:vhost-user:" + nobody:                         nobody,
		"emu:?wire=vhost-user:relative":                    "whole path",
		"emu:?wire=vhost-user:" + nobody + "%3Fring=round": "packed or split",
		"eth:vhost-user:" + nobody + "%3Fring=round":       "packed or split",
		"eth:no-such-interface":                            "give the name of an interface",
		"eth:pci:ffff:ff:1f.7":                             "vfio/kernel", // no machine has it
	} {
		d, err := vfio.Open(t.Context(), address)
		var e *vfio.Error
		if d != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), says) || e.Device != address ||
			strings.HasPrefix(address, "emu:?role") && errors.Is(err, vfio.ErrBadAddress) {
			t.Errorf("%s: %v, want one that says %q", address, err, says)
		}
	}
	closeDevice(t, first)
	closeDevice(t, second)
}

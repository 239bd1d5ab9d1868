package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func openAddress(t *testing.T, address string) vfio.Device {
	t.Helper()
	d := must.Get(vfio.Open(context.Background(), address))(t)
	t.Cleanup(func() { closeDevice(t, d) })
	return d
}

func TestOpen(t *testing.T) {
	tests := []struct {
		address string
		poller  bool
		mapped  bool
		mtu     uint32
		mac     uint32 // low half, 0: any
	}{
		{"emu:", true, false, 8192 + 128 + 64, 0},
		{"emu:?wire=loop", true, false, 8192 + 128 + 64, 0},
		{"emu:?mtu=1500&mac=02:00:00:00:00:2a", true, false, 1500, 2},
		{"emu:?doorbells=trapped", true, false, 8192 + 128 + 64, 0},
		{"emu:?doorbells=mapped", true, true, 8192 + 128 + 64, 0},
		{"emu:?engine=thread", false, false, 8192 + 128 + 64, 0},
		{"emu:?engine=thread&doorbells=mapped", false, true, 8192 + 128 + 64, 0},
		{"emu:?wire=mem:alone&mtu=65344", true, false, 65344, 0},
		{"emu:?wire=udp://127.0.0.1:0", false, false, 1464, 0},
		{"emu:?wire=udp://127.0.0.1:0&key=" + keyFile(t, "00"), false, false, 1432, 0},
		{"emu:?wire=udp://127.0.0.1:0&engine=inline&mtu=9000", true, false, 9000, 0},
		{"emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9,127.0.0.1:10", false, false, 1464, 0},
		{"emu:?loss=0.2&duplicate=0.1&reorder=1&corrupt=1e-3&seed=18446744073709551615", true, false, 8192 + 128 + 64, 0},
		{"emu:?loss=0", true, false, 8192 + 128 + 64, 0},
		{"emu:?burst=513&rate=64G&delay=10ms&bus=1M&setup=100us", true, false, 8192 + 128 + 64, 0},
		{"emu:?burst=8320&loss=0.1", true, false, 8192 + 128 + 64, 0},
		{"emu:?wire=mem:alone&mtu=65344&burst=65280", true, false, 65344, 0},
		{"emu:?wire=udp://127.0.0.1:0&rate=1M&loss=0.1", false, false, 1464, 0},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) {
			checkFiles(t)
			d := openAddress(t, tt.address)
			powerUp(t, d)
			should.Be(t, d.Info().Address, tt.address, "address")
			should.Be(t, d.(vfio.InProcess).Polled(), tt.poller, "polled")
			if info, err := d.Region(vfio.RegionBAR2); err != nil || (info.Flags&vfio.RegionMmap != 0) != tt.mapped {
				t.Errorf("doorbells: %+v, %v", info, err)
			}
			should.Be(t, read32(t, d, datasheet.RegMTU), tt.mtu, "MTU")
			if mac := read32(t, d, datasheet.RegMACLow); tt.mac != 0 && mac != tt.mac {
				t.Errorf("MAC %#x", mac)
			}
		})
	}
}

// TestLimitsOfAddress opens devices that have as much as their addresses say, and
// as much of the rest as others.
func TestLimitsOfAddress(t *testing.T) {
	usual := engine.DefaultLimits()
	for _, tt := range []struct {
		address                 string
		endpoints, cqs, regions uint32
	}{
		{"emu:", usual.Endpoints, usual.CQs, usual.Regions},
		{"emu:?vis=4096", 4097, usual.CQs, usual.Regions},
		{"emu:?vis=16383&cqs=16384&regions=1048576", 16384, 16384, 1 << 20},
		{"emu:?vis=1&cqs=1&regions=1", 2, 1, 1},
	} {
		t.Run(tt.address, func(t *testing.T) {
			checkFiles(t)
			d := openAddress(t, tt.address)
			powerUp(t, d)
			for reg, want := range map[uint64]uint32{datasheet.RegMaxEndpoints: tt.endpoints,
				datasheet.RegMaxCQs: tt.cqs, datasheet.RegMaxRegions: tt.regions} {
				should.Be(t, read32(t, d, reg), want, "register %#x", reg)
			}
			info, err := d.Region(vfio.RegionBAR2)
			if pages := uint64(tt.endpoints) + uint64(tt.cqs); err != nil || info.Size < pages*datasheet.PageSize {
				t.Errorf("%d pages of doorbells in %#x bytes: %v", pages, info.Size, err)
			}
		})
	}
}

func TestGoodAddressIsNotOpened(t *testing.T) {
	checkFiles(t)
	a := must.Get(vfio.ParseAddress("emu:?wire=udp://256.0.0.1:1&loss=0.1"))(t)
	should.OK(t, emulator.CheckAddress(a))
}

func TestBadAddresses(t *testing.T) {
	checkFiles(t)
	tests := []struct{ address, says string }{
		{"emu:nic0", "nic0"},
		{"emu:?wrie=loop", `unknown option "wrie" (did you mean wire?)`},
		{"emu:?wire=mem:x&rolle=auto", "with a memory wire, emu: has the options wire, engine, core,"},
		{"emu:?wire=shm:/tmp/x&rolle=auto", "did you mean role?"},
		{"emu:?wire=mem:x&colour=green", ", rate, delay, setup, bus, duplex, buffers, sram, vis, cqs, regions, burst)"},
		{"eth:eth0?colour=green", "with a NIC as wire, eth: has the options engine, core, doorbells, mtu, mac, loss, duplicate, reorder, corrupt, seed, rate, delay, setup, bus, duplex, buffers, sram, vis, cqs, regions, promiscuous;"},
		{"agent:?colour=green", "with a NIC of the agent, agent: has the options engine, "},
		{"emu:?interface=1", `unknown option "interface" (with a loop, `},
		{"eth:pci:0000:03:00.0?interface=1", "options of the NIC's own address follow it as in eth:pci:0000:03:00.0%3Finterface=1"},
		{"eth:vhost-user:/a%2Bb?interface=1", "as in eth:vhost-user:/a%2Bb%3Finterface=1"},
		{"emu:?wire=pci:0000:03:00.0&interface=1", "as in emu:?wire=pci:0000:03:00.0%3Finterface=1"},
		{"emu:?wire=pci:0000:03:00.0%3Fk=v&interface=1", "as in emu:?wire=pci:0000:03:00.0%3Fk=v%26interface=1"},
		{"emu:?wire=tap0", "loop, mem:NAME, host:NAME, udp://HOST:PORT, memif:PATH"},
		{"emu:?wire=mem:", "mem:NAME"},
		{"emu:?wire=udp://127.0.0.1", "HOST:PORT"},
		{"emu:?wire=udp://127.0.0.1:70000", "0..65535"},
		{"emu:?wire=udp://127.0.0.1:http", "0..65535"},
		{"emu:?wire=udp://127.0.0.1:0&peer=", "HOST:PORT"},
		{"emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:0", "1..65535"},
		{"emu:?peer=127.0.0.1:9", "UDP"},
		{"emu:?key=/nonexistent", "option key: only a UDP wire"},
		{"emu:?wire=udp://127.0.0.1:0&key=", "64 hexadecimal digits"},
		{"emu:?wire=udp://127.0.0.1:0&key=/nonexistent", "option key: key file /nonexistent: no such file"},
		{"emu:?wire=udp://127.0.0.1:0&key=/dev/null", "option key: key file /dev/null: it is not a regular file"},
		{"emu:?engine=fast", "inline or thread"},
		{"emu:?doorbells=front", "mapped or trapped"},
		{"emu:?mtu=159", "160..65344"},
		{"emu:?mtu=65345", "160..65344"},
		{"emu:?mtu=big", "160..65344"},
		{"emu:?mac=1:2:3", "six bytes"},
		{"emu:?mac=00:00:00:00:00:00", "one station"},
		{"emu:?mac=ff:ff:ff:ff:ff:ff", "one station"},
		{"emu:?mac=02:00:00:00:00:00:00:01", "six bytes"},
		{"emu:?loss=1.1", "0..1"},
		{"emu:?loss=-1", "0..1"},
		{"emu:?duplicate=NaN", "0..1"},
		{"emu:?reorder=Inf", "0..1"},
		{"emu:?corrupt=", "0..1"},
		{"emu:?seed=-1", "0 or more"},
		{"emu:?loss=0.1&loss=0.2", "2 times"},
		{"emu:?vis=0", "1..16383"},
		{"emu:?vis=16384", "1..16383"},
		{"emu:?vis=many", "1..16383"},
		{"emu:?cqs=0", "1..16384"},
		{"emu:?regions=1048577", "1..1048576"},
		{"emu:?regions=-1", "1..1048576"},
		{"emu:?burst=0", "64..65536"},
		{"emu:?burst=63", "64..65536"},
		{"emu:?burst=65537", "64..65536"},
		{"emu:?burst=512B", "64..65536"},
		{"emu:?burst=8321", "option burst=8321: a frame of this wire has at most 8320 bytes of payload"},
		{"emu:?burst=1000&mtu=1000", "option burst=1000: a frame of this wire has at most 936 bytes"},
		{"emu:?wire=udp://127.0.0.1:0&burst=512", "option burst: only a loop or a memory wire or a shm wire has it"},
		{"emu:?burst=512&loss=0.1", "option burst=512: with loss, duplicate, reorder or corrupt frames have a checksum"},
		{"emu:?burst=512&corrupt=1", "option burst=512: with loss, duplicate, reorder or corrupt frames have a checksum"},
		{"emu:?rate=0", "1000000..64000000000"},
		{"emu:?rate=999999", "1000000..64000000000"},
		{"emu:?rate=65G", "1000000..64000000000"},
		{"emu:?rate=9223372036854775807G", "1000000..64000000000"},
		{"emu:?rate=-1M", "1000000..64000000000"},
		{"emu:?rate=100MB", "such as 100M for 100 MB/s"},
		{"emu:?rate=M", "such as 100M"},
		{"emu:?bus=0", "1000000..64000000000"},
		{"emu:?bus=1e9", "1000000..64000000000"},
		{"emu:?delay=-1us", "0s..10ms"},
		{"emu:?delay=11ms", "0s..10ms"},
		{"emu:?delay=5", "such as 5us"},
		{"emu:?setup=101us", "0s..100us"},
		{"emu:?wire=shm:/x&share=on&rate=1M", "option rate: with share=on"},
		{"emu:?wire=shm:/x&share=on&bus=1M", "option bus: with share=on"},
		{"emu:?wire=shm:", "shm:PATH"},
		{"emu:?wire=shm:@", "path"},
		{"emu:?wire=shm:/" + strings.Repeat("x", 120), "107"},
		{"emu:?wire=shm:/x&role=server", "auto, listen or connect"},
		{"emu:?wire=shm:/x&role=both", "auto, listen or connect"},
		{"emu:?wire=shm:/x&share=yes", "off, on or write"},
		{"emu:?wire=shm:/x&mtu=100", "160..65344"},
		{"emu:?wire=shm:/x&ring=4", "memif"},
		{"emu:?wire=shm:/x&peer=127.0.0.1:9", "UDP"},
		{"emu:?wire=memif:/x&role=listen", "client or server"},
		{"emu:?wire=loop&share=on", "shm"},
		{"emu:?wire=loop&role=listen", "shm"},
		{"emu:?wire=memif:", "memif:PATH"},
		{"emu:?wire=memif:/x", "client or server"},
		{"emu:?wire=memif:/x&role=master", "client or server"},
		{"emu:?wire=memif:@&role=client", "@NAME"},
		{"emu:?wire=memif:" + strings.Repeat("x", 120) + "&role=client", "107 bytes"},
		{"emu:?wire=memif:/x&role=client&id=-1", "0..4294967295"},
		{"emu:?wire=memif:/x&role=client&id=4294967296", "0..4294967295"},
		{"emu:?wire=memif:/x&role=client&queues=0", "1..16"},
		{"emu:?wire=memif:/x&role=client&queues=17", "1..16"},
		{"emu:?wire=memif:/x&role=client&ring=1", "2..16384"},
		{"emu:?wire=memif:/x&role=client&ring=1000", "power of two"},
		{"emu:?wire=memif:/x&role=client&buffer=100", "multiple of 64"},
		{"emu:?wire=memif:/x&role=client&buffer=x", "64..65536"},
		{"emu:?wire=memif:/x&role=client&buffer=64&ring=2&mtu=200", "2 buffers of 64"},
		{"emu:?wire=memif:/x&role=client&mode=fast", "interrupt or poll"},
		{"emu:?wire=memif:/x&role=client&secret=", "1..23 bytes"},
		{"emu:?wire=memif:/x&role=client&secret=" + strings.Repeat("x", 120), "1..23 bytes"},
		{"emu:?wire=memif:/x&role=client&peer=127.0.0.1:9", "UDP"},
		{"emu:?role=client", "memif"},
		{"emu:?wire=loop&queues=2", "memif"},
		{"emu:?wire=mem:x&secret=x", "memif"},
		{"emu:?wire=pci:", "pci:FUNCTION"},
		{"emu:?wire=afxdp:", "afxdp:INTERFACE"},
		{"emu:?wire=cable:", "vhost-user:PATH"},
		{"emu:?wire=cable:x&mtu=9015", "160..9014"},
		{"emu:?wire=cable:x&mtu=65344", "160..9014"},
		{"emu:?wire=cable:x&peer=127.0.0.1:9", "UDP"},
		{"emu:?wire=cable:x&ring=64", "memif"},
		{"emu:?wire=cable:x&key=k", "UDP"},
		{"emu:?wire=cable:x&mac=01:00:00:00:00:01", "station"},
		{"emu:?wire=cable:x&promiscuous=perhaps", "off or on"},
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
	}
	for _, tt := range tests {
		d, err := vfio.Open(context.Background(), tt.address)
		if d != nil || !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, error %v, want one that says %q", tt.address, d, err, tt.says)
		}
		// An address that cannot be parsed at all does not come as far as this.
		a, perr := vfio.ParseAddress(tt.address)
		if perr == nil && fmt.Sprint(emulator.CheckAddress(a)) != err.Error() {
			t.Errorf("%s: CheckAddress says %v, opening it %v", tt.address, emulator.CheckAddress(a), err)
		}
	}
}

// TestNamedWires opens the ends of memory wires in all orders.
func TestNamedWires(t *testing.T) {
	checkFiles(t)
	up := func(d vfio.Device) bool { return deviceStatus(t, d)&datasheet.DeviceLinkUp != 0 }
	for range 2 { // a name is free again when both ends are closed
		a := openAddress(t, "emu:?wire=mem:x&mtu=1000")
		powerUp(t, a)
		should.Be(t, up(a), false, "link is up with one end")
		other := openAddress(t, "emu:?wire=mem:y")
		_, err := vfio.Open(context.Background(), "emu:?wire=mem:x&mtu=2000")
		wantError(t, "another MTU", err, vfio.ErrBadAddress)
		b := openAddress(t, "emu:?wire=mem:x&loss=0.5")
		powerUp(t, b)
		if !up(a) || !up(b) {
			t.Error("link is down with both ends")
		}
		should.Be(t, read32(t, b, datasheet.RegMTU), 1000, "the second end has MTU")
		_, err = vfio.Open(context.Background(), "emu:?wire=mem:x")
		wantError(t, "third end", err, vfio.ErrBadAddress)
		closeDevice(t, a)
		should.Be(t, up(b), false, "link is up though the other end is closed")
		_, err = vfio.Open(context.Background(), "emu:?wire=mem:x")
		wantError(t, "one end is still open", err, vfio.ErrBadAddress)
		closeDevice(t, b)
		closeDevice(t, other)
	}
	// An end that was closed before the other was opened leaves the name free.
	closeDevice(t, openAddress(t, "emu:?wire=mem:x"))
	a, b := openAddress(t, "emu:?wire=mem:x"), openAddress(t, "emu:?wire=mem:x")
	powerUp(t, a)
	powerUp(t, b)
	if !up(a) || !up(b) {
		t.Error("link is down with both ends")
	}
}

// keyFile makes a file with a key of equal bytes.
func keyFile(t *testing.T, digits string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(file, []byte(strings.Repeat(digits, 32)+"\n"), 0o600))
	return file
}

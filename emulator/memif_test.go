package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// memifSocket returns a path that is short enough for a socket.
func memifSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "memif")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func linkUp(t testing.TB, d vfio.Device) bool {
	return deviceStatus(t, d)&datasheet.DeviceLinkUp != 0
}

// waitLink waits until the links of devices are all up or all down.
func waitLink(t testing.TB, up bool, devices ...vfio.Device) {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		n := 0
		for _, d := range devices {
			if linkUp(t, d) == up {
				n++
			}
		}
		if n == len(devices) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("link is not up=%v", up)
		}
	}
}

// TestMemifDevices connects two NICs over a memif, whichever end is the server
// and wherever the engines run.
func TestMemifDevices(t *testing.T) {
	socket := memifSocket(t)
	abstract := fmt.Sprintf("@trapeze-emulator-%d", os.Getpid())
	for _, tt := range []struct {
		name           string
		server, client string
		polls          bool // both run inline
	}{
		{"defaults", "wire=memif:" + socket, "wire=memif:" + socket, false},
		{"abstract, polling", "mode=poll&wire=memif:" + abstract, "mode=poll&wire=memif:" + abstract, true},
		{"queues, secret, id", "id=3&secret=x&wire=memif:" + socket, "id=3&secret=x&queues=4&wire=memif:" + socket, false},
		{"chains", "mtu=8256&wire=memif:" + socket, "mtu=8256&buffer=1024&ring=64&wire=memif:" + socket, false},
		{"threads that poll", "mode=poll&engine=thread&wire=memif:" + socket, "mode=poll&engine=thread&wire=memif:" + socket, false},
		{"faults", "loss=0.2&wire=memif:" + socket, "loss=0.2&seed=4&wire=memif:" + socket, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFiles(t)
			server := openAddress(t, "emu:?role=server&"+tt.server)
			client := openAddress(t, "emu:?role=client&"+tt.client)
			if polls := server.(vfio.InProcess).Polled(); polls != tt.polls {
				t.Errorf("the server is a Poller: %v", polls)
			}
			a, b := newAdminHost(t, client), newAdminHost(t, server)
			waitLink(t, true, server, client)
			if tt.polls {
				// Nobody else steps the other end.
				pollWith(t, b, func() { connect(t, a, b) })
			} else {
				connect(t, a, b)
			}
			closeDevice(t, client)
			waitLink(t, false, server)
		})
	}
}

// pollWith polls a host's device beside f.
func pollWith(t *testing.T, h *adminHost, f func()) {
	t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	poller := h.d.(vfio.Poller)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				poller.Poll()
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	f()
}

// newMemifDevice makes a NIC at the end of a memif.
func newMemifDevice(t *testing.T, o wire.MemifOptions, mac byte) *emulator.Device {
	t.Helper()
	port, err := wire.NewMemif(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := emulator.New(emulator.Options{Wire: port, Thread: true, Limits: smallLimits,
		MAC: datasheet.MAC{2, 0, 0, 0, 0, mac}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDevice(t, d) })
	return d
}

// TestMemifComesAgain: a NIC whose plug is pulled, or that is closed and made
// again, finds its peer, which sees the link go.
func TestMemifComesAgain(t *testing.T) {
	for _, stays := range []wire.MemifRole{wire.MemifServer, wire.MemifClient} {
		t.Run(stays.String()+" stays", func(t *testing.T) {
			checkFiles(t)
			socket := memifSocket(t)
			a := newMemifDevice(t, wire.MemifOptions{Socket: socket, Role: stays}, 1)
			first := newAdminHost(t, a)
			first.thread = true
			for i := range 3 {
				b := newMemifDevice(t, wire.MemifOptions{Socket: socket, Role: wire.MemifClient + wire.MemifServer - stays}, byte(2+i))
				second := newAdminHost(t, b)
				second.thread = true
				waitLink(t, true, a, b)
				connect(t, first, second)
				a.SetLink(false)
				waitLink(t, false, a, b)
				a.SetLink(true)
				waitLink(t, true, a, b)
				connect(t, second, first)
				closeDevice(t, b)
				waitLink(t, false, a)
			}
		})
	}
}

func TestBadMemifAddresses(t *testing.T) {
	checkFiles(t)
	long := strings.Repeat("x", 120)
	for _, tt := range []struct{ options, says string }{
		{"wire=memif:", "memif:PATH"},
		{"wire=memif:/x", "role=server or role=client"},
		{"wire=memif:/x&role=master", "server or client"},
		{"wire=memif:@&role=client", "@NAME"},
		{"wire=memif:" + long + "&role=client", "107 bytes"},
		{"wire=memif:/x&role=client&id=-1", "0..4294967295"},
		{"wire=memif:/x&role=client&id=4294967296", "0..4294967295"},
		{"wire=memif:/x&role=client&queues=0", "1..16"},
		{"wire=memif:/x&role=client&queues=17", "1..16"},
		{"wire=memif:/x&role=client&ring=1", "2..16384"},
		{"wire=memif:/x&role=client&ring=1000", "power of two"},
		{"wire=memif:/x&role=client&buffer=100", "multiple of 64"},
		{"wire=memif:/x&role=client&buffer=x", "64..65536"},
		{"wire=memif:/x&role=client&buffer=64&ring=2&mtu=200", "2 buffers of 64"},
		{"wire=memif:/x&role=client&mode=fast", "poll or interrupt"},
		{"wire=memif:/x&role=client&secret=", "1 to 23 bytes"},
		{"wire=memif:/x&role=client&secret=" + long, "1 to 23 bytes"},
		{"wire=memif:/x&role=client&peer=127.0.0.1:9", "UDP"},
		{"role=client", "memif"},
		{"wire=loop&queues=2", "memif"},
		{"wire=mem:x&secret=x", "memif"},
	} {
		d, err := vfio.Open(context.Background(), "emu:?"+tt.options)
		if d != nil || !errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, error %v, want one that says %q", tt.options, d, err, tt.says)
		}
	}
	// The address is good, the place is not.
	_, err := vfio.Open(context.Background(), "emu:?role=server&wire=memif:/no/such/folder/s")
	var e *vfio.Error
	if !errors.As(err, &e) || errors.Is(err, vfio.ErrBadAddress) || !strings.Contains(err.Error(), "folder") {
		t.Errorf("error %v", err)
	}
}

// TestMemifFleet has several NICs at one socket.
func TestMemifFleet(t *testing.T) {
	checkFiles(t)
	socket := memifSocket(t)
	servers, err := emulator.Fleet(context.Background(), "emu:?role=server&id=5&wire=memif:"+socket, []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range servers {
		t.Cleanup(func() { closeDevice(t, s) })
		client := openAddress(t, fmt.Sprintf("emu:?role=client&id=%d&wire=memif:%s", 5+i, socket))
		powerUp(t, s)
		powerUp(t, client)
		waitLink(t, true, s, client)
	}
	for address, says := range map[string]string{
		"emu:?role=server&id=4294967294&wire=memif:" + socket: "beyond",
		"emu:?role=server&id=6&wire=memif:" + socket:          "ID 6",
	} {
		if d, err := emulator.Fleet(context.Background(), address, []string{"a", "b", "c"}); d != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, error %v", address, d, err)
		}
	}
}

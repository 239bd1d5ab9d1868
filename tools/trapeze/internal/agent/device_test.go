package agent_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// served are NICs with our data sheet, behind vfio-user and joined by a switch.
func served(t *testing.T, n int) (paths []string, stop []func()) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i))))
	}
	nics, err := emulator.Fleet(t.Context(), "emu:", paths)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range nics {
		l, err := vfiouser.Listen(paths[i], 0o600)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := vfiouser.Serve(ctx, l, d, vfiouser.ServerOptions{Logger: quiet}); err != nil {
				t.Error(err)
			}
		})
		end := sync.OnceFunc(func() {
			cancel()
			serving.Wait()
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		stop = append(stop, end)
		t.Cleanup(end)
	}
	return paths, stop
}

func deviceFile(path, grant string) string {
	return "[nic.device]\naddress = \"vfio-user:" + path + "\"\n[[grant]]\nusers = [\"*\"]\n" + grant
}

// TestDeviceExchange: a client of a device exchanges messages with a NIC behind the wire, and with another client.
func TestDeviceExchange(t *testing.T) {
	paths, _ := served(t, 2)
	at := "agent:device?socket=" + serve(t, deviceFile(paths[0], ""))
	far := open(t, "vfio-user:"+paths[1])
	one, two := open(t, at), open(t, at)
	exchange(t, one, far, "out")
	exchange(t, far, two, "in")
	exchange(t, one, two, "between")
	exchange(t, two, one, "back")
}

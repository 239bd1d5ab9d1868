package emulator_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// memifSocket returns a path that is short enough for a socket.
func memifSocket(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "memif"))(t)
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

package emulator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
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
	for i, d := range devices {
		waittest.Until(t, fmt.Sprintf("link %d is up=%v", i, up), func() bool { return linkUp(t, d) == up })
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

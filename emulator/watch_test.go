package emulator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// crossing counts connect requests that cross a wire: those that were sent, and those that came.
type crossing struct {
	sent, came int
	enough     context.CancelFunc
}

func (c *crossing) see(sent bool, frame []byte) {
	if h := datasheet.HeaderAt(frame); h == nil || h.Type != datasheet.FrameConnectRequest {
		return
	}
	if sent {
		c.sent++
	} else {
		c.came++
	}
	c.enough()
}

// knock asks for a connection that nobody takes, through the device, until c has seen that.
func (c *crossing) knock(t *testing.T, d vfio.Device) {
	t.Helper()
	nic := must.Get(via.OpenDevice(t.Context(), d, via.Options{}))(t)
	defer nic.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c.enough = cancel
	to := via.Address{MAC: datasheet.MAC{2, 0, 0, 0, 0, 9}, Discriminator: "nobody"}
	if conn, err := via.Dial(ctx, nic, to.String(), via.ConnOptions{}); err == nil {
		conn.Close()
		t.Fatal("somebody was there")
	}
}

// TestWatch: who watches a wire sees what crosses it, both ways.
func TestWatch(t *testing.T) {
	for _, address := range []string{"emu:?wire=mem:watched", "emu:?wire=mem:lossy&duplicate=0.5&mtu=1500"} {
		var seen crossing
		d := must.Get(vfio.Open(t.Context(), address))(t)
		d.(*emulator.Device).Watch(seen.see)
		openAddress(t, address)
		seen.knock(t, d)
		if seen.sent == 0 || seen.came != 0 {
			t.Errorf("%s: %d sent, %d came", address, seen.sent, seen.came)
		}
	}
	var seen crossing
	a, b := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
	if !a.Watch(seen.see) || a.Watch(seen.see) {
		t.Error("one can watch, and two cannot")
	}
	seen.knock(t, b)
	if seen.came == 0 || seen.sent != 0 {
		t.Errorf("%d sent, %d came", seen.sent, seen.came)
	}
	closeDevice(t, a)
}

// TestFilterRefused: nor has it one that could be filtered.
func TestFilterRefused(t *testing.T) {
	var said *vfio.Error
	if _, err := emulator.OpenFiltered(t.Context(), "vfio-user:/nowhere", nil); !errors.Is(err, vfio.ErrNotSupported) || !errors.As(err, &said) || said.Hint == "" {
		t.Error(err)
	}
}

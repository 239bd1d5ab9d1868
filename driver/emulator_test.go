package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
)

// devices are both ends of an emulated wire.
func devices(t testing.TB, options emulator.PairOptions) (x, y *emulator.Device) {
	t.Helper()
	x, y = must.Two(emulator.Pair(options))(t)
	t.Cleanup(func() { _, _ = x.Close(), y.Close() })
	return x, y
}

// newPair opens both ends of an emulated wire.
func newPair(t testing.TB, options emulator.PairOptions) (x, y *emulator.Device, a, b *driver.NIC) {
	t.Helper()
	x, y = devices(t, options)
	return x, y, open(t, x, driver.Options{}), open(t, y, driver.Options{})
}

// TestDestroyConnected: the driver destroys a VI in any state; its peer is told that
// the connection has ended in order.
func TestDestroyConnected(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connected(t, a, b, layout{})
	recv := y.descriptor(t, 0, 8)
	must.OK(t, y.v.PostRecv(recv))
	must.OK(t, x.v.Abandon(contextFor(t)))
	d, err := y.v.RecvWait(contextFor(t))
	if d != recv || !errors.Is(err, descriptors.ErrDisconnected) || !errors.Is(err, descriptors.ErrDescriptor) {
		t.Errorf("the peer's receive: %v", err)
	}
	should.OK(t, x.v.Abandon(contextFor(t)))
	should.Fail(t, x.v.PostSend(x.descriptor(t, 0, 8)), descriptors.ErrClosed, "posted to a destroyed VI")
}

func mustPtag(t testing.TB, n *driver.NIC) *driver.Ptag {
	t.Helper()
	return must.Get(n.CreatePtag(contextFor(t)))(t)
}

// TestEmulatorReopen: what one NIC leaves behind does not disturb the next.
func TestEmulatorReopen(t *testing.T) {
	checkLeaks(t)
	for range 3 {
		n := must.Get(driver.Open(contextFor(t), "emu:", driver.Options{Logger: quiet}))(t)
		should.Be(t, n.Address(), "emu:", "address")
		should.OK(t, n.WriteSRAM(100, []byte("SRAM")))
		got := make([]byte, 4)
		if err := n.ReadSRAM(100, got); err != nil || string(got) != "SRAM" {
			t.Errorf("%q, %v", got, err)
		}
		should.OK(t, n.Close())
	}
}

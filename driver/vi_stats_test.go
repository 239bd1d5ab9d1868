package driver_test

import (
	"errors"
	"net"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
)

func TestQueueStatsTags(t *testing.T) { statstest.Check(t, driver.VIStats{}, driver.CQStats{}) }

// TestVIStats: what is posted, taken back and failed counts; what waits has not completed.
func TestVIStats(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connected(t, a, b, layout{})
	for range 3 {
		deliver(t, x, y, []byte("counted"))
	}
	if err := y.v.PostRecv(y.descriptor(t, 1, 64)); err != nil {
		t.Fatal(err)
	}
	s, err := x.v.Stats()
	if want := (driver.VIStats{SendsPosted: 3, SendsCompleted: 3}); s != want || err != nil {
		t.Errorf("sender: %+v, %v, want %+v", s, err, want)
	}
	s, err = y.v.Stats()
	if want := (driver.VIStats{ReceivesPosted: 4, ReceivesCompleted: 3}); s != want || err != nil {
		t.Errorf("receiver: %+v, %v, want %+v", s, err, want)
	}
	if err := y.v.Disconnect(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := y.v.RecvWait(contextFor(t)); !errors.Is(err, descriptors.ErrDescriptor) {
		t.Errorf("a receive that Disconnect has flushed: %v", err)
	}
	s, err = y.v.Stats()
	if want := (driver.VIStats{ReceivesPosted: 4, ReceivesCompleted: 4, ReceivesFailed: 1}); s != want || err != nil {
		t.Errorf("flushed: %+v, %v, want %+v", s, err, want)
	}
	if err := y.v.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := y.v.Stats(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed VI: %v", err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := x.v.Stats(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed NIC: %v", err)
	}
}

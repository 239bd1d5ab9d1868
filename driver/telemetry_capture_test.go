package driver_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/framering"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// borrow takes what a command lends, and maps it for as long as the test runs.
func borrow(t *testing.T, c *telemetry.Client, command string) *framering.Reader {
	t.Helper()
	var answer telemetry.Capture
	b, err := c.Borrow(contextFor(t), command, &answer)
	if err != nil || answer.Refused != "" || b == nil {
		t.Fatalf("%+v, %d bytes, %v", answer, len(b), err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return must.Get(framering.NewReader(b))(t)
}

// payload returns the bytes that waiting data frames carry, of those sent or of those that came.
func payload(t *testing.T, r *framering.Reader, sent bool) (all []byte) {
	t.Helper()
	for {
		f, ok := must.Two(r.Next())(t)
		if !ok {
			return all
		}
		// Where Next puts frames is aligned.
		h := datasheet.HeaderAt(f.Bytes)
		if f.Sent == sent && h != nil && h.Type == datasheet.FrameData {
			all = append(all, f.Bytes[datasheet.HeaderSize:][:h.Length]...)
		}
		if since := time.Since(f.At); since < 0 || since > time.Hour {
			t.Errorf("a frame of %v", f.At)
		}
	}
}

// TestCapture: a program beside the owner gets the frames of a NIC, until it leaves. One at a time
// can have them. One that does not read loses frames, which are counted, and the owner none.
func TestCapture(t *testing.T) {
	leaktest.Check(t)
	var a, b *driver.NIC
	c := beside(t, func() { _, _, a, b = newPair(t, emulator.PairOptions{}) })
	r := borrow(t, c, "/trapeze/capture")
	traffic(t, a, b, 1)
	if got, want := payload(t, r, true), exchanged; len(got) != want || !bytes.Equal(got[:4], []byte{0, 7, 14, 21}) {
		t.Errorf("%d bytes were sent, want %d", len(got), want)
	}
	other := must.Get(telemetry.Dial(contextFor(t), c.Path))(t)
	var answer telemetry.Capture
	if b, err := other.Borrow(contextFor(t), "/trapeze/capture", &answer); err != nil || b != nil || answer.Refused == "" {
		t.Errorf("a second one: %+v, %d bytes, %v", answer, len(b), err)
	}
	if b, err := other.Borrow(contextFor(t), "/trapeze/vis", &answer); err != nil || b != nil {
		t.Errorf("a command that lends nothing: %d bytes, %v", len(b), err)
	}
	traffic(t, a, b, 300) // more than the ring has room for
	if r.Dropped() == 0 || r.Ended() {
		t.Errorf("%d dropped, ended %v", r.Dropped(), r.Ended())
	}
	c.Close()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		b, err := other.Borrow(contextFor(t), "/trapeze/capture,0,64", &answer)
		if err != nil || time.Now().After(end) {
			t.Fatal("the first one keeps it: ", err)
		}
		if b != nil {
			unix.Munmap(b)
			break
		}
	}
	other.Close()
}

// TestCaptureSnaplen: as much of a frame is kept as was asked for. A NIC that is closed says so.
func TestCaptureSnaplen(t *testing.T) {
	leaktest.Check(t)
	var a, b *driver.NIC
	c := beside(t, func() { _, _, a, b = newPair(t, emulator.PairOptions{}) })
	r := borrow(t, c, "/trapeze/capture,1,60")
	traffic(t, a, b, 1)
	if f, ok, err := r.Next(); err != nil || !ok || len(f.Bytes) != 60 || f.Length < datasheet.HeaderSize {
		t.Errorf("%+v, %v, %v", f, ok, err)
	}
	if err := errors.Join(b.Close()); err != nil || !r.Ended() {
		t.Errorf("a closed NIC: ended %v, %v", r.Ended(), err)
	}
}

// unseen is a device whose frames this process does not see.
type unseen struct {
	vfio.Device
	vfio.InProcess
}

// TestCaptureElsewhere: a NIC whose frames pass elsewhere says so.
func TestCaptureElsewhere(t *testing.T) {
	x, _ := devices(t, emulator.PairOptions{})
	c := beside(t, func() { open(t, unseen{x, x}, driver.Options{}) })
	var answer telemetry.Capture
	if b, err := c.Borrow(contextFor(t), "/trapeze/capture", &answer); err != nil || b != nil || answer.Refused == "" {
		t.Errorf("%+v, %d bytes, %v", answer, len(b), err)
	}
}

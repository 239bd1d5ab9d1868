package porttest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// NIC is a fake device, which a driver under test drives.
type NIC interface {
	vfio.Device
	// Arrive has a frame arrive from the wire, and reports whether the device took it.
	Arrive(frame []byte) bool
	// Sends has f take the frames that are sent.
	Sends(f func(frame []byte))
	// StandStill has nothing be sent until end is called.
	StandStill() (end func())
	// Raise raises the vector of queue 0.
	Raise()
	SetLink(up bool)
	Remove()
}

// Own is the address of the ports of the suite.
var Own = ethernet.MAC{2, 0, 0, 0, 0, 1}

// timeout is far more than anything here takes; what waits longer never ends.
const timeout = 20 * time.Second

// suite is a run of the tests that each driver of a NIC passes.
type suite struct {
	make func(t testing.TB) NIC
}

// Suite runs what each driver passes, whatever its NIC. A device that make returns looks after
// itself: at the end of its test it fails on strays and on what was left.
func Suite(t *testing.T, make func(t testing.TB) NIC) {
	s := suite{make}
	for name, f := range map[string]func(*testing.T){
		"Receive": s.receive, "ReceiveNoBuffers": s.noBuffers, "Send": s.send, "Forward": s.forward, "Filters": s.filters,
		"Wait": s.wait, "InterruptStorm": s.storm, "Concurrently": s.concurrently, "RestartBesideCache": s.restartBesideCache,
		"LinkFlaps": s.linkFlaps, "SendStandsStill": s.standsStill, "SendRefuses": s.refuses, "Removed": s.removed, "Closed": s.closed,
	} {
		t.Run(name, f)
	}
}

// open opens a port of a new device.
func (s suite) open(t testing.TB, c ethernet.Options) (NIC, ethernet.Port) {
	t.Helper()
	d := s.make(t)
	if c.Pool == nil {
		c.Pool = NewPool(t, ethernet.PoolOptions{})
	}
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	c.MAC, c.Logger = Own, slog.New(slog.DiscardHandler)
	p, err := ethernet.New(limited(t), d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, p
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// FrameTo makes a frame of n bytes to an address.
func FrameTo(to ethernet.MAC, n int) []byte {
	b := make([]byte, n)
	copy(b, to[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 99, 0x88, 0xb5})
	for i := 14; i < n; i++ {
		b[i] = byte(i * 7)
	}
	return b
}

// ReceiveAll receives until there is no more, and returns copies of the frames.
func ReceiveAll(t testing.TB, q ethernet.Queue) (frames []ethernet.Frame, data [][]byte) {
	t.Helper()
	var burst [32]ethernet.Frame
	for {
		n, err := q.Receive(burst[:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return frames, data
		}
		for _, f := range burst[:n] {
			frames = append(frames, f)
			data = append(data, bytes.Clone(q.Cache().Pool().Bytes(f)))
		}
		q.Cache().Free(burst[:n])
	}
}

// Same fails the test if the frames are not those that are wanted, in order.
func Same(t testing.TB, want, got [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d of %d frames", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d is\n%x, want\n%x", i, got[i], want[i])
		}
	}
}

// TrySend sends one frame, which change may change, and returns what Send does.
func TrySend(q ethernet.Queue, data []byte, change func(f *ethernet.Frame)) (int, error) {
	frames := make([]ethernet.Frame, 1)
	if q.Cache().Alloc(frames) != 1 {
		return 0, ethernet.ErrNoBuffers
	}
	f := &frames[0]
	f.Length = uint16(len(data))
	copy(q.Cache().Pool().Bytes(*f), data)
	buffer := f.Buffer
	if change != nil {
		change(f)
	}
	n, err := q.Send(frames)
	if n == 0 {
		q.Cache().Free([]ethernet.Frame{{Buffer: buffer}})
	}
	return n, err
}

// SendOne sends one frame and fails the test if it is not taken.
func SendOne(t testing.TB, q ethernet.Queue, data []byte) {
	t.Helper()
	if n, err := TrySend(q, data, nil); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
}

// Eventually waits until f is true.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// removed takes the device away while it works: everything says so.
func (s suite) removed(t *testing.T) {
	d, p := s.open(t, ethernet.Options{Interrupts: true})
	d.Arrive(FrameTo(Own, 60))
	d.Remove()
	if _, err := p.Link(); !errors.Is(err, ethernet.ErrDeviceGone) {
		t.Errorf("link: %v", err)
	}
	frames := make([]ethernet.Frame, 4)
	_, rerr := p.Queue(0).Receive(frames)
	_, serr := p.Queue(0).Send(frames[:1])
	for _, err := range []error{rerr, serr, p.Queue(0).Wait(t.Context()), p.SetPromiscuous(true), p.Restart(limited(t))} {
		var e *ethernet.Error
		if !errors.Is(err, ethernet.ErrDeviceGone) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("got %v", err)
		}
	}
	if c := p.Stats(); c.Device != nil {
		t.Errorf("a device that is gone has counted %+v", c.Device)
	}
}

// closed closes a port: everything says so, and all buffers are back.
func (s suite) closed(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{})
	_, p := s.open(t, ethernet.Options{Pool: pool})
	if err := pool.Close(); !errors.Is(err, ethernet.ErrInUse) {
		t.Errorf("close of a pool in use: %v", err)
	}
	if p.Queue(-1) != nil || p.Queue(1) != nil || p.Queue(0) == nil {
		t.Error("queues")
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := pool.Free(); n != pool.Options().Buffers {
		t.Errorf("%d buffers are back", n)
	}
	_, lerr := p.Link()
	_, rerr := p.Queue(0).Receive(make([]ethernet.Frame, 1))
	_, serr := p.Queue(0).Send(make([]ethernet.Frame, 1))
	_, uerr := p.Queue(0).Unsent()
	for _, err := range []error{lerr, rerr, serr, uerr, p.Queue(0).Wait(t.Context()), p.SetMAC(Own), p.SetPromiscuous(true), p.Restart(t.Context())} {
		if !errors.Is(err, ethernet.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	p.Stats()
}

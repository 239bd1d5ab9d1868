package porttest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	c.MAC = Own
	return d, Open(t, d, c)
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
		n := must.Get(q.Receive(burst[:]))(t)
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
	must.Be(t, len(got), len(want), "frames")
	for i := range got {
		must.Same(t, got[i], want[i], "frame %d", i)
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
	must.Give(TrySend(q, data, nil))(t, 1)
}

// removed takes the device away while it works: everything says so.
func (s suite) removed(t *testing.T) {
	d, p := s.open(t, ethernet.Options{Interrupts: true})
	d.Arrive(FrameTo(Own, 60))
	d.Remove()
	should.Refuse(p.Link())(t, ethernet.ErrDeviceGone, "link")
	frames := make([]ethernet.Frame, 4)
	_, rerr := p.Queue(0).Receive(frames)
	_, serr := p.Queue(0).Send(frames[:1])
	for _, err := range []error{rerr, serr, p.Queue(0).Wait(t.Context()), p.SetPromiscuous(true), p.Restart(Context(t))} {
		var e *ethernet.Error
		should.Hold(t, errors.Is(err, ethernet.ErrDeviceGone) && errors.As(err, &e) && e.Hint != "", "got %v", err)
	}
	c := p.Stats()
	should.Hold(t, c.Device == nil, "a device that is gone has counted %+v", c.Device)
}

// closed closes a port: everything says so, and all buffers are back.
func (s suite) closed(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{})
	_, p := s.open(t, ethernet.Options{Pool: pool})
	should.Fail(t, pool.Close(), ethernet.ErrInUse, "close of a pool in use")
	should.Hold(t, p.Queue(-1) == nil && p.Queue(1) == nil && p.Queue(0) != nil, "queues")
	for range 2 {
		should.OK(t, p.Close())
	}
	should.Be(t, pool.Free(), pool.Options().Buffers, "buffers are back")
	_, lerr := p.Link()
	_, rerr := p.Queue(0).Receive(make([]ethernet.Frame, 1))
	_, serr := p.Queue(0).Send(make([]ethernet.Frame, 1))
	_, uerr := p.Queue(0).Unsent()
	for _, err := range []error{lerr, rerr, serr, uerr, p.Queue(0).Wait(t.Context()), p.SetMAC(Own), p.SetPromiscuous(true), p.Restart(t.Context())} {
		should.Fail(t, err, ethernet.ErrClosed, "after Close")
	}
	p.Stats()
}

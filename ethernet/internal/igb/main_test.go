package igb_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/fakeigb"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/igb"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience is far more than anything here takes; what waits longer never ends.
const patience = 20 * time.Second

// quiet keeps what the tests provoke out of their output.
var quiet = slog.New(slog.DiscardHandler)

func contextFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newFake makes a device, and at the end of the test looks at what it has seen.
func newFake(t testing.TB, o fakeigb.Options) *fakeigb.Device {
	t.Helper()
	d, err := fakeigb.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !d.Closed() {
			t.Error("the device was not closed")
		}
		l := d.Log()
		for _, s := range l.Strays {
			t.Errorf("stray access: %s", s)
		}
		if l.LeftDMA > 0 && d.UnmapFails == nil && d.ConfigFails == nil || l.LeftVectors > 0 {
			t.Errorf("%d DMA mappings and %d vectors are left", l.LeftDMA, l.LeftVectors)
		}
		d.Close()
	})
	return d
}

// config is the least that Open needs; a pool is made if there is none.
func config(t testing.TB, c ethernet.Options) ethernet.Options {
	t.Helper()
	if c.Pool == nil {
		c.Pool = porttest.NewPool(t, ethernet.PoolOptions{})
	}
	c.Logger = quiet
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	return c
}

// open opens a device and closes it at the end of the test. Then all buffers are back in
// the pool but those that the test has kept.
func open(t testing.TB, d *fakeigb.Device, c ethernet.Options) ethernet.Port {
	t.Helper()
	c = config(t, c)
	p, err := ethernet.New(contextFor(t), d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// frame makes a frame of n bytes to an address.
func frame(to ethernet.MAC, n int) []byte {
	b := make([]byte, n)
	copy(b, to[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 99, 0x88, 0xb5})
	for i := 14; i < n; i++ {
		b[i] = byte(i * 7)
	}
	return b
}

// receiveAll receives until there is no more, and returns copies of the frames.
func receiveAll(t testing.TB, p ethernet.Port, queue int) (frames []ethernet.Frame, data [][]byte) {
	t.Helper()
	q := p.Queue(queue)
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
			data = append(data, append([]byte(nil), q.Cache().Pool().Bytes(f)...))
		}
		q.Cache().Free(burst[:n])
	}
}

// same fails the test if the frames are not those that are wanted, in order.
func same(t testing.TB, want, got [][]byte) {
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

// send sends one frame and fails the test if it is not taken.
func send(t testing.TB, p ethernet.Port, queue int, data []byte, change func(f *ethernet.Frame)) {
	t.Helper()
	if n, err := trySend(p, queue, data, change); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
}

func trySend(p ethernet.Port, queue int, data []byte, change func(f *ethernet.Frame)) (int, error) {
	q := p.Queue(queue)
	frames := make([]ethernet.Frame, 1)
	if q.Cache().Alloc(frames) != 1 {
		return 0, ethernet.ErrNoBuffers
	}
	f := &frames[0]
	f.Length = uint16(len(data))
	copy(q.Cache().Pool().Bytes(*f), data)
	if change != nil {
		change(f)
	}
	buffer := f.Buffer
	n, err := q.Send(frames)
	if n == 0 {
		q.Cache().Free([]ethernet.Frame{{Buffer: buffer}})
	}
	return n, err
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

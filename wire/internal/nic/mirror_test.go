package nic_test

import (
	"context"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
)

func init() {
	ethernet.RegisterScheme("mirror", func(_ context.Context, _ vfio.Address, c ethernet.Options) (ethernet.Port, error) {
		return &mirror{hostile: hostile{pool: c.Pool, cache: c.Pool.NewCache()}, frames: make([]ethernet.Frame, 0, 512)}, c.Pool.Hold()
	})
}

// mirror is a port that gets back what it sends, in the same buffers.
type mirror struct {
	hostile
	frames []ethernet.Frame
}

func (m *mirror) Queue(int) ethernet.Queue   { return m }
func (m *mirror) Wait(context.Context) error { return nil }
func (m *mirror) Unsent() (int, error)       { return 0, nil }

func (m *mirror) Send(frames []ethernet.Frame) (int, error) {
	m.frames = append(m.frames, frames...)
	return len(frames), nil
}

func (m *mirror) Receive(frames []ethernet.Frame) (int, error) {
	n := copy(frames, m.frames)
	m.frames = m.frames[:copy(m.frames, m.frames[n:])]
	return n, nil
}

// exchange sends a burst of frames and takes it back.
func exchange(t testing.TB, p *nic.Port, n int) {
	for i := range n {
		b := p.Reserve(64 + i)
		must.Be(t, b == nil, false, "no room")
		b[14] = byte(i)
		p.Commit()
	}
	p.Flush()
	for i := range n {
		b := p.Receive()
		if len(b) != 64+i || b[14] != byte(i) {
			t.Fatalf("frame %d: %d bytes", i, len(b))
		}
		p.Release()
	}
	must.Be(t, p.Receive() != nil, false, "a frame too many")
}

// TestNoAllocations: bursts of any length allocate nothing, and lose no buffer.
func TestNoAllocations(t *testing.T) {
	p := open(t, nic.Options{Address: "mirror:"})
	for _, n := range []int{1, 2, 17, 64, 100} {
		should.Be(t, testing.AllocsPerRun(300, func() { exchange(t, p, n) }), 0, "a burst of %d frames: allocations", n)
	}
	if s := p.Stats(); s.Lost+s.Bad != 0 {
		t.Errorf("%+v", s)
	}
}

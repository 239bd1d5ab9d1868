package line_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// TestShorten: a frame for which more room was reserved than it takes is found where it is, also around the end of the ring.
func TestShorten(t *testing.T) {
	const ring, room = 1 << 14, 3000
	h := line.Lay(line.Aligned(line.Size(ring)), ring)
	h.Prepare()
	s, r := line.Sender{Half: h}, line.NewReceiver(h, room)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		frame := make([]byte, 1+random.IntN(room))
		for j := range frame {
			frame[j] = byte(i + j)
		}
		space := s.Reserve(room)
		must.Be(t, space == nil, false, "frame %d: no room", i)
		copy(space, frame)
		s.Shorten(len(frame))
		s.Commit()
		s.Flush()
		must.Same(t, r.Take(), frame, "frame %d bytes: others came", i)
		r.Release()
		r.Free()
	}
}

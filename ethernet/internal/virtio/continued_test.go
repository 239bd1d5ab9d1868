package virtio_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/virtqueuetest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestContinued: the second buffer of a frame is not read as the header of another, whatever
// the frame has there.
func TestContinued(t *testing.T) {
	const every, wanted = 10, 20 // of so many frames one is long; so many long ones are seen
	for _, packed := range []bool{false, true} {
		for _, payload := range [][2]byte{{0xff, 0xff}, {1, 0}, {0, 0}, {3, 0}} {
			t.Run(fmt.Sprintf("packed %v, % x", packed, payload), func(t *testing.T) {
				leaktest.Check(t)
				b := newBack(t)
				if !packed {
					b.features &^= 1 << 34
				}
				frames := 0
				b.header = func(h []byte) {
					switch frames++; frames % every {
					case 0:
						h[10] = 2
					case 1:
						copy(h[10:], payload[:])
					}
				}
				b.use = func(q int, f virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
					if q == 0 && frames%every == 0 {
						n = uint32(len(f.Parts[0].Data))
					}
					return f, n
				}
				p := connect(t, b.serve(), ethernet.Options{ReceiveDescriptors: 64, SendDescriptors: 64})
				if err := provoke(t, p, func(c ethernet.QueueStats) bool { return c.Unended+c.BadLengths >= wanted }); err != nil {
					t.Fatal(err)
				}
				c := p.Stats().Queues[0]
				// Frame 1 has no long one before it.
				if long := c.Unended; c.BadLengths != 0 || c.Restarts != 0 || c.ReceivedFrames > (every-2)*long+every || c.ReceivedFrames < (every-2)*(long-10) {
					t.Errorf("%+v", c)
				}
			})
		}
	}
}

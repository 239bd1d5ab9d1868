package engine_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// one are the flags of a message of one frame.
const one = datasheet.FrameFirst | datasheet.FrameLast

// TestUnreliableDuplicates: what a wire doubles and reorders arrives at most once, and
// in order, whether in one frame or in several.
func TestUnreliableDuplicates(t *testing.T) {
	for _, size := range []int{0, 8, 5000} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d bytes, seed %d", size, seed), func(t *testing.T) {
				w, v, p := pair(t, unreliable, lossy(seed, 0.05, 0.5, 0.1, 0))
				const messages = 1 << queueLog2
				var in [][]byte
				for range messages {
					r, b := p.descriptor(size)
					in = append(in, b[0])
					p.postRecv(r)
				}
				for i := range messages {
					s, out := v.descriptor(size)
					copy(out[0], pattern(size, uint64(i)))
					s.SetImmediate(uint32(i))
					v.postSend(s)
					w.settle()
				}
				last, arrived := -1, 0
				for i, r := range p.recv.posted {
					if !r.Status().Done() {
						break
					}
					number, _ := r.Immediate()
					if int(number) <= last {
						t.Errorf("message %d arrived after message %d", number, last)
					}
					mustEqual(t, in[i], pattern(size, uint64(number)))
					last = int(number)
					arrived++
				}
				if arrived < messages/4 {
					t.Errorf("%d of %d messages arrived", arrived, messages)
				}
			})
		}
	}
}

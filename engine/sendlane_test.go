package engine_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// posts makes n sends of v and receives of p, and posts the receives. Send number split, if there
// is one, has two segments.
func posts(v, p *vi, n, split int) (sends, receives []*descriptors.Descriptor, out, in [][]byte) {
	for i := range n {
		sizes := []int{40}
		if i == split {
			sizes = []int{10, 30}
		}
		s, from := v.descriptor(sizes...)
		r, to := p.descriptor(40)
		message := pattern(40, uint64(i))
		for _, b := range from {
			message = message[copy(b, message):]
		}
		sends, receives, out, in = append(sends, s), append(receives, r), append(out, pattern(40, uint64(i))), append(in, to[0])
	}
	p.postRecv(receives...)
	v.n.w.settle()
	return sends, receives, out, in
}

func succeeded(ds []*descriptors.Descriptor) (n int) {
	for _, d := range ds {
		if d.Status().Done() && !d.Status().Failed() {
			n++
		}
	}
	return n
}

// TestRunOfPosts: what one doorbell tells of is one publication on the wire, up to a message of
// several segments. Each message arrives once, in order.
func TestRunOfPosts(t *testing.T) {
	for name, long := range map[string]int{"short ones": -1, "one of two pieces": 2} {
		t.Run(name, func(t *testing.T) {
			w, v, p, ends := exactPair(t, nil)
			sends, receives, out, in := posts(v, p, 8, long)
			before := ends[0].flushed
			v.n.calls = true
			v.postSend(sends...)
			if n := len(*ends[0].out); n != len(sends) {
				t.Errorf("%d frames are on the wire, want %d", n, len(sends))
			}
			if n := ends[0].flushed - before; long < 0 && n != 1 {
				t.Errorf("%d publications", n)
			}
			w.run("the messages", func() bool { return succeeded(receives) == 8 && succeeded(sends) == 8 })
			for i := range in {
				if !slices.Equal(in[i], out[i]) {
					t.Errorf("message %d is %x, want %x", i, in[i], out[i])
				}
			}
		})
	}
}

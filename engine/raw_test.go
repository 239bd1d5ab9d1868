package engine_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// station is the address of a world's node a or b.
func station(n *node) []byte { m := n.e.MAC; return m[:] }

// rawFrame is a frame of n bytes from the node a with EtherType 0x0800.
func rawFrame(to []byte, n int, seed uint64) []byte {
	f := slices.Concat(to, []byte{2, 0, 0, 0, 0, 1}, []byte{8, 0}, pattern(max(n, 14)-14, seed))
	return f[:n]
}

// newFrames creates an endpoint for raw frames.
func (n *node) newFrames(handle uint32, options datasheet.EndpointOptions) *vi {
	n.w.t.Helper()
	return n.newVI(handle, func(b *datasheet.CreateEndpointBody) {
		b.Kind, b.Reliability, b.MaxTransfer, b.Options = datasheet.KindFrame, datasheet.Unreliable, 2048, options
	})
}

// frames is a world with an endpoint for raw frames at each end.
func frames(t testing.TB, options datasheet.EndpointOptions, o ...option) (w *world, v, p *vi) {
	t.Helper()
	w = newWorld(t, o...)
	return w, w.a.newFrames(w.a.memory(0, 0), options), w.b.newFrames(w.b.memory(0, 0), options)
}

// sendFrame sends one frame and returns the status of the send.
func sendFrame(v *vi, frame []byte) datasheet.Status {
	v.n.w.t.Helper()
	s, out := v.descriptor(len(frame))
	copy(out[0], frame)
	v.postSend(s)
	v.n.w.run("the end of a send", func() bool { return s.Status().Done() })
	v.n.w.settle()
	return s.Status()
}

// receiver posts a receive of some bytes.
func (v *vi) receiver(size int) (*descriptors.Descriptor, []byte) {
	d, in := v.descriptor(size)
	v.postRecv(d)
	return d, in[0]
}

// mustTake checks that a receive has completed with a frame.
func mustTake(t *testing.T, d *descriptors.Descriptor, in, frame []byte) {
	t.Helper()
	if d.Status().Failed() || !d.Status().Done() {
		t.Fatalf("status %v", d.Status())
	}
	mustEqual(t, in[:d.Length()], frame)
}

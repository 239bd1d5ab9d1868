package breakdown

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestBorders: the wire and the receiver's NIC are seen at work for frames of each kind.
func TestBorders(t *testing.T) {
	for _, o := range []Options{{Bytes: 0}, {Bytes: 64}, {Bytes: 8 << 10}, {Bytes: 64, Eager: true}} {
		p := must.Get(newPair(t.Context(), &o, true))(t)
		for range 3 {
			must.OK(t, p.once())
			for _, f := range []phase{phasePost, phaseFetch, phaseWire, phaseDeliver, phaseRest, phasePoll} {
				if p.line.marks[f] == 0 {
					t.Errorf("%+v: a message without phase %d: %v", o, f, p.line.marks)
				}
			}
		}
		should.OK(t, p.Close())
	}
}
